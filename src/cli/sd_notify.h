/* sd_notify.h - tells systemd how the server is: ready, alive, stopping. A datagram with a few words; without systemd nothing
 * happens. Source: sd_notify(3), whose protocol is stable. */
#ifndef BY_CLI_SD_NOTIFY_H
#define BY_CLI_SD_NOTIFY_H

#include <stdint.h>

#include "base/err.h"

/* Sends "READY=1" and the like to the socket in NOTIFY_SOCKET, without waiting: a systemd that is busy takes a few of them and
 * must not hold up who speaks. BY_AGAIN: it has no room now, and what it has to hear is to be said again later. BY_OK: said, or
 * there is nobody who would listen. */
by_status by_sd_notify(const char *state);

/* Milliseconds in which systemd wants a sign of life from this process; 0 = it wants none. */
int64_t by_sd_watchdog_ms(void);

#endif
