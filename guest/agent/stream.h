/* Streams: the running commands of a session.
 *
 *   open --> starting --> running --> closing (killed) --> draining --> gone
 *                |            |           |
 *                +------------+-----------+--> detached: no host side any more; output is read and
 *                                              dropped until the group is empty
 *
 * Owns: credit, pumping between pipes and frames, the end of a command. Every descriptor is registered
 * edge-triggered; `ready` flags remember the edges until a read or write says EAGAIN. */
#ifndef KOSA8_STREAM_H
#define KOSA8_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "message.h"

enum {
  STDIN_WINDOW = 128 * 1024,
  STREAMS_MAX = 256,       /* with a host side */
  STREAMS_TOTAL_MAX = 1024, /* with detached ones */
  LEFTOVERS_MAX = 64,
};

struct stream;

void streams_init(int epoll_fd);
struct stream *stream_find(uint32_t id);
/* Starts a command; the answer (STARTED or START_FAILED) is a frame. */
void stream_open(uint32_t id, const struct exec_request *request);
void stream_refuse(uint32_t id, int error, const char *step);

void stream_input(struct stream *stream, const uint8_t *bytes, size_t count);
void stream_input_end(struct stream *stream);
void stream_credit(struct stream *stream, unsigned channel, uint32_t bytes);
void stream_signal(struct stream *stream, int signal);
void stream_resize(struct stream *stream, uint16_t rows, uint16_t columns);
void stream_close(struct stream *stream);
/* What is left of the command goes on without a host side. */
void stream_release(struct stream *stream);

/* A new session: what runs goes on without a host side. */
void streams_detach(void);
/* The token is what epoll returned; `events` its event bits. */
void streams_on_event(uint64_t token, uint32_t events);
void streams_on_child_end(pid_t pid, int status);
/* Does what can be done without waiting, each stream a little in turn; true if anything was done.
 * While frozen nothing is read from commands, so that the channel stays at a frame boundary. */
bool streams_step(bool frozen);
bool streams_are_none(void);
/* How long the loop may wait, in milliseconds; -1 for ever. */
int streams_wait_ms(void);
void streams_kill_all(void);

#endif
