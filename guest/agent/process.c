/* Processes: see process.h. */
#define _GNU_SOURCE
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "account.h"
#include "applet.h"
#include "relay.h"
#include "system.h"

enum { STATUS_FD = 3 };

/* The child's ends while both sides are still one process. */
struct child_ends {
  int in, out, error, status;
};

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static bool open_pipe(int *read_end, int *write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  *read_end = ends[0];
  *write_end = ends[1];
  return true;
}

static bool set_nonblocking(int fd) {
  return fd < 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0;
}

/* A terminal: the agent keeps the master twice, so that input and output are closed apart. */
static const char *open_terminal(const struct exec_request *request, struct process *process, struct child_ends *ends) {
  int unlock = 0;
  struct winsize size = {.ws_row = request->rows, .ws_col = request->columns};
  process->output_fd[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (process->output_fd[0] < 0 || ioctl(process->output_fd[0], TIOCSPTLCK, &unlock) != 0) return "terminal";
  ends->in = ioctl(process->output_fd[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ends->in < 0) return "terminal";
  ioctl(process->output_fd[0], TIOCSWINSZ, &size);
  ends->out = fcntl(ends->in, F_DUPFD_CLOEXEC, 3);
  ends->error = fcntl(ends->in, F_DUPFD_CLOEXEC, 3);
  if (request->flags & EXEC_STDIN) process->stdin_fd = fcntl(process->output_fd[0], F_DUPFD_CLOEXEC, 3);
  return ends->out < 0 || ends->error < 0 ? "terminal" : NULL;
}

static const char *open_pipes(const struct exec_request *request, struct process *process, struct child_ends *ends) {
  if (request->flags & EXEC_STDIN) {
    if (!open_pipe(&ends->in, &process->stdin_fd)) return "pipe";
  } else {
    ends->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (ends->in < 0) return "/dev/null";
  }
  return open_pipe(&process->output_fd[0], &ends->out) && open_pipe(&process->output_fd[1], &ends->error) ? NULL : "pipe";
}

void become_plain_child(void) {
  sigset_t none;
  for (int number = 1; number < 65; number++) signal(number, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  umask(022);
  setsid();
}

/* Puts the ends where they belong. All of them are above 2, so none is overwritten before its turn. */
static void take_ends(const struct child_ends *ends, bool terminal) {
  dup2(ends->in, 0);
  dup2(ends->out, 1);
  dup2(ends->error, 2);
  if (ends->status == STATUS_FD) fcntl(STATUS_FD, F_SETFD, FD_CLOEXEC);
  else dup3(ends->status, STATUS_FD, O_CLOEXEC);
  syscall(SYS_close_range, STATUS_FD + 1, ~0U, 0);
  if (terminal) ioctl(0, TIOCSCTTY, 0);
}

static _Noreturn void report_failure(const char *step) {
  struct start_failure failure = {.error = errno};
  snprintf(failure.step, sizeof failure.step, "%s", step);
  write_all(STATUS_FD, &failure, sizeof failure);
  _exit(127);
}

/* Variables of the image, one NAME=value a line; the place is in guest/PROTOCOL.md. */
static const char ENVIRONMENT_FILE[] = "/etc/kosa8/environment";
enum { ENVIRONMENT_BYTES_MAX = 64 * 1024 + 1 };

static bool is_set(const char *const *environment, size_t count, const char *variable) {
  size_t length = strcspn(variable, "=") + 1;
  for (size_t i = 0; i < count; i++) {
    if (strncmp(environment[i], variable, length) == 0) return true;
  }
  return false;
}

static size_t add_if_unset(const char **environment, size_t count, const char *variable) {
  if (!is_set(environment, count, variable)) environment[count++] = variable;
  return count;
}

static size_t count_lines(const char *text) {
  size_t count = 1;
  for (; *text != 0; text++) count += *text == '\n';
  return count;
}

/* The request's variables, below them the image's, below those the agent's own defaults. */
static const char **build_environment(const struct exec_request *request, const struct account *account) {
  static char home[300], user[80], logname[80], shell[300], image[ENVIRONMENT_BYTES_MAX];
  snprintf(home, sizeof home, "HOME=%s", account->home);
  snprintf(user, sizeof user, "USER=%s", account->name);
  snprintf(logname, sizeof logname, "LOGNAME=%s", account->name);
  snprintf(shell, sizeof shell, "SHELL=%s", account->shell[0] != 0 ? account->shell : "/bin/sh");
  const char *defaults[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", home, user, logname, shell,
    request->flags & EXEC_PTY ? "TERM=xterm-256color" : NULL,
  };
  const size_t default_count = sizeof defaults / sizeof *defaults;
  const char *const *proxies = relays_environment();
  size_t proxy_count = 0;
  while (proxies[proxy_count] != NULL) proxy_count++;
  if (!read_file_at(AT_FDCWD, ENVIRONMENT_FILE, image, sizeof image)) image[0] = 0;
  const char **environment = calloc(request->envc + proxy_count + count_lines(image) + default_count + 2, sizeof *environment);
  size_t count = 0;
  if (environment == NULL) return NULL;
  for (uint32_t i = 0; i < request->envc; i++) environment[count++] = request->env[i];
  /* Before the image's: it cannot know the way out of this machine. */
  for (size_t i = 0; i < proxy_count; i++) count = add_if_unset(environment, count, proxies[i]);
  for (char *rest = image, *line; (line = strsep(&rest, "\n")) != NULL;) {
    if (line[0] != '=' && strchr(line, '=') != NULL) count = add_if_unset(environment, count, line);
  }
  /* LANG would have each program look for a dozen files that say no more than this. */
  if (!is_set(environment, count, "LANG=")) count = add_if_unset(environment, count, "LC_CTYPE=C.UTF-8");
  for (size_t i = 0; i < default_count; i++) {
    if (defaults[i] != NULL) count = add_if_unset(environment, count, defaults[i]);
  }
  return environment;
}

static void become_user(const struct account *account) {
  if (geteuid() != 0 && account->uid == geteuid()) return; /* tests run as whoever they are */
  if (syscall(SYS_setgroups, account->group_count, account->groups) != 0) report_failure("supplementary groups");
  if (setresgid(account->gid, account->gid, account->gid) != 0) report_failure("group id");
  if (setresuid(account->uid, account->uid, account->uid) != 0) report_failure("user id");
}

static _Noreturn void run_child(const struct exec_request *request, const struct child_ends *ends) {
  become_plain_child();
  take_ends(ends, request->flags & EXEC_PTY);
  const struct applet *applet = find_applet(request->argv[0]);
  if (applet != NULL) {
    const char *failed = applet_open(applet, (int)request->argc, request->argv);
    if (failed != NULL) report_failure(failed);
    close(STATUS_FD);
    _exit(applet_run(applet));
  }
  static struct account account;
  errno = ENOENT;
  char own[16];
  snprintf(own, sizeof own, "%u", geteuid());
  if (!find_account(request->user[0] == 0 ? own : request->user, &account)) report_failure("user");
  const char **environment = build_environment(request, &account);
  if (environment == NULL) report_failure("memory");
  become_user(&account);
  if (chdir(request->cwd[0] == 0 ? "/" : request->cwd) != 0) report_failure("working directory");
  environ = (char **)environment; /* so that execvp looks in the command's own PATH */
  execvp(request->argv[0], (char *const *)request->argv);
  report_failure("exec");
}

static void close_all(struct process *process, struct child_ends *ends) {
  close_fd(&process->status_fd);
  close_fd(&process->stdin_fd);
  close_fd(&process->output_fd[0]);
  close_fd(&process->output_fd[1]);
  close_fd(&ends->in);
  close_fd(&ends->out);
  close_fd(&ends->error);
  close_fd(&ends->status);
}

static const char *try_start(const struct exec_request *request, struct process *process, struct child_ends *ends) {
  int folder = -1;
  if (!open_pipe(&process->status_fd, &ends->status)) return "pipe";
  const char *failed = request->flags & EXEC_PTY ? open_terminal(request, process, ends) : open_pipes(request, process, ends);
  if (failed != NULL) return failed;
  if (!set_nonblocking(process->status_fd) || !set_nonblocking(process->stdin_fd) ||
      !set_nonblocking(process->output_fd[0]) || !set_nonblocking(process->output_fd[1])) return "pipe";
  if (!group_create(&process->group, &folder)) return "group";
  process->pid = group_fork(folder);
  if (process->pid == 0) run_child(request, ends);
  int error = errno;
  close_fd(&folder);
  if (process->pid > 0) return NULL;
  group_remove(&process->group);
  errno = error;
  return "fork";
}

bool start_process(const struct exec_request *request, struct process *process, struct start_failure *failure) {
  struct child_ends ends = {-1, -1, -1, -1};
  *process = (struct process){.status_fd = -1, .stdin_fd = -1, .output_fd = {-1, -1}};
  process->is_applet = find_applet(request->argv[0]) != NULL;
  const char *failed = try_start(request, process, &ends);
  if (failed != NULL) {
    failure->error = errno;
    snprintf(failure->step, sizeof failure->step, "%s", failed);
    close_all(process, &ends);
    return false;
  }
  process->group.leader = process->pid;
  struct process kept = *process;
  *process = (struct process){.status_fd = -1, .stdin_fd = -1, .output_fd = {-1, -1}};
  close_all(process, &ends);
  *process = kept;
  return true;
}
