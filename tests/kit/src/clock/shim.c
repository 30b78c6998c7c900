/*
 * Replaces the wall clock of the process into which it is preloaded, according to the control file
 * in QUORLOCK_KIT_CLOCK. The monotonic clocks and the kernel's clock are not changed: poll, sleep
 * and socket timeouts take their normal time.
 *
 * This code must not allocate: jemalloc reads the time during its initialisation, and would
 * deadlock. (That is why redis-server hangs under libfaketime.)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(long) == 8, "the layouts of the system calls below require 64 bits");

#define NANOS 1000000000L

/*
 * The wall clock shows the true time + offset + (monotonic clock - since) * parts_per_million. If
 * it is stopped, it shows only the offset.
 */
struct setting {
    int64_t offset;
    int64_t since;
    int64_t parts_per_million;
    int64_t is_stopped;
};

/*
 * Written by clock.rs. A single byte selects the valid setting, and cannot be read half written.
 * The writer fills the other setting first, so a reader never waits.
 */
struct control {
    uint8_t version;
    uint8_t unused[7];
    struct setting settings[2];
};

static const volatile struct control *control;

static int64_t nanos(const struct timespec *t)
{
    return t->tv_sec * NANOS + t->tv_nsec;
}

static struct setting current_setting(void)
{
    struct setting found;
    uint8_t before, after;
    do {
        before = __atomic_load_n(&control->version, __ATOMIC_ACQUIRE);
        found.offset = control->settings[before & 1].offset;
        found.since = control->settings[before & 1].since;
        found.parts_per_million = control->settings[before & 1].parts_per_million;
        found.is_stopped = control->settings[before & 1].is_stopped;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        after = __atomic_load_n(&control->version, __ATOMIC_RELAXED);
    } while (before != after);
    return found;
}

static void fake(struct timespec *t)
{
    struct timespec monotonic;
    if (control == NULL || syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &monotonic) != 0)
        return;
    struct setting setting = current_setting();
    /* In two steps: nanoseconds times parts per million would overflow 64 bits within hours. */
    int64_t passed = nanos(&monotonic) - setting.since;
    int64_t drift = passed / 1000000 * setting.parts_per_million
                    + passed % 1000000 * setting.parts_per_million / 1000000;
    int64_t shown = setting.is_stopped ? setting.offset : nanos(t) + setting.offset + drift;
    if (shown < 0)
        shown = 0;
    t->tv_sec = shown / NANOS;
    t->tv_nsec = shown % NANOS;
}

int clock_gettime(clockid_t which, struct timespec *t)
{
    int failed = (int)syscall(SYS_clock_gettime, which, t);
    if (failed == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
        fake(t);
    return failed;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    if (zone != NULL && syscall(SYS_gettimeofday, NULL, zone) != 0)
        return -1;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return (time_t)-1;
    if (t != NULL)
        *t = now.tv_sec;
    return now.tv_sec;
}

/* If the file cannot be mapped, the clock stays true. The kit checks the mapping, and panics. */
__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("QUORLOCK_KIT_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        control = mapped;
}
