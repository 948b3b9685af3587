/* Applets: see applet.h. One process runs one applet, so what it has open is kept in file variables. */
#define _GNU_SOURCE
#include "applet.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account.h"
#include "system.h"

enum { COPY_BUFFER = 64 * 1024, LIST_DEPTH_MAX = 128, LIST_PATH_MAX = 4096 };

struct applet {
  const char *name;
  int argc; /* the applet's name included */
  const char *(*open)(const char **argv);
  int (*run)(void);
};

static char copy_buffer[COPY_BUFFER];

static int fail(const char *step) {
  dprintf(STDERR_FILENO, "%s: %s\n", step, strerror(errno));
  return 1;
}

/* --- @get PATH BYTES_MAX: a regular file to standard output --- */

static int get_fd;
static uint64_t get_bytes_max;

static const char *get_open(const char **argv) {
  struct stat stat;
  get_bytes_max = strtoull(argv[2], NULL, 10);
  /* O_NONBLOCK: opening a FIFO nobody writes to would wait for ever. */
  get_fd = open_without_links(AT_FDCWD, argv[1], O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (get_fd < 0) return "open";
  if (fstat(get_fd, &stat) != 0) return "stat";
  if (!S_ISREG(stat.st_mode)) {
    errno = S_ISDIR(stat.st_mode) ? EISDIR : EINVAL;
    return "not a regular file";
  }
  if ((uint64_t)stat.st_size > get_bytes_max) {
    errno = EFBIG;
    return "size";
  }
  return NULL;
}

static int get_run(void) {
  uint64_t sent = 0;
  for (;;) {
    ssize_t count = read(get_fd, copy_buffer, sizeof copy_buffer);
    if (count < 0) return fail("read");
    if (count == 0) return 0;
    sent += (uint64_t)count;
    if (sent > get_bytes_max) {
      errno = EFBIG;
      return fail("size");
    }
    if (!write_all(STDOUT_FILENO, copy_buffer, (size_t)count)) return fail("write");
  }
}

/* --- @put PATH MODE USER: standard input to a file, in place at the end or not at all --- */

static int put_folder, put_fd;
static mode_t put_mode;
static char put_name[256], put_temporary[300];

/* A killed transfer leaves no temporary file behind. */
static void put_abandon(int signal) {
  (void)signal;
  unlinkat(put_folder, put_temporary, 0);
  _exit(1);
}

/* Enters the next folder of the path, making it for this owner if it is missing. */
static int enter_folder(int folder, const char *name, const struct account *owner) {
  int next = open_without_links(folder, name, O_PATH | O_DIRECTORY);
  if (next < 0 && errno == ENOENT) {
    if (mkdirat(folder, name, 0755) != 0 && errno != EEXIST) return -1;
    if (fchownat(folder, name, owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) != 0) return -1;
    next = open_without_links(folder, name, O_PATH | O_DIRECTORY);
  }
  return next;
}

static int open_parent(const char *path, const struct account *owner) {
  int folder = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  for (const char *at = path + 1; folder >= 0;) {
    size_t length = strcspn(at, "/");
    if (length >= sizeof put_name) {
      errno = ENAMETOOLONG;
      return -1;
    }
    memcpy(put_name, at, length);
    put_name[length] = 0;
    if (strcmp(put_name, "..") == 0 || (at[length] == 0 && (length == 0 || strcmp(put_name, ".") == 0))) {
      errno = EINVAL;
      return -1;
    }
    if (at[length] == 0) return folder; /* the last part is the file's own name */
    at += length + 1;
    if (length == 0) continue;
    int next = enter_folder(folder, put_name, owner);
    close(folder);
    folder = next;
  }
  return -1;
}

static const char *put_open(const char **argv) {
  struct account owner;
  put_mode = (mode_t)strtoul(argv[2], NULL, 8) & 07777;
  errno = ENOENT;
  if (!find_account(argv[3], &owner)) return "user";
  errno = EINVAL;
  if (argv[1][0] != '/') return "absolute path";
  put_folder = open_parent(argv[1], &owner);
  if (put_folder < 0) return "folder";
  snprintf(put_temporary, sizeof put_temporary, ".%.200s.kosa8-%d", put_name, (int)getpid());
  put_fd = openat(put_folder, put_temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (put_fd < 0) return "create";
  signal(SIGTERM, put_abandon);
  if (fchown(put_fd, owner.uid, owner.gid) != 0 || fchmod(put_fd, put_mode) != 0) {
    int error = errno;
    unlinkat(put_folder, put_temporary, 0);
    errno = error;
    return "owner and mode";
  }
  return NULL;
}

static int put_run(void) {
  const char *failed = NULL;
  for (ssize_t count; failed == NULL;) {
    count = read(STDIN_FILENO, copy_buffer, sizeof copy_buffer);
    if (count == 0) break;
    if (count < 0) failed = "read";
    else if (!write_all(put_fd, copy_buffer, (size_t)count)) failed = "write";
  }
  if (failed == NULL && close(put_fd) != 0) failed = "close";
  if (failed == NULL && renameat(put_folder, put_temporary, put_folder, put_name) != 0) failed = "rename";
  if (failed == NULL) return 0;
  fail(failed);
  unlinkat(put_folder, put_temporary, 0);
  return 1;
}

/* --- @list ROOT ENTRIES_MAX: NUL-terminated records "<kind> <size> <path below ROOT>" --- */

static int list_fd;
static unsigned long list_left;
static FILE *list_out;
static char list_path[LIST_PATH_MAX];

static const char *list_open(const char **argv) {
  list_left = strtoul(argv[2], NULL, 10);
  list_fd = open_without_links(AT_FDCWD, argv[1], O_RDONLY | O_DIRECTORY | O_NONBLOCK);
  return list_fd < 0 ? "open" : NULL;
}

static void list_record(char kind, off_t size, const char *path) {
  fprintf(list_out, "%c %lld %s%c", kind, (long long)size, path, 0);
}

static bool is_entered(const char *name) {
  return strcmp(name, ".git") != 0 && strcmp(name, "node_modules") != 0;
}

/* Lists the folder `fd` (and closes it); its path is the first `length` bytes of list_path. False
 * when the limit was reached. A folder that cannot be read or is too deep counts as reaching it: a
 * part that was not seen must not pass for an empty one. */
static bool list_folder(int fd, size_t length, int depth) {
  DIR *folder = depth > LIST_DEPTH_MAX ? NULL : fdopendir(fd);
  if (folder == NULL) {
    close(fd);
    return false;
  }
  bool complete = true;
  for (struct dirent *entry; complete && (entry = readdir(folder)) != NULL;) {
    const char *name = entry->d_name;
    struct stat stat;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    size_t added = (size_t)snprintf(list_path + length, LIST_PATH_MAX - length, "%s%s", length > 0 ? "/" : "", name);
    if (list_left == 0 || added >= LIST_PATH_MAX - length) {
      complete = false;
      break;
    }
    if (fstatat(dirfd(folder), name, &stat, AT_SYMLINK_NOFOLLOW) != 0) continue; /* just deleted */
    list_left--;
    mode_t kind = stat.st_mode & S_IFMT;
    list_record(kind == S_IFREG ? 'f' : kind == S_IFDIR ? 'd' : kind == S_IFLNK ? 'l' : 'o', stat.st_size, list_path);
    if (kind != S_IFDIR || !is_entered(name)) continue;
    int below = openat(dirfd(folder), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (below < 0 && errno == ENOENT) continue;
    complete = below >= 0 && list_folder(below, length + added, depth + 1);
  }
  closedir(folder);
  return complete;
}

static int list_run(void) {
  list_out = fdopen(STDOUT_FILENO, "w");
  if (list_out == NULL) return fail("output");
  if (!list_folder(list_fd, 0, 0)) list_record('t', 0, "");
  return fflush(list_out) == 0 ? 0 : fail("write");
}

static const struct applet applets[] = {
  {"@get", 3, get_open, get_run},
  {"@put", 4, put_open, put_run},
  {"@list", 3, list_open, list_run},
};

const struct applet *find_applet(const char *name) {
  for (size_t i = 0; i < sizeof applets / sizeof *applets; i++) {
    if (strcmp(applets[i].name, name) == 0) return &applets[i];
  }
  return NULL;
}

const char *applet_open(const struct applet *applet, int argc, const char **argv) {
  errno = EINVAL;
  return argc == applet->argc ? applet->open(argv) : "arguments";
}

int applet_run(const struct applet *applet) {
  return applet->run();
}
