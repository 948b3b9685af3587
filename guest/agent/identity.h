/* Identity: what makes a restored machine one of its own. Only the init of a machine does this. */
#ifndef KOSA8_IDENTITY_H
#define KOSA8_IDENTITY_H

#include <stdint.h>

#include "message.h"

enum identity_step {
  STEP_CLOCK,
  STEP_ENTROPY,
  STEP_RESEED,
  STEP_HOSTNAME,
  STEP_MACHINE_ID,
  STEP_CLONE_ID,
  STEP_HOOK,
  STEP_THAW,
  STEP_COUNT,
};

/* At boot, with /run mounted: makes the files a repair writes. Returns NULL, or what failed with errno set. */
const char *prepare_identity(void);

/* Does every step and stores each one's errno (0: done). The processes are thawed only if all steps
 * before succeeded; the hook's result alone does not count. */
void repair_identity(const struct identity_request *request, uint32_t results[STEP_COUNT]);

#endif
