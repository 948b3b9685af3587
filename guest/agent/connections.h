/* Connections: those to the outside that a restored machine still holds, though nobody is at the other end. */
#ifndef KOSA8_CONNECTIONS_H
#define KOSA8_CONNECTIONS_H

/* Aborts every TCP connection that leaves the machine: whoever waits on one is told now, instead of
 * waiting for ever. Those within the machine stay. Does what it can; without tcp_diag, nothing. */
void connections_abort_outside(void);

#endif
