/* Messages: see message.h. */
#include "message.h"

#include <stdlib.h>
#include <string.h>

struct reader {
  const uint8_t *at;
  size_t left;
  bool bad;
};

static const uint8_t *take(struct reader *reader, size_t count) {
  if (reader->bad || reader->left < count) {
    reader->bad = true;
    return NULL;
  }
  const uint8_t *taken = reader->at;
  reader->at += count;
  reader->left -= count;
  return taken;
}

static uint16_t take_u16(struct reader *reader) {
  const uint8_t *p = take(reader, 2);
  return p == NULL ? 0 : get_u16(p);
}

static uint32_t take_u32(struct reader *reader) {
  const uint8_t *p = take(reader, 4);
  return p == NULL ? 0 : get_u32(p);
}

static uint64_t take_u64(struct reader *reader) {
  uint64_t low = take_u32(reader);
  return low | (uint64_t)take_u32(reader) << 32;
}

static const char *take_string(struct reader *reader) {
  uint32_t length = take_u32(reader);
  const uint8_t *p = length == 0 ? NULL : take(reader, length);
  if (p == NULL || memchr(p, 0, length) != p + length - 1) {
    reader->bad = true;
    return "";
  }
  return (const char *)p;
}

static const char **take_strings(struct reader *reader, uint32_t *count) {
  *count = take_u32(reader);
  if (reader->bad || *count > EXEC_STRINGS_MAX) {
    reader->bad = true;
    return NULL;
  }
  const char **strings = calloc(*count + 1, sizeof *strings);
  if (strings == NULL) reader->bad = true;
  for (uint32_t i = 0; i < *count && !reader->bad; i++) strings[i] = take_string(reader);
  return strings;
}

bool decode_exec(const uint8_t *bytes, size_t count, struct exec_request *request) {
  struct reader reader = {bytes, count, false};
  request->flags = take_u32(&reader);
  request->rows = take_u16(&reader);
  request->columns = take_u16(&reader);
  request->credit[0] = take_u32(&reader);
  request->credit[1] = take_u32(&reader);
  request->cwd = take_string(&reader);
  request->user = take_string(&reader);
  request->argv = take_strings(&reader, &request->argc);
  request->env = take_strings(&reader, &request->envc);
  bool good = !reader.bad && reader.left == 0 && request->argc > 0 && request->argv[0][0] != 0;
  for (uint32_t i = 0; good && i < request->envc; i++) {
    const char *equals = strchr(request->env[i], '=');
    good = equals != NULL && equals != request->env[i];
  }
  if (!good) free_exec(request);
  return good;
}

void free_exec(struct exec_request *request) {
  free(request->argv);
  free(request->env);
  request->argv = request->env = NULL;
}

static bool is_name(const char *text, size_t length_max, const char *allowed) {
  size_t length = strlen(text);
  return length > 0 && length <= length_max && strspn(text, allowed) == length;
}

bool decode_identity(const uint8_t *bytes, size_t count, struct identity_request *request) {
  static const char hex[] = "0123456789abcdef";
  static const char words[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  struct reader reader = {bytes, count, false};
  request->realtime_ns = take_u64(&reader);
  request->entropy = take(&reader, ENTROPY_BYTES);
  request->hostname = take_string(&reader);
  request->machine_id = take_string(&reader);
  request->clone_id = take_string(&reader);
  return !reader.bad && reader.left == 0 && is_name(request->hostname, HOSTNAME_MAX, words) &&
         is_name(request->machine_id, MACHINE_ID_LENGTH, hex) &&
         strlen(request->machine_id) == MACHINE_ID_LENGTH && is_name(request->clone_id, CLONE_ID_MAX, words);
}

bool decode_listen(const uint8_t *bytes, size_t count, uint16_t *port) {
  struct reader reader = {bytes, count, false};
  *port = take_u16(&reader);
  return !reader.bad && reader.left == 0;
}
