/* Groups: every command is one, so that killing it reaches daemons in sessions of their own.
 *
 * A group is a cgroup v2 below one common folder, which the freezer stops as a whole. Where the agent
 * is not init and was given no cgroup folder, a group is a process group (for tests of the protocol). */
#ifndef KOSA8_GROUP_H
#define KOSA8_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct group {
  uint32_t number;
  pid_t leader; /* first process; set by the caller after the fork */
};

/* Uses (and makes) this folder of a cgroup2 mount; NULL for process groups. All groups together have at
 * most `processes_max` processes, threads counted; 0: no limit. False with errno set. */
bool groups_init(const char *folder, uint32_t processes_max);
bool groups_are_cgroups(void);

/* Makes the next group ahead, if there is none yet; for moments in which nobody waits. */
void group_keep_spare(void);
/* Makes a new group. *folder_fd is to be handed to spawn_into_group() and closed, or -1. */
bool group_create(struct group *group, int *folder_fd);
/* Forks into the group. Returns as fork() does. */
pid_t group_fork(int folder_fd);

int group_signal(const struct group *group, int signal);
bool group_is_empty(const struct group *group);
/* Calls visit for each process, at most `limit` of them. */
void group_visit(const struct group *group, size_t limit, void (*visit)(pid_t pid, void *context), void *context);
/* False while a process is left in it. */
bool group_remove(const struct group *group);

/* Freezes (or thaws) every group and waits at most `limit_ms` for it. Returns 0 or an errno. */
int groups_freeze(bool freeze, int limit_ms);

#endif
