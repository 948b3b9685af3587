/* Clock: the machine's time of day. It stands still while the machine does; this puts it right again. */
#ifndef KOSA8_CLOCK_H
#define KOSA8_CLOCK_H

#include <stdint.h>

/* Sets the time of day; 0 or errno. */
uint32_t clock_set(uint64_t realtime_ns);

/* Remembers what host and guest take for the time at the beginning of a standstill. */
void clock_note(uint64_t host_ns);

/* Moves the guest's clock on by what it missed since clock_note, and never back. A clock that somebody
 * has set apart from the host's stays apart by the same. */
void clock_catch_up(uint64_t host_ns);

#endif
