/* Connections: see connections.h. */
#define _GNU_SOURCE
#include "connections.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of include/net/tcp_states.h: all but TIME_WAIT (6), CLOSE (7) and LISTEN (10). */
enum { OPEN_STATES = 0xfff & ~(1 << 0 | 1 << 6 | 1 << 7 | 1 << 10) };
/* A listing that is changed while it is read may miss some: it is read again while it finds any. */
enum { PASSES_MAX = 8, REPLY_BYTES = 16 * 1024 };

struct diag_request {
  struct nlmsghdr header;
  struct inet_diag_req_v2 body;
};

static bool send_request(int fd, uint16_t type, uint16_t flags, const struct inet_diag_req_v2 *body) {
  struct diag_request request = {
    .header = {.nlmsg_len = sizeof request, .nlmsg_type = type, .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags)},
    .body = *body,
  };
  return send(fd, &request, sizeof request, 0) == (ssize_t)sizeof request;
}

/* To loopback, or from an address of ours to the same. */
static bool is_inside(const struct inet_diag_msg *found) {
  const struct inet_diag_sockid *id = &found->id;
  if (memcmp(id->idiag_src, id->idiag_dst, sizeof id->idiag_dst) == 0) return true;
  if (found->idiag_family == AF_INET) return ntohl(id->idiag_dst[0]) >> 24 == IN_LOOPBACKNET;
  const struct in6_addr *peer = (const struct in6_addr *)id->idiag_dst;
  return IN6_IS_ADDR_LOOPBACK(peer) || (IN6_IS_ADDR_V4MAPPED(peer) && peer->s6_addr[12] == IN_LOOPBACKNET);
}

static void abort_connection(int fd, const struct inet_diag_msg *found) {
  struct inet_diag_req_v2 body = {
    .sdiag_family = found->idiag_family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = OPEN_STATES, .id = found->id,
  };
  send_request(fd, SOCK_DESTROY, 0, &body);
}

/* True when the listing goes on in the next message. */
static bool abort_listed(int fd, const struct nlmsghdr *header, long left, int *aborted) {
  for (; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
    if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR) return false;
    if (header->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg))) continue;
    const struct inet_diag_msg *found = NLMSG_DATA(header);
    if (is_inside(found)) continue;
    abort_connection(fd, found);
    ++*aborted;
  }
  return true;
}

static int abort_family(uint8_t family, int listing, int aborting) {
  int aborted = 0;
  _Alignas(struct nlmsghdr) uint8_t reply[REPLY_BYTES];
  struct inet_diag_req_v2 body = {.sdiag_family = family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = OPEN_STATES};
  if (!send_request(listing, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &body)) return 0;
  ssize_t count;
  do count = recv(listing, reply, sizeof reply, MSG_DONTWAIT);
  while (count > 0 && abort_listed(aborting, (const struct nlmsghdr *)reply, count, &aborted));
  return aborted;
}

void connections_abort_outside(void) {
  /* The kernel answers within the call: there is nothing to wait for. */
  int listing = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  int aborting = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (listing >= 0 && aborting >= 0) {
    int pass = 0;
    while (pass++ < PASSES_MAX && abort_family(AF_INET, listing, aborting) + abort_family(AF_INET6, listing, aborting) > 0);
  }
  if (listing >= 0) close(listing);
  if (aborting >= 0) close(aborting);
}
