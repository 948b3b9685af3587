/* Applets: file transfer as built-in commands, so that files use the streams of commands.
 *
 * A forked child of the agent runs them in place of a program. Opening happens first and is reported
 * like a failed start; after that the applet copies and ends with status 0, or with 1 and one line on
 * standard error. No link is followed in any part of a path. */
#ifndef KOSA8_APPLET_H
#define KOSA8_APPLET_H

#include <stdbool.h>

struct applet;

/* The applet of this name ("@get", "@put", "@list"), or NULL. */
const struct applet *find_applet(const char *name);
/* Opens what the arguments name. Returns NULL, or the step that failed with errno set. */
const char *applet_open(const struct applet *applet, int argc, const char **argv);
/* Copies between standard input, standard output and what was opened; returns the exit status. */
int applet_run(const struct applet *applet);

#endif
