/* Processes: starting one command in its group with its pipes or terminal.
 *
 * Owns: everything between fork and execve. Does not own: the streams (stream.h). */
#ifndef KOSA8_PROCESS_H
#define KOSA8_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "group.h"
#include "message.h"

/* What the child writes to its status pipe when a step before execve fails; nothing is success. */
struct start_failure {
  int32_t error;
  char step[28];
};

struct process {
  pid_t pid;
  struct group group;
  bool is_applet;
  int status_fd;    /* end of file: the program runs; a start_failure: it does not */
  int stdin_fd;     /* -1 without stdin */
  int output_fd[2]; /* stdout and stderr; with a terminal only the first */
};

/* Starts the command; all descriptors come back nonblocking and close-on-exec. On failure nothing is
 * left behind and *failure says which step it was. */
bool start_process(const struct exec_request *request, struct process *process, struct start_failure *failure);

/* Child's side, also used for the clone hook: default signals, nothing inherited but 0, 1 and 2. */
void become_plain_child(void);

#endif
