/* Relays: connections that programs of this machine make to the agent's port on 127.0.0.1, each carried to the host
 * as a stream that the agent begins.
 *
 *   accepted --> open (both ways) --> one way ended --> both ended, all written --> gone (CLOSED)
 *                  |                     |
 *                  +---------------------+--> broken off: reset, gone (CLOSED)
 *
 * Owns: the listening socket, credit both ways, half-closed connections. Does not own: what travels in them. The
 * listening is memory of the agent and so survives a restore; the connections end with the session that carried them. */
#ifndef KOSA8_RELAY_H
#define KOSA8_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame.h"

enum {
  RELAYS_MAX = 256,            /* at a time; more wait in the kernel's queue */
  RELAY_WINDOW = 64 * 1024,    /* bytes the host may send ahead, per connection */
};

/* Stream numbers from here on are the agent's; those below are the host's. */
#define RELAY_STREAMS 0x80000000u

void relays_init(int epoll_fd);
/* Listens on 127.0.0.1 at this port; port 0: no longer, and what is open is reset. Returns 0 or an errno. */
int relays_listen(uint16_t port);
bool relays_are_listening(void);
/* Variables by which commands find the port, NULL-terminated; empty when there is none. */
const char *const *relays_environment(void);
/* A frame of a stream the agent began; dropped when that is gone. */
void relays_receive(const struct frame *frame);
/* The session has ended: what it carried is reset. */
void relays_reset(void);
bool relays_own_event(uint64_t token);
void relays_on_event(uint64_t token, uint32_t events);
/* Does what can be done without waiting, each connection a little in turn; true if anything was done. */
bool relays_step(void);

#endif
