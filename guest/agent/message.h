/* Messages: what the payload of a frame says. Numbers are little endian; a string is its length
 * (final NUL included) as 32 bits, then its bytes, then NUL, with no NUL before.
 *
 * Owns: decoding requests with every length checked. Pure. */
#ifndef KOSA8_MESSAGE_H
#define KOSA8_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  EXEC_REQUEST_MAX = 1024 * 1024,
  EXEC_STRINGS_MAX = 8192,
  NONCE_BYTES = 16,
  ENTROPY_BYTES = 64,
  HOSTNAME_MAX = 63,
  MACHINE_ID_LENGTH = 32,
  CLONE_ID_MAX = 64,
};

enum { EXEC_STDIN = 1, EXEC_PTY = 2 };

struct exec_request {
  uint32_t flags;
  uint16_t rows, columns;
  uint32_t credit[2]; /* stdout, stderr */
  const char *cwd, *user;
  uint32_t argc, envc;
  const char **argv; /* NULL-terminated; strings lie in the decoded bytes */
  const char **env;
};

struct identity_request {
  uint64_t realtime_ns;
  const uint8_t *entropy; /* ENTROPY_BYTES */
  const char *hostname, *machine_id, *clone_id;
};

/* False when the bytes are not a request; nothing is allocated then. */
bool decode_exec(const uint8_t *bytes, size_t count, struct exec_request *request);
void free_exec(struct exec_request *request);
bool decode_identity(const uint8_t *bytes, size_t count, struct identity_request *request);
bool decode_listen(const uint8_t *bytes, size_t count, uint16_t *port);

static inline uint16_t get_u16(const uint8_t *p) {
  return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t get_u32(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t get_u64(const uint8_t *p) {
  return get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}

static inline void put_u32(uint8_t *p, uint32_t value) {
  p[0] = (uint8_t)value;
  p[1] = (uint8_t)(value >> 8);
  p[2] = (uint8_t)(value >> 16);
  p[3] = (uint8_t)(value >> 24);
}

#endif
