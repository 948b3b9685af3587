/* Random frames against the parser, the decoders and the resynchronisation, under the sanitizers.
 *
 * usage: fuzz FRAMES [SEED]. Deterministic. Checks, besides what the sanitizers see:
 *  - after any bytes, the filler and HELLO, exactly that HELLO is found as the next one with its nonce;
 *  - between frames that are whole, none is lost and none is invented. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../frame.h"
#include "../message.h"

enum { STREAM_MAX = 1 << 20, LENGTHS = 8 };

static uint64_t state;
static struct frame_parser parser;
static uint8_t stream[STREAM_MAX + 2 * FRAME_MAX], scratch[FRAME_MAX];
static unsigned long frames_parsed, frames_fed;

static uint32_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16);
}

static void fail(const char *what) {
  fprintf(stderr, "fuzz: %s\n", what);
  abort();
}

static void fill(uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)draw();
}

static uint32_t draw_length(void) {
  static const uint32_t lengths[LENGTHS] = {0, 1, 4, 16, 64, 200, 1000, FRAME_PAYLOAD_MAX};
  return draw() % 64 == 0 ? lengths[draw() % LENGTHS] : draw() % 96;
}

static size_t put_string(uint8_t *out, const char *text) {
  size_t length = strlen(text) + 1;
  put_u32(out, (uint32_t)length);
  memcpy(out + 4, text, length);
  return 4 + length;
}

/* A request that is right, or nearly. */
static size_t make_request(uint8_t *out) {
  size_t at = 0;
  uint32_t kind = draw() % 8;
  if (kind == 0) {
    fill(out, 2);
    at = 2;
  } else if (kind < 4) {
    memset(out, 0, 16);
    at = 16;
    at += put_string(out + at, "/");
    at += put_string(out + at, "");
    uint32_t argc = draw() % 4;
    put_u32(out + at, argc);
    at += 4;
    while (argc-- > 0) at += put_string(out + at, "sh");
    put_u32(out + at, 1);
    at += 4;
    at += put_string(out + at, "A=b");
  } else {
    fill(out, 8 + ENTROPY_BYTES);
    at = 8 + ENTROPY_BYTES;
    at += put_string(out + at, "host");
    at += put_string(out + at, "0123456789abcdef0123456789abcdef");
    at += put_string(out + at, "clone");
  }
  for (uint32_t flips = draw() % 3; flips > 0; flips--) out[draw() % at] ^= (uint8_t)(1u << draw() % 8);
  return draw() % 4 == 0 ? draw() % (at + 1) : at;
}

/* Decoders get a block of exactly their size, so that the address sanitizer sees one byte too far. */
static void decode(const uint8_t *bytes, size_t count) {
  uint8_t *copy = malloc(count + 1);
  if (copy == NULL) fail("memory");
  uint8_t *exact = realloc(copy, count > 0 ? count : 1);
  memcpy(exact, bytes, count);
  struct exec_request exec;
  struct identity_request identity;
  if (decode_exec(exact, count, &exec)) {
    size_t sum = strlen(exec.cwd) + strlen(exec.user);
    for (uint32_t i = 0; i < exec.argc; i++) sum += strlen(exec.argv[i]);
    for (uint32_t i = 0; i < exec.envc; i++) sum += strlen(exec.env[i]);
    if (sum > count || exec.argv[exec.argc] != NULL) fail("a request larger than its bytes");
    free_exec(&exec);
  }
  if (decode_identity(exact, count, &identity) && strlen(identity.machine_id) != MACHINE_ID_LENGTH) fail("machine id");
  uint16_t port;
  if (decode_listen(exact, count, &port) && count != 2) fail("a port of another length");
  free(exact);
}

/* Feeds bytes in pieces; calls visit for every frame. */
static void feed(const uint8_t *bytes, size_t count, void (*visit)(const struct frame *frame)) {
  struct frame frame;
  while (count > 0) {
    uint8_t *where;
    size_t room = frame_parser_room(&parser, &where);
    size_t piece = draw() % 4 == 0 ? 1 + draw() % 64 : 1 + draw() % 65536;
    if (piece > room) piece = room;
    if (piece > count) piece = count;
    if (piece == 0) fail("the parser is stuck");
    memcpy(where, bytes, piece);
    frame_parser_added(&parser, piece);
    bytes += piece;
    count -= piece;
    while (frame_parser_next(&parser, &frame)) {
      frames_parsed++;
      if (frame.length > FRAME_PAYLOAD_MAX) fail("an impossible length");
      visit(&frame);
    }
  }
}

static uint32_t next_expected, wanted_nonce;
static bool found_nonce;

static void visit_ordered(const struct frame *frame) {
  if (frame->stream != next_expected) fail("a frame was lost or invented");
  next_expected++;
  decode(frame->payload, frame->length);
}

static void visit_any(const struct frame *frame) {
  decode(frame->payload, frame->length);
  if (frame->type == TYPE_HELLO && frame->length == NONCE_BYTES && get_u32(frame->payload) == wanted_nonce) found_nonce = true;
}

static size_t add_frame(size_t at, uint32_t number) {
  uint32_t length;
  if (draw() % 4 == 0) {
    length = (uint32_t)make_request(scratch);
  } else {
    length = draw_length();
    fill(scratch, length < 32 ? length : 32);
  }
  memcpy(stream + at + FRAME_HEADER, scratch, length);
  frames_fed++;
  return frame_seal(stream + at, (uint8_t)draw(), (uint8_t)draw(), number, length);
}

/* Whole frames only: all arrive, in order. */
static void round_of_whole_frames(void) {
  size_t at = 0;
  uint32_t count = 1 + draw() % 2000;
  next_expected = 0;
  for (uint32_t i = 0; i < count && at < STREAM_MAX; i++) at += add_frame(at, i);
  uint32_t built = 0;
  memset(&parser, 0, sizeof parser);
  feed(stream, at, visit_ordered);
  for (size_t seen = 0; seen < at; built++) seen += FRAME_HEADER + get_u32(stream + seen + 12) + FRAME_TRAILER;
  if (next_expected != built) fail("a frame at the end was lost");
}

/* Frames, damage, a cut anywhere; then the beginning of a session, which must always be found. */
static void round_of_damage(void) {
  size_t at = 0;
  uint32_t count = 1 + draw() % 2000;
  for (uint32_t i = 0; i < count && at < STREAM_MAX; i++) at += add_frame(at, draw());
  for (uint32_t damage = draw() % 50; damage > 0; damage--) stream[draw() % at] = (uint8_t)draw();
  if (draw() % 4 == 0) fill(stream, at / 8);
  memset(&parser, 0, sizeof parser);
  found_nonce = false;
  wanted_nonce = draw();
  feed(stream, draw() % (at + 1), visit_any);
  memset(stream, 0, FRAME_MAX);
  memset(stream + FRAME_MAX + FRAME_HEADER, 7, NONCE_BYTES);
  put_u32(stream + FRAME_MAX + FRAME_HEADER, wanted_nonce);
  size_t hello = frame_seal(stream + FRAME_MAX, TYPE_HELLO, 0, 0, NONCE_BYTES);
  found_nonce = false;
  feed(stream, FRAME_MAX + hello, visit_any);
  if (!found_nonce) fail("HELLO was not found");
}

int main(int argc, char **argv) {
  unsigned long wanted = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
  state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  state = state * 0x9e3779b97f4a7c15ull + 1;
  while (frames_fed < wanted) {
    round_of_whole_frames();
    round_of_damage();
  }
  printf("%lu frames fed, %lu parsed, no fault\n", frames_fed, frames_parsed);
  return 0;
}
