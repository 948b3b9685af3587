/* Groups: see group.h. */
#define _GNU_SOURCE
#include "group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "system.h"

/* Commands may make cgroups of their own below theirs; deeper trees than this are left alone. */
enum { DEPTH_MAX = 16, KEPT_PROCESSES_MAX = 64 };

static int root_fd = -1;
static uint32_t last_number;
static uint32_t command_limit; /* processes of one command; 0: as many as it likes */
/* An empty group made in a quiet moment: a clone's first command does not wait for the making of one. */
static struct group spare;
static int spare_fd = -1;

static bool limit_group(const char *file, uint32_t limit) {
  char text[16];
  snprintf(text, sizeof text, "%u", limit);
  return write_file_at(root_fd, file, text);
}

/* One command alone never has the last processes: another can be started to look at it. */
static bool limit_processes(uint32_t limit) {
  uint32_t kept = limit / 8 < KEPT_PROCESSES_MAX ? limit / 8 : KEPT_PROCESSES_MAX;
  command_limit = limit - kept;
  return write_file_at(root_fd, "../cgroup.subtree_control", "+pids") && limit_group("pids.max", limit) &&
         write_file_at(root_fd, "cgroup.subtree_control", "+pids");
}

bool groups_init(const char *folder, uint32_t processes_max) {
  if (folder == NULL) return true;
  if (mkdir(folder, 0755) != 0 && errno != EEXIST) return false;
  root_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return root_fd >= 0 && faccessat(root_fd, "cgroup.kill", W_OK, 0) == 0 &&
         (processes_max == 0 || limit_processes(processes_max));
}

bool groups_are_cgroups(void) {
  return root_fd >= 0;
}

static int open_group(const struct group *group) {
  char name[16];
  snprintf(name, sizeof name, "%u", group->number);
  return openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool make_group(struct group *group, int *folder_fd) {
  *group = (struct group){.number = ++last_number};
  *folder_fd = -1;
  if (root_fd < 0) return true;
  char name[16], limit_file[32];
  snprintf(name, sizeof name, "%u", group->number);
  snprintf(limit_file, sizeof limit_file, "%s/pids.max", name);
  if (mkdirat(root_fd, name, 0755) != 0) return false;
  if (command_limit > 0 && !limit_group(limit_file, command_limit)) return false;
  *folder_fd = open_group(group);
  return *folder_fd >= 0;
}

void group_keep_spare(void) {
  if (root_fd >= 0 && spare_fd < 0) make_group(&spare, &spare_fd);
}

bool group_create(struct group *group, int *folder_fd) {
  if (spare_fd < 0) return make_group(group, folder_fd);
  *group = spare;
  *folder_fd = spare_fd;
  spare_fd = -1;
  return true;
}

/* CLONE_INTO_CGROUP spares the move of a running process, which waits for a grace period of the kernel. */
pid_t group_fork(int folder_fd) {
  if (folder_fd < 0) return fork();
  struct clone_args args = {
    .flags = CLONE_INTO_CGROUP,
    .exit_signal = SIGCHLD,
    .cgroup = (uint64_t)folder_fd,
  };
  return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static void visit_folder(int folder, size_t *left, int depth, void (*visit)(pid_t, void *), void *context);

/* Goes through the folders below; `folder` stays open. */
static void for_each_below(int folder, void (*act)(int folder, const char *name, void *context), void *context) {
  DIR *list = fdopendir(fcntl(folder, F_DUPFD_CLOEXEC, 3));
  if (list == NULL) return;
  for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') act(folder, entry->d_name, context);
  }
  closedir(list);
}

struct visit_context {
  size_t *left;
  int depth;
  void (*visit)(pid_t, void *);
  void *context;
};

static void visit_below(int folder, const char *name, void *context) {
  struct visit_context *visit = context;
  int below = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (below < 0) return;
  visit_folder(below, visit->left, visit->depth - 1, visit->visit, visit->context);
  close(below);
}

static void visit_folder(int folder, size_t *left, int depth, void (*visit)(pid_t, void *), void *context) {
  if (depth == 0) return;
  int fd = openat(folder, "cgroup.procs", O_RDONLY | O_CLOEXEC);
  FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
  if (file == NULL) return;
  char line[32];
  while (*left > 0 && fgets(line, sizeof line, file) != NULL) {
    pid_t pid = (pid_t)atol(line);
    if (pid <= 1) continue; /* 0: in a namespace we do not see; 1: never */
    visit(pid, context);
    (*left)--;
  }
  fclose(file);
  struct visit_context below = {left, depth, visit, context};
  for_each_below(folder, visit_below, &below);
}

/* Process groups: every process whose session or process group is the leader's. */
static void visit_session(pid_t leader, size_t limit, void (*visit)(pid_t, void *), void *context) {
  DIR *proc = opendir("/proc");
  if (proc == NULL) return;
  for (struct dirent *entry; limit > 0 && (entry = readdir(proc)) != NULL;) {
    pid_t pid = (pid_t)atol(entry->d_name);
    if (pid <= 1 || (getsid(pid) != leader && getpgid(pid) != leader)) continue;
    visit(pid, context);
    limit--;
  }
  closedir(proc);
}

void group_visit(const struct group *group, size_t limit, void (*visit)(pid_t, void *), void *context) {
  if (root_fd < 0) return visit_session(group->leader, limit, visit, context);
  int folder = open_group(group);
  if (folder < 0) return;
  visit_folder(folder, &limit, DEPTH_MAX, visit, context);
  close(folder);
}

static void send_signal(pid_t pid, void *context) {
  kill(pid, *(int *)context);
}

int group_signal(const struct group *group, int signal) {
  if (root_fd >= 0 && signal == SIGKILL) {
    char path[40];
    snprintf(path, sizeof path, "%u/cgroup.kill", group->number);
    return write_file_at(root_fd, path, "1") ? 0 : errno;
  }
  group_visit(group, SIZE_MAX, send_signal, &signal);
  return 0;
}

static void count_process(pid_t pid, void *context) {
  (void)pid;
  ++*(int *)context;
}

/* Reads one number of a cgroup.events file; -1 when it is not there. */
static int read_event(int folder, const char *file, const char *key) {
  char text[128];
  if (!read_file_at(folder, file, text, sizeof text)) return -1;
  const char *found = strstr(text, key);
  return found == NULL ? -1 : atoi(found + strlen(key));
}

bool group_is_empty(const struct group *group) {
  if (root_fd < 0) {
    int count = 0;
    visit_session(group->leader, 1, count_process, &count);
    return count == 0;
  }
  char path[40];
  snprintf(path, sizeof path, "%u/cgroup.events", group->number);
  return read_event(root_fd, path, "populated ") != 1;
}

static void remove_below(int folder, const char *name, void *context) {
  int depth = *(int *)context - 1;
  int below = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (below < 0) return;
  if (depth > 0) for_each_below(below, remove_below, &depth);
  close(below);
  unlinkat(folder, name, AT_REMOVEDIR);
}

bool group_remove(const struct group *group) {
  if (root_fd < 0) return group_is_empty(group);
  char name[16];
  snprintf(name, sizeof name, "%u", group->number);
  if (unlinkat(root_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
  if (!group_is_empty(group)) return false;
  int depth = DEPTH_MAX;
  remove_below(root_fd, name, &depth);
  return faccessat(root_fd, name, F_OK, 0) != 0;
}

int groups_freeze(bool freeze, int limit_ms) {
  if (root_fd < 0) return ENOTSUP;
  int events = openat(root_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
  if (events < 0) return errno;
  int error = write_file_at(root_fd, "cgroup.freeze", freeze ? "1" : "0") ? 0 : errno;
  int64_t deadline = monotonic_ms() + limit_ms;
  while (error == 0) {
    char text[128];
    ssize_t count = pread(events, text, sizeof text - 1, 0);
    text[count < 0 ? 0 : count] = 0;
    if (strstr(text, freeze ? "frozen 1" : "frozen 0") != NULL) break;
    int64_t left = deadline - monotonic_ms();
    struct pollfd changed = {.fd = events, .events = POLLPRI};
    if (left <= 0) error = ETIMEDOUT;
    else poll(&changed, 1, (int)left);
  }
  close(events);
  return error;
}
