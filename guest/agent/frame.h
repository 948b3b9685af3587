/* Frames: what travels over the virtio-serial port. The layout is described in guest/PROTOCOL.md.
 *
 * Owns: finding frames in a byte stream that may start or break off anywhere, and writing headers.
 * Does not own: what a payload means (message.h). Pure: no input, no output, no clock. */
#ifndef KOSA8_FRAME_H
#define KOSA8_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  FRAME_HEADER = 20,
  FRAME_TRAILER = 4,
  FRAME_PAYLOAD_MAX = 32 * 1024,
  FRAME_MAX = FRAME_HEADER + FRAME_PAYLOAD_MAX + FRAME_TRAILER,
  /* Room for several frames, so that one read of the port is worth its system call. */
  PARSER_BUFFER = 4 * FRAME_MAX,
};

enum frame_type {
  TYPE_HELLO = 0x01,
  TYPE_EXEC = 0x02,
  TYPE_DATA = 0x03,
  TYPE_EOF = 0x04,
  TYPE_CREDIT = 0x05,
  TYPE_SIGNAL = 0x06,
  TYPE_RESIZE = 0x07,
  TYPE_CLOSE = 0x08,
  TYPE_PING = 0x09,
  TYPE_IDENTITY = 0x0a,
  TYPE_QUIESCE = 0x0b,
  TYPE_THAW = 0x0c,
  TYPE_RELEASE = 0x0d,
  TYPE_LISTEN = 0x0e,
  TYPE_HELLO_ACK = 0x81,
  TYPE_STARTED = 0x82,
  TYPE_START_FAILED = 0x83,
  TYPE_EXIT = 0x84,
  TYPE_CLOSED = 0x85,
  TYPE_PONG = 0x86,
  TYPE_IDENTITY_DONE = 0x87,
  TYPE_QUIESCED = 0x88,
  TYPE_THAWED = 0x89,
  TYPE_DONE = 0x8a,
  TYPE_LISTENING = 0x8b,
  TYPE_CONNECTED = 0x8c,
};

/* Flag of an EXEC frame: the request goes on in the next frame. */
enum { FLAG_MORE = 0x01 };

struct frame {
  uint8_t type;
  uint8_t flags;
  uint32_t stream;
  uint32_t length;
  const uint8_t *payload; /* inside the parser's buffer; valid until the parser is touched again */
};

struct frame_parser {
  uint8_t buffer[PARSER_BUFFER];
  size_t start, end;
};

/* Where the next bytes may be put, and how many; call frame_parser_added() with what was read. */
size_t frame_parser_room(struct frame_parser *parser, uint8_t **where);
void frame_parser_added(struct frame_parser *parser, size_t count);

/* Takes the next whole frame out; false when more bytes are needed. Bytes that are no frame are
 * skipped; a frame whose trailer is wrong was completed by foreign bytes and is dropped whole. */
bool frame_parser_next(struct frame_parser *parser, struct frame *frame);

/* Writes header and trailer around a payload that already lies at out + FRAME_HEADER.
 * Returns the length of the whole frame. */
size_t frame_seal(uint8_t *out, uint8_t type, uint8_t flags, uint32_t stream, uint32_t length);

uint32_t frame_crc32(const uint8_t *bytes, size_t count);

#endif
