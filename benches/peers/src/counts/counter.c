/*
 * Counts allocations, and calls of functions that enter the kernel, of the process that it is preloaded into.
 *
 * The counts are in shared memory, which the environment variable TESTS_COUNTS names as a file: three 64-bit numbers for
 * allocations, requested bytes, and calls. It requires the GNU C library, whose allocator has names that need no symbol
 * look-up, because a look-up may allocate.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct counts {
    _Atomic uint64_t allocations;
    _Atomic uint64_t bytes;
    _Atomic uint64_t calls;
};

static struct counts unseen;
static struct counts *counts = &unseen;

__attribute__((constructor)) static void share(void) {
    int file = memfd_create("quorlock-counts", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof *counts) != 0) {
        return;
    }
    void *room = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (room == MAP_FAILED) {
        return;
    }
    counts = room;
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    setenv("TESTS_COUNTS", name, 1);
}

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static void allocated(size_t size) {
    atomic_fetch_add_explicit(&counts->allocations, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts->bytes, size, memory_order_relaxed);
}

void *malloc(size_t size) {
    allocated(size);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    allocated(count * size);
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    allocated(size);
    return __libc_realloc(old, size);
}

int posix_memalign(void **room, size_t alignment, size_t size) {
    allocated(size);
    void *memory = __libc_memalign(alignment, size);
    if (memory == NULL) {
        return ENOMEM;
    }
    *room = memory;
    return 0;
}

/* Finds the next function with this name, which is the C library's, and counts the call. */
#define CALLED(name)                                                                              \
    static __typeof__(&name) real;                                                                \
    if (real == NULL) {                                                                           \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                        \
    }                                                                                             \
    atomic_fetch_add_explicit(&counts->calls, 1, memory_order_relaxed)

ssize_t read(int file, void *bytes, size_t size) {
    CALLED(read);
    return real(file, bytes, size);
}

ssize_t readv(int file, const struct iovec *parts, int count) {
    CALLED(readv);
    return real(file, parts, count);
}

ssize_t recv(int file, void *bytes, size_t size, int flags) {
    CALLED(recv);
    return real(file, bytes, size, flags);
}

ssize_t recvmsg(int file, struct msghdr *message, int flags) {
    CALLED(recvmsg);
    return real(file, message, flags);
}

ssize_t write(int file, const void *bytes, size_t size) {
    CALLED(write);
    return real(file, bytes, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    CALLED(writev);
    return real(file, parts, count);
}

ssize_t send(int file, const void *bytes, size_t size, int flags) {
    CALLED(send);
    return real(file, bytes, size, flags);
}

ssize_t sendmsg(int file, const struct msghdr *message, int flags) {
    CALLED(sendmsg);
    return real(file, message, flags);
}

int epoll_wait(int poll, struct epoll_event *events, int most, int timeout) {
    CALLED(epoll_wait);
    return real(poll, events, most, timeout);
}

int epoll_ctl(int poll, int what, int file, struct epoll_event *event) {
    CALLED(epoll_ctl);
    return real(poll, what, file, event);
}

int poll(struct pollfd *files, nfds_t count, int timeout) {
    CALLED(poll);
    return real(files, count, timeout);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
    CALLED(clock_nanosleep);
    return real(clock, flags, time, left);
}

ssize_t getrandom(void *bytes, size_t size, unsigned flags) {
    CALLED(getrandom);
    return real(bytes, size, flags);
}

int sched_yield(void) {
    CALLED(sched_yield);
    return real();
}

/* Futexes, on which threads wait, are called through this function. */
long syscall(long number, ...) {
    CALLED(syscall);
    long argument[6];
    va_list given;
    va_start(given, number);
    for (int place = 0; place < 6; place++) {
        argument[place] = va_arg(given, long);
    }
    va_end(given);
    return real(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}
