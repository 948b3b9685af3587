/* Streams: see stream.h. */
#define _GNU_SOURCE
#include "stream.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "group.h"
#include "outbox.h"
#include "process.h"
#include "relay.h"
#include "system.h"

enum { CLOSE_LIMIT_MS = 5000, CLOSE_POLL_MS = 20, COMM_MAX = 16, PF_EXITING = 4 };

/* Which descriptor of a stream an event is about; fits into the low bits of its address. */
enum { EVENT_STATUS = 1, EVENT_STDOUT = 2, EVENT_STDERR = 3, EVENT_STDIN = 4, EVENT_MASK = 7 };

struct channel {
  int fd;
  bool ready;
  uint32_t credit;
};

struct stream {
  struct stream *next;
  uint32_t id; /* 0: detached */
  struct process process;
  bool status_ready, started, exited, exit_sent, terminal;
  int status; /* as from waitpid */
  struct channel out[2];
  bool stdin_ready, stdin_ends;
  uint8_t *input;
  size_t input_start, input_end;
  uint32_t input_consumed; /* since the last credit */
  bool closing, draining, recheck, all_gone, finished;
  int64_t close_deadline;
  uint32_t leftover_count;
  struct {
    pid_t pid;
    char comm[COMM_MAX + 1];
  } leftovers[LEFTOVERS_MAX];
};

static int epoll_fd = -1;
static struct stream *streams; /* in turn: the first is served first and then moves to the end */
static unsigned attached_count, total_count;

void streams_init(int epoll) {
  epoll_fd = epoll;
}

struct stream *stream_find(uint32_t id) {
  struct stream *stream = id == 0 ? NULL : streams;
  while (stream != NULL && stream->id != id) stream = stream->next;
  return stream;
}

static void watch(struct stream *stream, int fd, unsigned kind, uint32_t events) {
  struct epoll_event event = {.events = events | EPOLLET, .data.u64 = (uint64_t)(uintptr_t)stream | kind};
  if (fd >= 0) epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* Leaving the epoll set first: a child that is not yet at its execve may still hold a copy of the
 * descriptor, and with it the registration and the address of a stream that is gone. */
static void close_fd(int *fd) {
  if (*fd < 0) return;
  epoll_ctl(epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
  close(*fd);
  *fd = -1;
}

static void add_number(uint8_t type, uint8_t flags, uint32_t id, uint32_t number) {
  put_u32(outbox_payload(), number);
  outbox_add(type, flags, id, 4);
}

void stream_refuse(uint32_t id, int error, const char *step) {
  uint8_t *payload = outbox_payload();
  size_t length = strlen(step) + 1;
  put_u32(payload, (uint32_t)error);
  put_u32(payload + 4, (uint32_t)length);
  memcpy(payload + 8, step, length);
  outbox_add(TYPE_START_FAILED, 0, id, 8 + length);
}

static struct stream *create_stream(uint32_t id, const struct exec_request *request, const struct process *process) {
  struct stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) return NULL;
  stream->id = id;
  stream->process = *process;
  stream->terminal = (request->flags & EXEC_PTY) != 0;
  for (int i = 0; i < 2; i++) stream->out[i] = (struct channel){process->output_fd[i], true, request->credit[i]};
  stream->stdin_ready = true;
  stream->status_ready = true;
  if (process->stdin_fd >= 0 && (stream->input = malloc(STDIN_WINDOW)) == NULL) {
    free(stream);
    return NULL;
  }
  stream->next = streams;
  streams = stream;
  attached_count++;
  total_count++;
  return stream;
}

void stream_open(uint32_t id, const struct exec_request *request) {
  struct process process;
  struct start_failure failure;
  if (id == 0 || id >= RELAY_STREAMS || stream_find(id) != NULL) return stream_refuse(id, EEXIST, "stream number");
  if (attached_count >= STREAMS_MAX || total_count >= STREAMS_TOTAL_MAX) return stream_refuse(id, EAGAIN, "too many commands");
  if (!start_process(request, &process, &failure)) return stream_refuse(id, failure.error, failure.step);
  struct stream *stream = create_stream(id, request, &process);
  if (stream == NULL) {
    group_signal(&process.group, SIGKILL);
    close(process.status_fd);
    close_fd(&process.stdin_fd);
    close_fd(&process.output_fd[0]);
    close_fd(&process.output_fd[1]);
    return stream_refuse(id, ENOMEM, "memory");
  }
  watch(stream, process.status_fd, EVENT_STATUS, EPOLLIN);
  watch(stream, process.output_fd[0], EVENT_STDOUT, EPOLLIN);
  watch(stream, process.output_fd[1], EVENT_STDERR, EPOLLIN);
  watch(stream, process.stdin_fd, EVENT_STDIN, EPOLLOUT);
}

/* --- input --- */

static void drop_input(struct stream *stream) {
  close_fd(&stream->process.stdin_fd);
  stream->input_consumed += (uint32_t)(stream->input_end - stream->input_start);
  stream->input_start = stream->input_end = 0;
}

void stream_input(struct stream *stream, const uint8_t *bytes, size_t count) {
  if (stream->process.stdin_fd < 0) { /* closed by the command: swallowed, as a host may not wait for it */
    stream->input_consumed += (uint32_t)count;
    return;
  }
  size_t held = stream->input_end - stream->input_start;
  if (stream->input == NULL || held + count > STDIN_WINDOW || stream->stdin_ends) {
    group_signal(&stream->process.group, SIGKILL); /* the host broke the rules; part of the input is lost */
    return;
  }
  if (stream->input_end + count > STDIN_WINDOW) {
    memmove(stream->input, stream->input + stream->input_start, held);
    stream->input_start = 0;
    stream->input_end = held;
  }
  memcpy(stream->input + stream->input_end, bytes, count);
  stream->input_end += count;
}

void stream_input_end(struct stream *stream) {
  stream->stdin_ends = true;
}

/* A terminal has no end of file; its line discipline makes one from this character. */
static void end_input(struct stream *stream) {
  if (stream->terminal && write(stream->process.stdin_fd, "\x04", 1) < 0 && errno == EAGAIN) {
    stream->stdin_ready = false;
    return;
  }
  close_fd(&stream->process.stdin_fd);
}

static bool write_input(struct stream *stream) {
  if (stream->process.stdin_fd < 0 || !stream->stdin_ready) return false;
  size_t held = stream->input_end - stream->input_start;
  if (held == 0) {
    if (!stream->stdin_ends) return false;
    end_input(stream);
    return true;
  }
  ssize_t count = write(stream->process.stdin_fd, stream->input + stream->input_start, held);
  if (count < 0 && errno == EAGAIN) {
    stream->stdin_ready = false;
    return false;
  }
  if (count < 0) {
    drop_input(stream);
    return true;
  }
  stream->input_start += (size_t)count;
  stream->input_consumed += (uint32_t)count;
  return true;
}

static void give_credit(struct stream *stream) {
  if (stream->id == 0 || stream->input_consumed < STDIN_WINDOW / 4) return;
  add_number(TYPE_CREDIT, 0, stream->id, stream->input_consumed);
  stream->input_consumed = 0;
}

/* --- output --- */

void stream_credit(struct stream *stream, unsigned channel, uint32_t bytes) {
  if (channel < 1 || channel > 2) return;
  uint32_t *credit = &stream->out[channel - 1].credit;
  *credit = bytes > UINT32_MAX - *credit ? UINT32_MAX : *credit + bytes;
}

static void end_channel(struct stream *stream, int index) {
  close_fd(&stream->out[index].fd);
  if (stream->id != 0) outbox_add(TYPE_EOF, (uint8_t)(index + 1), stream->id, 0);
}

static bool discard_output(struct channel *channel) {
  static uint8_t nowhere[64 * 1024];
  ssize_t count = read(channel->fd, nowhere, sizeof nowhere);
  if (count > 0) return true;
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) channel->ready = errno == EINTR;
  else close_fd(&channel->fd);
  return false;
}

static bool pump_channel(struct stream *stream, int index) {
  struct channel *channel = &stream->out[index];
  if (channel->fd < 0) return false;
  if (stream->id == 0) return channel->ready && discard_output(channel);
  if ((!stream->started && !stream->draining) || !outbox_has_room_for_data()) return false;
  if (channel->ready && channel->credit > 0) {
    size_t limit = channel->credit < FRAME_PAYLOAD_MAX ? channel->credit : FRAME_PAYLOAD_MAX;
    uint8_t *payload = outbox_payload();
    ssize_t count = read(channel->fd, payload, limit);
    if (count > 0) {
      outbox_add(TYPE_DATA, (uint8_t)(index + 1), stream->id, (size_t)count);
      channel->credit -= (uint32_t)count;
      return true;
    }
    if (count < 0 && errno == EINTR) return true;
    if (count < 0 && errno == EAGAIN) channel->ready = false;
    else { /* end of file; EIO from a terminal that nobody has open */
      end_channel(stream, index);
      return true;
    }
  }
  if (!stream->draining) return false;
  end_channel(stream, index);
  return true;
}

/* --- start and end --- */

static void close_descriptors(struct stream *stream) {
  close_fd(&stream->process.status_fd);
  close_fd(&stream->process.stdin_fd);
  close_fd(&stream->out[0].fd);
  close_fd(&stream->out[1].fd);
}

static void detach(struct stream *stream) {
  if (stream->id == 0) return;
  stream->id = 0;
  stream->recheck = true;
  attached_count--;
}

static bool read_start(struct stream *stream) {
  struct start_failure failure;
  if (stream->process.status_fd < 0 || !stream->status_ready) return false;
  ssize_t count = read(stream->process.status_fd, &failure, sizeof failure);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    stream->status_ready = errno == EINTR;
    return stream->status_ready;
  }
  if (count == (ssize_t)sizeof failure) {
    failure.step[sizeof failure.step - 1] = 0;
    if (stream->id != 0) stream_refuse(stream->id, failure.error, failure.step);
    close_descriptors(stream);
    detach(stream);
    return true;
  }
  close_fd(&stream->process.status_fd);
  stream->started = true;
  if (stream->id != 0) add_number(TYPE_STARTED, 0, stream->id, (uint32_t)stream->process.pid);
  /* A terminal has one output only. */
  if (stream->id != 0 && stream->terminal) outbox_add(TYPE_EOF, 2, stream->id, 0);
  return true;
}

static void send_exit(struct stream *stream) {
  uint8_t *payload = outbox_payload();
  bool signalled = WIFSIGNALED(stream->status);
  put_u32(payload, signalled ? 0 : (uint32_t)WEXITSTATUS(stream->status));
  put_u32(payload + 4, signalled ? (uint32_t)WTERMSIG(stream->status) : 0);
  outbox_add(TYPE_EXIT, 0, stream->id, 8);
  stream->exit_sent = true;
}

void stream_signal(struct stream *stream, int signal) {
  int error = signal < 1 || signal > 64 ? EINVAL : group_signal(&stream->process.group, signal);
  add_number(TYPE_DONE, 0, stream->id, (uint32_t)error);
}

void stream_resize(struct stream *stream, uint16_t rows, uint16_t columns) {
  struct winsize size = {.ws_row = rows, .ws_col = columns};
  bool done = stream->terminal && ioctl(stream->out[0].fd, TIOCSWINSZ, &size) == 0;
  add_number(TYPE_DONE, 0, stream->id, done ? 0 : (uint32_t)ENOTTY);
}

/* A process that is already on its way out (PF_EXITING) has closed its pipes, so a host that waited for
 * their end would still find it here: it is not left over. */
static bool is_ending(const char *after_comm) {
  unsigned long flags = 0;
  return sscanf(after_comm, ") %*c %*d %*d %*d %*d %*d %lu", &flags) != 1 || (flags & PF_EXITING) != 0;
}

static void note_leftover(pid_t pid, void *context) {
  struct stream *stream = context;
  char path[32], stat[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  if (!read_file_at(-1, path, stat, sizeof stat)) return; /* it has just ended */
  char *comm = strchr(stat, '('), *end = strrchr(stat, ')');
  if (comm == NULL || end == NULL || is_ending(end)) return;
  *end = 0;
  stream->leftovers[stream->leftover_count].pid = pid;
  snprintf(stream->leftovers[stream->leftover_count].comm, COMM_MAX + 1, "%.*s", COMM_MAX, comm + 1);
  stream->leftover_count++;
}

void stream_close(struct stream *stream) {
  if (stream->closing) return;
  if (!stream->exited || !group_is_empty(&stream->process.group)) {
    group_visit(&stream->process.group, LEFTOVERS_MAX, note_leftover, stream);
    group_signal(&stream->process.group, SIGKILL);
  }
  drop_input(stream);
  stream->closing = true;
  stream->recheck = true;
  stream->close_deadline = monotonic_ms() + CLOSE_LIMIT_MS;
}

static void send_closed(struct stream *stream) {
  uint8_t *payload = outbox_payload();
  size_t length = 8;
  put_u32(payload, stream->all_gone ? 1 : 0);
  put_u32(payload + 4, stream->leftover_count);
  for (uint32_t i = 0; i < stream->leftover_count; i++) {
    size_t size = strlen(stream->leftovers[i].comm) + 1;
    put_u32(payload + length, (uint32_t)stream->leftovers[i].pid);
    put_u32(payload + length + 4, (uint32_t)size);
    memcpy(payload + length + 8, stream->leftovers[i].comm, size);
    length += 8 + size;
  }
  outbox_add(TYPE_CLOSED, 0, stream->id, length);
}

void stream_release(struct stream *stream) {
  if (stream->closing) return;
  drop_input(stream);
  stream->all_gone = true; /* of those the host still has to do with */
  send_closed(stream);
  detach(stream);
}

/* First everybody must be gone, then what they left in the pipes is sent as far as there is credit
 * for it, and the answer comes last. */
static bool step_close(struct stream *stream) {
  if (!stream->draining) {
    bool late = monotonic_ms() >= stream->close_deadline;
    if (!stream->recheck && !late) return false;
    stream->recheck = false;
    stream->all_gone = stream->exited && group_is_empty(&stream->process.group);
    if (!stream->all_gone && !late) return false;
    stream->draining = true;
    stream->out[0].ready = stream->out[1].ready = true;
    return true;
  }
  if (stream->out[0].fd >= 0 || stream->out[1].fd >= 0) return false;
  send_closed(stream);
  detach(stream);
  return true;
}

static bool step_detached(struct stream *stream) {
  if (!stream->recheck) return false;
  stream->recheck = false;
  stream->finished = stream->exited && group_remove(&stream->process.group);
  return stream->finished;
}

static bool step_stream(struct stream *stream, bool frozen) {
  if (!outbox_has_room()) return false;
  /* A group is removed in the step after its last frame: the host does not wait for that. */
  if (stream->id == 0 && outbox_is_empty() && step_detached(stream)) return true;
  bool done = read_start(stream);
  done |= write_input(stream);
  give_credit(stream);
  if (!frozen || stream->draining) {
    done |= pump_channel(stream, 0);
    done |= pump_channel(stream, 1);
  }
  if (stream->id != 0 && stream->exited && stream->started && !stream->exit_sent) send_exit(stream);
  if (stream->id != 0 && stream->closing) done |= step_close(stream);
  return done;
}

/* Frees finished streams and moves the first to the end, so that none is always served first. */
static void turn_streams(void) {
  struct stream **link = &streams;
  while (*link != NULL) {
    struct stream *stream = *link;
    if (!stream->finished) {
      link = &stream->next;
      continue;
    }
    *link = stream->next;
    close_descriptors(stream);
    free(stream->input);
    free(stream);
    total_count--;
  }
  if (streams == NULL || streams->next == NULL) return;
  *link = streams;
  streams = streams->next;
  (*link)->next = NULL;
}

bool streams_step(bool frozen) {
  bool done = false;
  for (struct stream *stream = streams; stream != NULL; stream = stream->next) done |= step_stream(stream, frozen);
  turn_streams();
  return done;
}

bool streams_are_none(void) {
  return streams == NULL;
}

int streams_wait_ms(void) {
  for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
    if (!stream->closing || stream->draining) continue;
    stream->recheck = true;
    return CLOSE_POLL_MS;
  }
  return -1;
}

/* Input that breaks off without its end never looks complete: the pipe stays open, and a transfer
 * that can no longer be completed is ended. */
void streams_detach(void) {
  for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
    if (stream->id != 0 && stream->process.is_applet) group_signal(&stream->process.group, SIGTERM);
    detach(stream);
  }
}

void streams_on_event(uint64_t token, uint32_t events) {
  struct stream *stream = (struct stream *)(uintptr_t)(token & ~(uint64_t)EVENT_MASK);
  (void)events;
  switch (token & EVENT_MASK) {
    case EVENT_STATUS: stream->status_ready = true; break;
    case EVENT_STDOUT: stream->out[0].ready = true; break;
    case EVENT_STDERR: stream->out[1].ready = true; break;
    case EVENT_STDIN: stream->stdin_ready = true; break;
    default: break;
  }
}

void streams_on_child_end(pid_t pid, int status) {
  for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
    stream->recheck = true;
    if (stream->process.pid != pid || stream->exited) continue;
    stream->exited = true;
    stream->status = status;
    stream->status_ready = true; /* a child killed before execve has closed its end */
  }
}

void streams_kill_all(void) {
  for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
    group_signal(&stream->process.group, SIGKILL);
  }
}
