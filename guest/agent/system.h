/* Small helpers around system calls that more than one part of the agent needs. */
#ifndef KOSA8_SYSTEM_H
#define KOSA8_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int64_t monotonic_ms(void);
/* Writes the text into an existing file (of /proc, /sys or a cgroup). False with errno set. */
bool write_file_at(int folder, const char *path, const char *text);
/* Reads a short file as text; false when it cannot be opened. */
bool read_file_at(int folder, const char *path, char *text, size_t size);
/* Writes everything to a blocking descriptor; false with errno set. */
bool write_all(int fd, const void *bytes, size_t count);
/* Replaces a file in one step, whatever it was before. False with errno set. */
bool replace_file(const char *path, const char *text, mode_t mode);
/* openat2 that follows no link in any part of the path. */
int open_without_links(int folder, const char *path, int flags);

#endif
