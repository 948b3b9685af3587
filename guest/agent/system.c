/* Helpers around system calls: see system.h. */
#define _GNU_SOURCE
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t monotonic_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool write_file_at(int folder, const char *path, const char *text) {
  int fd = openat(folder, path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool written = write_all(fd, text, strlen(text));
  int error = errno;
  close(fd);
  errno = error;
  return written;
}

bool read_file_at(int folder, const char *path, char *text, size_t size) {
  int fd = openat(folder, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t count = read(fd, text, size - 1);
  text[count < 0 ? 0 : count] = 0;
  close(fd);
  return count >= 0;
}

bool write_all(int fd, const void *bytes, size_t count) {
  const char *at = bytes;
  while (count > 0) {
    ssize_t written = write(fd, at, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    at += written;
    count -= (size_t)written;
  }
  return true;
}

bool replace_file(const char *path, const char *text, mode_t mode) {
  char temporary[256];
  if ((size_t)snprintf(temporary, sizeof temporary, "%s.kosa8", path) >= sizeof temporary) {
    errno = ENAMETOOLONG;
    return false;
  }
  unlink(temporary);
  int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (fd < 0) return false;
  bool done = write_all(fd, text, strlen(text)) && fchmod(fd, mode) == 0;
  int error = errno;
  close(fd);
  if (done) {
    done = rename(temporary, path) == 0;
    error = errno;
  }
  if (!done) unlink(temporary);
  errno = error;
  return done;
}

int open_without_links(int folder, const char *path, int flags) {
  struct open_how how = {
    .flags = (uint64_t)(flags | O_CLOEXEC),
    .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
  };
  return (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
}
