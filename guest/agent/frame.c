/* Frames: see frame.h. */
#include "frame.h"

#include <string.h>

#include "message.h"

static const uint8_t MAGIC[4] = {0xc5, 'K', '8', 0xa1};

/* Headers are 16 bytes, so a table of 16 entries is fast enough and stays in one cache line. */
uint32_t frame_crc32(const uint8_t *bytes, size_t count) {
  static const uint32_t table[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
  };
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    crc = (crc >> 4) ^ table[crc & 15];
    crc = (crc >> 4) ^ table[crc & 15];
  }
  return ~crc;
}

size_t frame_parser_room(struct frame_parser *parser, uint8_t **where) {
  if (parser->start > 0) {
    memmove(parser->buffer, parser->buffer + parser->start, parser->end - parser->start);
    parser->end -= parser->start;
    parser->start = 0;
  }
  *where = parser->buffer + parser->end;
  return PARSER_BUFFER - parser->end;
}

void frame_parser_added(struct frame_parser *parser, size_t count) {
  parser->end += count;
}

/* Moves to the next byte that could begin a frame. */
static void skip_to_magic(struct frame_parser *parser) {
  size_t from = parser->start + 1;
  const uint8_t *found = memchr(parser->buffer + from, MAGIC[0], parser->end - from);
  parser->start = found == NULL ? parser->end : (size_t)(found - parser->buffer);
}

bool frame_parser_next(struct frame_parser *parser, struct frame *frame) {
  while (parser->end - parser->start >= FRAME_HEADER) {
    const uint8_t *header = parser->buffer + parser->start;
    uint32_t length = get_u32(header + 12);
    uint32_t crc = get_u32(header + 16);
    if (memcmp(header, MAGIC, sizeof MAGIC) != 0 || length > FRAME_PAYLOAD_MAX ||
        frame_crc32(header, 16) != crc) {
      skip_to_magic(parser);
      continue;
    }
    size_t total = FRAME_HEADER + (size_t)length + FRAME_TRAILER;
    if (parser->end - parser->start < total) return false;
    parser->start += total;
    if (get_u32(header + FRAME_HEADER + length) != crc) continue;
    frame->type = header[4];
    frame->flags = header[5];
    frame->stream = get_u32(header + 8);
    frame->length = length;
    frame->payload = header + FRAME_HEADER;
    return true;
  }
  return false;
}

size_t frame_seal(uint8_t *out, uint8_t type, uint8_t flags, uint32_t stream, uint32_t length) {
  memcpy(out, MAGIC, sizeof MAGIC);
  out[4] = type;
  out[5] = flags;
  out[6] = 0;
  out[7] = 0;
  put_u32(out + 8, stream);
  put_u32(out + 12, length);
  uint32_t crc = frame_crc32(out, 16);
  put_u32(out + 16, crc);
  put_u32(out + FRAME_HEADER + length, crc);
  return FRAME_HEADER + (size_t)length + FRAME_TRAILER;
}
