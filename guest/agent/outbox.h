/* The outbox: whole frames waiting for the port. Its size bounds what the agent holds for the host;
 * who wants to add asks for room first, so a full port stops the reading of pipes and requests. */
#ifndef KOSA8_OUTBOX_H
#define KOSA8_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame.h"

enum {
  /* Above this many waiting bytes no output of commands is added. */
  OUTBOX_DATA_LIMIT = 4 * FRAME_MAX,
  /* Above this nothing is: a step of one stream adds less than one maximal frame. */
  OUTBOX_LIMIT = 8 * FRAME_MAX,
};

bool outbox_has_room(void);
bool outbox_has_room_for_data(void);
/* Where the payload of the next frame goes; room for a maximal one while outbox_has_room(). */
uint8_t *outbox_payload(void);
/* Makes that payload a frame. */
void outbox_add(uint8_t type, uint8_t flags, uint32_t stream, size_t length);
/* Forgets everything, half-sent frames included; a new session skips what is left of them. */
void outbox_truncate(void);
bool outbox_is_empty(void);
/* Writes once to the descriptor. Returns what write() returned. */
long outbox_write(int fd);

#endif
