/* Accounts: user, group and home directory from /etc/passwd and /etc/group, read without the C
 * library's name services, which a static program cannot use. Runs in forked children only. */
#ifndef KOSA8_ACCOUNT_H
#define KOSA8_ACCOUNT_H

#include <stdbool.h>
#include <sys/types.h>

enum { ACCOUNT_GROUPS_MAX = 256 };

struct account {
  uid_t uid;
  gid_t gid;
  char name[64], home[256], shell[256];
  gid_t groups[ACCOUNT_GROUPS_MAX];
  size_t group_count;
};

/* Finds a user by name or number; a number without an entry is a user without a home. An empty name
 * is root. False when there is no such name. */
bool find_account(const char *user, struct account *account);

#endif
