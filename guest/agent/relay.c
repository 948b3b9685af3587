/* Relays: see relay.h. */
#define _GNU_SOURCE
#include "relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "message.h"
#include "outbox.h"

enum { BACKLOG = 128 };
/* Tokens: this kind in the low bits, which no stream of commands uses, and an address or none for the listener. */
enum { EVENT_RELAY = 5, EVENT_MASK = 7 };

struct relay {
  struct relay *next;
  uint32_t id;
  int fd;
  bool readable, writable; /* edges that no read or write has used up yet */
  bool output_ended;       /* the program sends no more, and the host was told */
  bool input_ends;         /* the host sends no more */
  bool input_ended;        /* and the program was told */
  bool broken;
  uint32_t credit;   /* bytes the host still takes */
  uint32_t consumed; /* bytes taken from the host since the last credit */
  uint8_t *held;     /* what the socket did not take at once; NULL while there is nothing */
  size_t held_start, held_end;
};

static int epoll_fd = -1, listener = -1;
static uint16_t listening_port;
static bool listener_ready;
static struct relay *relays; /* in turn: the first is served first and then moves to the end */
static unsigned relay_count;
static uint32_t last_id;

void relays_init(int epoll) {
  epoll_fd = epoll;
}

static void watch(int fd, struct relay *relay, uint32_t events) {
  struct epoll_event event = {.events = events | EPOLLET, .data.u64 = (uint64_t)(uintptr_t)relay | EVENT_RELAY};
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* Leaving the epoll set first: a child that is not yet at its execve may still hold a copy. */
static void close_fd(int *fd) {
  if (*fd < 0) return;
  epoll_ctl(epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
  close(*fd);
  *fd = -1;
}

/* --- listening --- */

static int open_listener(uint16_t port) {
  struct sockaddr_in address = {
    .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
  };
  int yes = 1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, BACKLOG) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int relays_listen(uint16_t port) {
  if (port == listening_port) return 0;
  int fd = -1;
  if (port != 0 && (fd = open_listener(port)) < 0) return errno;
  close_fd(&listener);
  listener = fd;
  listening_port = port;
  listener_ready = false;
  if (fd >= 0) watch(fd, NULL, EPOLLIN);
  for (struct relay *relay = port == 0 ? relays : NULL; relay != NULL; relay = relay->next) relay->broken = true;
  return 0;
}

bool relays_are_listening(void) {
  return listener >= 0;
}

/* What curl, git, apt, pip, npm and most others read; Node.js needs to be told that it may. */
const char *const *relays_environment(void) {
  static char urls[4][48];
  static const char *const names[] = {"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"};
  static const char *const none[] = {NULL};
  static const char *const variables[] = {
    urls[0], urls[1], urls[2], urls[3],
    "NO_PROXY=localhost,127.0.0.1,::1", "no_proxy=localhost,127.0.0.1,::1", "NODE_USE_ENV_PROXY=1", NULL,
  };
  if (!relays_are_listening()) return none;
  for (int i = 0; i < 4; i++) snprintf(urls[i], sizeof urls[i], "%s=http://127.0.0.1:%u", names[i], listening_port);
  return variables;
}

static struct relay *find(uint32_t id) {
  struct relay *relay = relays;
  while (relay != NULL && relay->id != id) relay = relay->next;
  return relay;
}

static uint32_t choose_id(void) {
  do last_id = (last_id + 1) & ~RELAY_STREAMS;
  while (find(last_id | RELAY_STREAMS) != NULL);
  return last_id | RELAY_STREAMS;
}

static bool accept_one(void) {
  if (listener < 0 || !listener_ready || relay_count >= RELAYS_MAX || !outbox_has_room()) return false;
  int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EAGAIN) listener_ready = false;
    return errno == EINTR || errno == ECONNABORTED;
  }
  struct relay *relay = calloc(1, sizeof *relay);
  if (relay == NULL) {
    close(fd);
    return true;
  }
  *relay = (struct relay){.next = relays, .id = choose_id(), .fd = fd, .readable = true, .writable = true};
  relays = relay;
  relay_count++;
  watch(fd, relay, EPOLLIN | EPOLLOUT);
  put_u32(outbox_payload(), RELAY_WINDOW);
  outbox_add(TYPE_CONNECTED, 0, relay->id, 4);
  return true;
}

/* --- from the host --- */

/* 1: something was written, 0: the socket takes nothing now, -1: it is broken. */
static int write_some(struct relay *relay, const uint8_t *bytes, size_t count, size_t *written) {
  ssize_t result = send(relay->fd, bytes, count, MSG_NOSIGNAL);
  *written = result > 0 ? (size_t)result : 0;
  if (result >= 0 || errno == EINTR) return result > 0;
  if (errno != EAGAIN) return -1;
  relay->writable = false;
  return 0;
}

static void receive_input(struct relay *relay, const uint8_t *bytes, size_t count) {
  size_t held = relay->held_end - relay->held_start, written = 0;
  if (relay->input_ends || held + count > RELAY_WINDOW) { /* the host broke the rules */
    relay->broken = true;
    return;
  }
  if (held == 0 && relay->writable && write_some(relay, bytes, count, &written) < 0) relay->broken = true;
  relay->consumed += (uint32_t)written;
  if (written == count || relay->broken) return;
  if (relay->held == NULL && (relay->held = malloc(RELAY_WINDOW)) == NULL) {
    relay->broken = true;
    return;
  }
  memmove(relay->held, relay->held + relay->held_start, held);
  memcpy(relay->held + held, bytes + written, count - written);
  relay->held_start = 0;
  relay->held_end = held + count - written;
}

void relays_receive(const struct frame *frame) {
  struct relay *relay = find(frame->stream);
  if (relay == NULL || relay->broken) return;
  switch (frame->type) {
    case TYPE_DATA: receive_input(relay, frame->payload, frame->length); break;
    case TYPE_EOF: relay->input_ends = true; break;
    case TYPE_CLOSE: relay->broken = true; break;
    case TYPE_CREDIT: {
      uint32_t bytes = frame->length == 4 ? get_u32(frame->payload) : 0;
      relay->credit = bytes > UINT32_MAX - relay->credit ? UINT32_MAX : relay->credit + bytes;
      break;
    }
    default: break;
  }
}

static bool write_held(struct relay *relay) {
  if (relay->input_ended || !relay->writable) return false;
  if (relay->held_start == relay->held_end) {
    if (!relay->input_ends) return false;
    relay->input_ended = true;
    shutdown(relay->fd, SHUT_WR);
    return true;
  }
  size_t written;
  int result = write_some(relay, relay->held + relay->held_start, relay->held_end - relay->held_start, &written);
  if (result < 0) relay->broken = true;
  relay->consumed += (uint32_t)written;
  relay->held_start += written;
  if (relay->held_start == relay->held_end) {
    free(relay->held);
    relay->held = NULL;
    relay->held_start = relay->held_end = 0;
  }
  return result != 0;
}

static void give_credit(struct relay *relay) {
  if (relay->consumed < RELAY_WINDOW / 4 || relay->input_ends) return;
  put_u32(outbox_payload(), relay->consumed);
  outbox_add(TYPE_CREDIT, 0, relay->id, 4);
  relay->consumed = 0;
}

/* --- to the host --- */

/* Without credit nothing is read, so a host that does not take anything makes the program wait. */
static bool read_some(struct relay *relay) {
  if (relay->output_ended || !relay->readable || relay->credit == 0 || !outbox_has_room_for_data()) return false;
  size_t limit = relay->credit < FRAME_PAYLOAD_MAX ? relay->credit : FRAME_PAYLOAD_MAX;
  ssize_t count = read(relay->fd, outbox_payload(), limit);
  if (count > 0) {
    outbox_add(TYPE_DATA, 0, relay->id, (size_t)count);
    relay->credit -= (uint32_t)count;
    return true;
  }
  if (count < 0 && errno == EINTR) return true;
  if (count < 0 && errno == EAGAIN) {
    relay->readable = false;
    return false;
  }
  if (count < 0) {
    relay->broken = true;
    return true;
  }
  relay->output_ended = true;
  outbox_add(TYPE_EOF, 0, relay->id, 0);
  return true;
}

/* --- the end --- */

/* What broke off never looks complete to the program: it gets a reset, not an end of file. */
static void release(struct relay *relay) {
  struct linger at_once = {.l_onoff = 1, .l_linger = 0};
  if (relay->broken) setsockopt(relay->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close_fd(&relay->fd);
  free(relay->held);
  free(relay);
  relay_count--;
}

void relays_reset(void) {
  while (relays != NULL) {
    struct relay *relay = relays;
    relays = relay->next;
    relay->broken = true;
    release(relay);
  }
}

static bool is_over(const struct relay *relay) {
  return relay->broken || (relay->output_ended && relay->input_ended);
}

static bool step_relay(struct relay *relay) {
  if (!outbox_has_room()) return false;
  bool done = !relay->broken && write_held(relay);
  if (!relay->broken) give_credit(relay);
  done |= !relay->broken && read_some(relay);
  return done;
}

/* Says goodbye to those that are over and moves the first to the end, so that none is always served first. */
static bool turn_relays(void) {
  bool done = false;
  struct relay **link = &relays;
  while (*link != NULL) {
    struct relay *relay = *link;
    if (!is_over(relay) || !outbox_has_room()) {
      link = &relay->next;
      continue;
    }
    *link = relay->next;
    put_u32(outbox_payload(), relay->broken ? 1 : 0);
    outbox_add(TYPE_CLOSED, 0, relay->id, 4);
    release(relay);
    done = true;
  }
  if (relays == NULL || relays->next == NULL) return done;
  *link = relays;
  relays = relays->next;
  (*link)->next = NULL;
  return done;
}

bool relays_step(void) {
  bool done = accept_one();
  for (struct relay *relay = relays; relay != NULL; relay = relay->next) done |= step_relay(relay);
  done |= turn_relays();
  return done;
}

bool relays_own_event(uint64_t token) {
  return (token & EVENT_MASK) == EVENT_RELAY;
}

void relays_on_event(uint64_t token, uint32_t events) {
  struct relay *relay = (struct relay *)(uintptr_t)(token & ~(uint64_t)EVENT_MASK);
  if (relay == NULL) {
    listener_ready = true;
    return;
  }
  if (events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP)) relay->readable = true;
  if (events & (EPOLLOUT | EPOLLHUP)) relay->writable = true;
  if (events & EPOLLERR) relay->broken = true;
}
