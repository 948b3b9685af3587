/* Identity: see identity.h. */
#define _GNU_SOURCE
#include "identity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "boot.h"
#include "connections.h"
#include "group.h"
#include "process.h"
#include "system.h"

enum { HOOK_LIMIT_MS = 2000, THAW_LIMIT_MS = 2000 };

static const char HOOK[] = "/etc/kosa8/on-clone";
static const char HOOK_GROUP[] = "/sys/fs/cgroup/kosa8-hook";

/* What tells a machine's name lies in memory and is open from the boot on: a restored machine writes a few
 * bytes, and its disk is not touched. */
enum identity_file { FILE_HOSTNAME, FILE_MACHINE_ID, FILE_CLONE_ID, FILE_COUNT };

static struct {
  const char *path;
  mode_t mode;
  const char *shown_at; /* where everybody looks for it; NULL: at its path */
  int fd;
} files[FILE_COUNT] = {
  {"/run/kosa8/hostname", 0644, "/etc/hostname", -1},
  {"/run/kosa8/machine-id", 0444, "/etc/machine-id", -1},
  {"/run/kosa8/clone-id", 0444, NULL, -1},
};
static int random_fd = -1;

static bool open_file(enum identity_file file) {
  files[file].fd = open(files[file].path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, files[file].mode);
  return files[file].fd >= 0 && fchmod(files[file].fd, files[file].mode) == 0;
}

/* Whatever was there before: an image may have a link or nothing at that place. */
static bool show_file(enum identity_file file) {
  const char *place = files[file].shown_at;
  struct stat stat;
  if (lstat(place, &stat) != 0 || !S_ISREG(stat.st_mode)) {
    unlink(place);
    int fd = open(place, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, files[file].mode);
    if (fd < 0) return false;
    close(fd);
  }
  return mount(files[file].path, place, NULL, MS_BIND, NULL) == 0;
}

const char *prepare_identity(void) {
  for (int file = 0; file < FILE_COUNT; file++) {
    if (!open_file(file)) return files[file].path;
    if (files[file].shown_at != NULL && !show_file(file)) return files[file].shown_at;
  }
  random_fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
  return random_fd < 0 ? "/dev/urandom" : NULL;
}

static bool rewrite(enum identity_file file, const char *line) {
  struct stat stat;
  off_t length = (off_t)strlen(line);
  if (fstat(files[file].fd, &stat) != 0) return false;
  bool written = pwrite(files[file].fd, line, (size_t)length, 0) == length &&
                 (stat.st_size <= length || ftruncate(files[file].fd, length) == 0);
  /* Somebody removed it: where it is mounted it is still seen, at its path there is to be one again. */
  return written && (stat.st_nlink > 0 || replace_file(files[file].path, line, files[file].mode));
}

static uint32_t error_of(bool done) {
  return done ? 0 : (uint32_t)(errno != 0 ? errno : EIO);
}

/* New entropy alone is mixed in at some later reseed; until then all clones draw the same numbers. */
static void reseed(const uint8_t *entropy, uint32_t *added, uint32_t *reseeded) {
  struct {
    struct rand_pool_info header;
    uint8_t bytes[ENTROPY_BYTES];
  } pool = {.header = {.entropy_count = ENTROPY_BYTES * 8, .buf_size = ENTROPY_BYTES}};
  memcpy(pool.header.buf, entropy, ENTROPY_BYTES);
  *added = error_of(ioctl(random_fd, RNDADDENTROPY, &pool) == 0);
  *reseeded = error_of(ioctl(random_fd, RNDRESEEDCRNG) == 0);
  explicit_bzero(&pool, sizeof pool);
}

static uint32_t set_hostname(const char *hostname) {
  char line[HOSTNAME_MAX + 2];
  snprintf(line, sizeof line, "%s\n", hostname);
  return error_of(sethostname(hostname, strlen(hostname)) == 0 && rewrite(FILE_HOSTNAME, line));
}

static uint32_t set_machine_id(const char *machine_id) {
  static const char dbus[] = "/var/lib/dbus/machine-id";
  char line[MACHINE_ID_LENGTH + 2];
  struct stat stat;
  snprintf(line, sizeof line, "%s\n", machine_id);
  bool done = rewrite(FILE_MACHINE_ID, line);
  if (done && lstat(dbus, &stat) == 0 && S_ISREG(stat.st_mode)) done = replace_file(dbus, line, 0444);
  return error_of(done);
}

static uint32_t set_clone_id(const char *clone_id) {
  char line[CLONE_ID_MAX + 2];
  snprintf(line, sizeof line, "%s\n", clone_id);
  return error_of(rewrite(FILE_CLONE_ID, line));
}

static _Noreturn void run_hook_child(const char *clone_id) {
  char variable[CLONE_ID_MAX + 16];
  char *argv[] = {(char *)HOOK, NULL};
  char *environment[] = {variable, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", NULL};
  snprintf(variable, sizeof variable, "CLONE_ID=%s", clone_id);
  become_plain_child();
  int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++) dup2(null, fd);
  syscall(SYS_close_range, 3, ~0U, 0);
  if (chdir("/") == 0) execve(HOOK, argv, environment);
  _exit(127);
}

/* The owner's own repairs (user-space generators, caches). It runs outside the frozen groups and the
 * others wait for it, but never longer than HOOK_LIMIT_MS. */
static uint32_t run_hook(const char *clone_id) {
  struct stat stat;
  if (lstat(HOOK, &stat) != 0 || !S_ISREG(stat.st_mode) || access(HOOK, X_OK) != 0) return 0;
  if (mkdir(HOOK_GROUP, 0755) != 0 && errno != EEXIST) return error_of(false);
  int folder = open(HOOK_GROUP, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  pid_t pid = folder < 0 ? -1 : group_fork(folder);
  if (pid == 0) run_hook_child(clone_id);
  uint32_t result = error_of(pid > 0);
  if (pid > 0) {
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    int status = 0;
    if (poll(&ended, 1, HOOK_LIMIT_MS) != 1) result = ETIMEDOUT;
    write_file_at(folder, "cgroup.kill", "1");
    waitpid(pid, &status, 0);
    if (result == 0 && status != 0) result = ECANCELED;
    if (ended.fd >= 0) close(ended.fd);
  }
  if (folder >= 0) close(folder);
  rmdir(HOOK_GROUP);
  return result;
}

void repair_identity(const struct identity_request *request, uint32_t results[STEP_COUNT]) {
  for (int step = 0; step < STEP_COUNT; step++) results[step] = ECANCELED;
  results[STEP_CLOCK] = clock_set(request->realtime_ns);
  if (machine_has_card()) connections_abort_outside();
  reseed(request->entropy, &results[STEP_ENTROPY], &results[STEP_RESEED]);
  results[STEP_HOSTNAME] = set_hostname(request->hostname);
  results[STEP_MACHINE_ID] = set_machine_id(request->machine_id);
  results[STEP_CLONE_ID] = set_clone_id(request->clone_id);
  for (int step = STEP_CLOCK; step <= STEP_CLONE_ID; step++) {
    if (results[step] != 0) return;
  }
  results[STEP_HOOK] = run_hook(request->clone_id);
  results[STEP_THAW] = (uint32_t)groups_freeze(false, THAW_LIMIT_MS);
}
