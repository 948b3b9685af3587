/* The guest agent: init of a kosa8 machine, and the one the host talks with.
 *
 *   /init                            boots the machine, then serves the virtio-serial port
 *   agent --serve-fd N [--cgroup D]  serves a descriptor (tests); it is not init, repairs no identity
 *
 * One thread, one epoll loop, nothing in it waits except identity repair and freezing, which are
 * bounded. The wire format is in guest/PROTOCOL.md. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "boot.h"
#include "clock.h"
#include "frame.h"
#include "group.h"
#include "identity.h"
#include "message.h"
#include "outbox.h"
#include "relay.h"
#include "stream.h"
#include "system.h"

enum { PROTOCOL_VERSION = 1, FREEZE_LIMIT_MS = 500, EVENTS_MAX = 64, PING_MAX = 64 };
/* Tokens of the two descriptors that belong to no stream; those of streams are addresses. */
enum { TOKEN_PORT = 1, TOKEN_CHILDREN = 2 };
/* Flags of HELLO_ACK. */
enum { ACK_FROZEN = 1, ACK_CGROUPS = 2, ACK_INIT = 4, ACK_LISTENING = 8 };

static bool is_init, is_frozen, has_session;
static int port_fd, children_fd, loop_fd;
static bool port_readable = true, port_writable = true;
static struct frame_parser parser;
static uint8_t exec_bytes[EXEC_REQUEST_MAX];
static size_t exec_length;
static uint32_t exec_stream; /* whose request is being put together; 0: none */

/* --- requests --- */

static void answer_hello(const struct frame *frame) {
  struct utsname system;
  if (frame->length < NONCE_BYTES) return;
  uint8_t nonce[NONCE_BYTES];
  memcpy(nonce, frame->payload, NONCE_BYTES);
  streams_detach();
  relays_reset();
  outbox_truncate();
  exec_stream = 0;
  has_session = true;
  uint8_t *payload = outbox_payload();
  memcpy(payload, nonce, NONCE_BYTES);
  put_u32(payload + 16, PROTOCOL_VERSION);
  put_u32(payload + 20, FRAME_PAYLOAD_MAX);
  put_u32(payload + 24, STDIN_WINDOW);
  put_u32(payload + 28, STREAMS_MAX);
  put_u32(payload + 32, (is_frozen ? ACK_FROZEN : 0) | (groups_are_cgroups() ? ACK_CGROUPS : 0) |
                          (is_init ? ACK_INIT : 0) | (relays_are_listening() ? ACK_LISTENING : 0));
  uname(&system);
  size_t length = strlen(system.release) + 1;
  put_u32(payload + 36, (uint32_t)length);
  memcpy(payload + 40, system.release, length);
  outbox_add(TYPE_HELLO_ACK, 0, 0, 40 + length);
}

/* A request may need several frames; they follow one another without another EXEC between. */
static void collect_exec(const struct frame *frame) {
  if (exec_stream != frame->stream) exec_length = 0;
  exec_stream = frame->stream;
  if (exec_length + frame->length > EXEC_REQUEST_MAX) {
    exec_stream = 0;
    return stream_refuse(frame->stream, E2BIG, "request");
  }
  memcpy(exec_bytes + exec_length, frame->payload, frame->length);
  exec_length += frame->length;
  if (frame->flags & FLAG_MORE) return;
  struct exec_request request;
  exec_stream = 0;
  if (!decode_exec(exec_bytes, exec_length, &request)) {
    exec_length = 0;
    return stream_refuse(frame->stream, EINVAL, "request");
  }
  stream_open(frame->stream, &request);
  free_exec(&request);
  exec_length = 0;
}

static void answer_identity(const struct frame *frame) {
  struct identity_request request;
  uint32_t results[STEP_COUNT];
  if (!is_init || !decode_identity(frame->payload, frame->length, &request)) {
    for (int step = 0; step < STEP_COUNT; step++) results[step] = is_init ? EINVAL : EPERM;
  } else {
    repair_identity(&request, results);
    if (results[STEP_THAW] == 0) is_frozen = false;
  }
  uint8_t *payload = outbox_payload();
  for (int step = 0; step < STEP_COUNT; step++) put_u32(payload + 4 * step, results[step]);
  outbox_add(TYPE_IDENTITY_DONE, 0, frame->stream, 4 * STEP_COUNT);
}

/* Freezing that does not come to an end in time is taken back: the machine is as it was, or frozen. */
static void answer_freeze(const struct frame *frame, bool freeze) {
  if (freeze) group_keep_spare(); /* for the first command of every clone */
  /* A thaw of what is not frozen, as of a machine found again, says nothing about a standstill. */
  if (is_init && frame->length == 8 && freeze != is_frozen) (freeze ? clock_note : clock_catch_up)(get_u64(frame->payload));
  int error = groups_freeze(freeze, FREEZE_LIMIT_MS);
  if (error == 0) is_frozen = freeze;
  else if (freeze) groups_freeze(false, FREEZE_LIMIT_MS);
  put_u32(outbox_payload(), (uint32_t)error);
  outbox_add(freeze ? TYPE_QUIESCED : TYPE_THAWED, 0, frame->stream, 4);
}

static void answer_ping(const struct frame *frame) {
  size_t length = frame->length < PING_MAX ? frame->length : PING_MAX;
  memcpy(outbox_payload(), frame->payload, length);
  outbox_add(TYPE_PONG, 0, frame->stream, length);
}

static void answer_listen(const struct frame *frame) {
  uint16_t port;
  bool good = decode_listen(frame->payload, frame->length, &port);
  put_u32(outbox_payload(), (uint32_t)(good ? relays_listen(port) : EINVAL));
  outbox_add(TYPE_LISTENING, 0, frame->stream, 4);
}

/* A stream the host does not know to be gone yet is no error: its messages are dropped. */
static void dispatch_to_stream(const struct frame *frame) {
  struct stream *stream = stream_find(frame->stream);
  if (stream == NULL) return;
  const uint8_t *payload = frame->payload;
  switch (frame->type) {
    case TYPE_DATA: stream_input(stream, payload, frame->length); break;
    case TYPE_EOF: stream_input_end(stream); break;
    case TYPE_CLOSE: stream_close(stream); break;
    case TYPE_RELEASE: stream_release(stream); break;
    case TYPE_CREDIT:
      if (frame->length == 4) stream_credit(stream, frame->flags, get_u32(payload));
      break;
    case TYPE_SIGNAL:
      if (frame->length == 4) stream_signal(stream, (int)get_u32(payload));
      break;
    case TYPE_RESIZE:
      if (frame->length == 4) stream_resize(stream, get_u16(payload), get_u16(payload + 2));
      break;
    default: break;
  }
}

static void dispatch(const struct frame *frame) {
  if (frame->type == TYPE_HELLO) return answer_hello(frame);
  if (!has_session) return;
  switch (frame->type) {
    case TYPE_EXEC: return collect_exec(frame);
    case TYPE_IDENTITY: return answer_identity(frame);
    case TYPE_QUIESCE: return answer_freeze(frame, true);
    case TYPE_THAW: return answer_freeze(frame, false);
    case TYPE_PING: return answer_ping(frame);
    case TYPE_LISTEN: return answer_listen(frame);
    default: return frame->stream >= RELAY_STREAMS ? relays_receive(frame) : dispatch_to_stream(frame);
  }
}

/* --- the loop --- */

static _Noreturn void end_serving(void) {
  streams_kill_all();
  exit(0);
}

/* The host has hung up: what runs goes on, and nobody waits for a reader that is gone. */
static void end_session(void) {
  if (!has_session) return;
  streams_detach();
  relays_reset();
  outbox_truncate();
  has_session = false;
}

static bool read_port(void) {
  bool done = false;
  struct frame frame;
  while (outbox_has_room() && frame_parser_next(&parser, &frame)) {
    dispatch(&frame);
    done = true;
  }
  if (!port_readable || !outbox_has_room()) return done;
  uint8_t *where;
  size_t room = frame_parser_room(&parser, &where);
  if (room == 0) return done;
  ssize_t count = read(port_fd, where, room);
  if (count > 0) {
    frame_parser_added(&parser, (size_t)count);
    return true;
  }
  if (count < 0 && errno == EINTR) return true;
  if (!is_init && (count == 0 || errno != EAGAIN)) end_serving();
  /* The port of a machine reads as at its end while no host is connected; another will come. */
  if (count == 0) end_session();
  port_readable = false;
  return done;
}

static bool write_port(void) {
  if (!port_writable || outbox_is_empty()) return false;
  long count = outbox_write(port_fd);
  if (count < 0 && errno == EINTR) return true;
  if (count < 0 && errno != EAGAIN && !is_init) end_serving();
  if (count <= 0) port_writable = false;
  return count > 0;
}

static void reap_children(void) {
  struct signalfd_siginfo ignored[8];
  while (read(children_fd, ignored, sizeof ignored) > 0) continue;
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) streams_on_child_end(pid, status);
}

static void wait_for_events(bool is_busy) {
  struct epoll_event events[EVENTS_MAX];
  int timeout = is_busy ? 0 : streams_wait_ms();
  int count = epoll_wait(loop_fd, events, EVENTS_MAX, timeout);
  for (int i = 0; i < count; i++) {
    uint64_t token = events[i].data.u64;
    if (token == TOKEN_PORT) port_readable = port_writable = true;
    else if (token == TOKEN_CHILDREN) reap_children();
    else if (relays_own_event(token)) relays_on_event(token, events[i].events);
    else streams_on_event(token, events[i].events);
  }
}

static _Noreturn void serve(void) {
  for (bool relays_first = false;; relays_first = !relays_first) {
    bool done = read_port();
    /* In turn, as who comes first may fill the outbox. While frozen the channel stays at a frame boundary. */
    bool relays_go = has_session && !is_frozen;
    if (relays_first && relays_go) done |= relays_step();
    done |= streams_step(is_frozen);
    if (!relays_first && relays_go) done |= relays_step();
    done |= write_port();
    if (!done && streams_are_none()) group_keep_spare();
    wait_for_events(done);
  }
}

static void watch(int fd, uint64_t token, uint32_t events) {
  struct epoll_event event = {.events = events, .data.u64 = token};
  if (epoll_ctl(loop_fd, EPOLL_CTL_ADD, fd, &event) != 0) end_machine("epoll");
}

static void prepare_loop(void) {
  sigset_t all, children;
  sigfillset(&all);
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  /* Init must not be ended by anything; in tests only the end of the connection ends it. */
  sigprocmask(SIG_SETMASK, is_init ? &all : &children, NULL);
  signal(SIGPIPE, SIG_IGN);
  children_fd = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
  loop_fd = epoll_create1(EPOLL_CLOEXEC);
  streams_init(loop_fd);
  relays_init(loop_fd);
  /* Edge-triggered: a port without a host would be ready all the time. */
  watch(port_fd, TOKEN_PORT, EPOLLIN | EPOLLOUT | EPOLLET);
  watch(children_fd, TOKEN_CHILDREN, EPOLLIN);
}

static int parse_arguments(int argc, char **argv, const char **cgroup) {
  int fd = -1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--serve-fd") == 0) fd = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--cgroup") == 0) *cgroup = argv[i + 1];
  }
  return fd;
}

int main(int argc, char **argv) {
  const char *cgroup = NULL;
  is_init = getpid() == 1 && argc == 1;
  if (is_init) {
    boot_machine();
    cgroup = GROUPS_FOLDER;
    port_fd = open_agent_port();
  } else {
    port_fd = parse_arguments(argc, argv, &cgroup);
    if (port_fd < 3 || fcntl(port_fd, F_SETFL, O_RDWR | O_NONBLOCK) != 0 || fcntl(port_fd, F_SETFD, FD_CLOEXEC) != 0) {
      fprintf(stderr, "usage: agent --serve-fd N [--cgroup DIR]   (N above 2, open for reading and writing)\n");
      return 2;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  if (!groups_init(cgroup, is_init ? boot_processes_max() : 0)) {
    if (is_init) end_machine(cgroup);
    perror(cgroup);
    return 2;
  }
  prepare_loop();
  serve();
}
