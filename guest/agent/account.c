/* Accounts: see account.h. */
#define _GNU_SOURCE
#include "account.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 7 };

/* Splits a line at colons, empty fields kept; returns the number of fields. */
static int split_fields(char *line, char *fields[FIELDS_MAX]) {
  line[strcspn(line, "\n")] = 0;
  int count = 0;
  for (char *rest = line; rest != NULL && count < FIELDS_MAX;) fields[count++] = strsep(&rest, ":");
  return count;
}

static bool parse_number(const char *text, unsigned *number) {
  char *end;
  unsigned long value = strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != 0 || value >= 0xffffffff) return false;
  *number = (unsigned)value;
  return true;
}

static bool find_in_passwd(const char *user, bool by_number, unsigned number, struct account *account) {
  FILE *file = fopen("/etc/passwd", "re");
  if (file == NULL) return false;
  char line[1024], *fields[FIELDS_MAX];
  bool found = false;
  while (!found && fgets(line, sizeof line, file) != NULL) {
    unsigned uid, gid;
    if (split_fields(line, fields) != 7 || !parse_number(fields[2], &uid) || !parse_number(fields[3], &gid)) continue;
    if (by_number ? uid != number : strcmp(fields[0], user) != 0) continue;
    account->uid = uid;
    account->gid = gid;
    snprintf(account->name, sizeof account->name, "%s", fields[0]);
    snprintf(account->home, sizeof account->home, "%s", fields[5]);
    snprintf(account->shell, sizeof account->shell, "%s", fields[6]);
    found = true;
  }
  fclose(file);
  return found;
}

static bool is_member(char *members, const char *name) {
  for (char *member; (member = strsep(&members, ",")) != NULL;) {
    if (strcmp(member, name) == 0) return true;
  }
  return false;
}

static void find_groups(struct account *account) {
  account->groups[0] = account->gid;
  account->group_count = 1;
  FILE *file = fopen("/etc/group", "re");
  if (file == NULL) return;
  char line[8192], *fields[FIELDS_MAX];
  while (account->group_count < ACCOUNT_GROUPS_MAX && fgets(line, sizeof line, file) != NULL) {
    unsigned gid;
    if (split_fields(line, fields) != 4 || !parse_number(fields[2], &gid) || gid == account->gid) continue;
    if (is_member(fields[3], account->name)) account->groups[account->group_count++] = gid;
  }
  fclose(file);
}

bool find_account(const char *user, struct account *account) {
  memset(account, 0, sizeof *account);
  if (*user == 0) user = "root";
  unsigned number = 0;
  bool by_number = parse_number(user, &number) || strcmp(user, "root") == 0;
  bool found = find_in_passwd(user, by_number, number, account);
  if (!found && !by_number) return false;
  if (!found) {
    account->uid = account->gid = number;
    snprintf(account->name, sizeof account->name, "%s", user);
    snprintf(account->home, sizeof account->home, "%s", number == 0 ? "/root" : "/");
  }
  find_groups(account);
  return true;
}
