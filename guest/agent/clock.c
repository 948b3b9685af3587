/* Clock: see clock.h. */
#include "clock.h"

#include <errno.h>
#include <stdbool.h>
#include <time.h>

enum { NS_PER_S = 1000000000 };

static bool is_noted;
static uint64_t noted_host_ns, noted_guest_ns;

static uint64_t read_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint32_t clock_set(uint64_t realtime_ns) {
  struct timespec now = {.tv_sec = (time_t)(realtime_ns / NS_PER_S), .tv_nsec = (long)(realtime_ns % NS_PER_S)};
  if (clock_settime(CLOCK_REALTIME, &now) == 0) return 0;
  return (uint32_t)(errno != 0 ? errno : EIO);
}

void clock_note(uint64_t host_ns) {
  noted_host_ns = host_ns;
  noted_guest_ns = read_clock();
  is_noted = true;
}

void clock_catch_up(uint64_t host_ns) {
  if (!is_noted) return;
  is_noted = false;
  uint64_t due_ns = noted_guest_ns + (host_ns - noted_host_ns);
  if (host_ns > noted_host_ns && due_ns > read_clock()) clock_set(due_ns);
}
