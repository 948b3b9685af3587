/* Boot: from the initramfs to a served machine. Every failure ends the machine with a line on the
 * console, because nobody could repair it from outside. */
#ifndef KOSA8_BOOT_H
#define KOSA8_BOOT_H

#include <stdbool.h>
#include <stdint.h>

#define GROUPS_FOLDER "/sys/fs/cgroup/kosa8"

/* Does everything up to the root file system, mounts and network. */
void boot_machine(void);
/* Whether there is a way out of the machine but the port. */
bool machine_has_card(void);
/* Processes all commands together may have; 0: as many as they like. */
uint32_t boot_processes_max(void);
/* Opens the port the host talks through, nonblocking. */
int open_agent_port(void);
/* Prints what failed (with errno) and powers the machine off. */
_Noreturn void end_machine(const char *what);

#endif
