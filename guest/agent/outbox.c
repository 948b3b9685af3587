/* The outbox: see outbox.h. */
#include "outbox.h"

#include <string.h>
#include <unistd.h>

static uint8_t bytes[OUTBOX_LIMIT + 2 * FRAME_MAX];
static size_t start, end;

bool outbox_has_room(void) {
  return end - start <= OUTBOX_LIMIT;
}

bool outbox_has_room_for_data(void) {
  return end - start <= OUTBOX_DATA_LIMIT;
}

uint8_t *outbox_payload(void) {
  if (end + FRAME_MAX > sizeof bytes) {
    memmove(bytes, bytes + start, end - start);
    end -= start;
    start = 0;
  }
  return bytes + end + FRAME_HEADER;
}

void outbox_add(uint8_t type, uint8_t flags, uint32_t stream, size_t length) {
  end += frame_seal(bytes + end, type, flags, stream, (uint32_t)length);
}

void outbox_truncate(void) {
  start = end = 0;
}

bool outbox_is_empty(void) {
  return start == end;
}

long outbox_write(int fd) {
  ssize_t count = write(fd, bytes + start, end - start);
  if (count > 0) start += (size_t)count;
  if (start == end) outbox_truncate();
  return count;
}
