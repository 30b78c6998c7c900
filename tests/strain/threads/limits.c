/*
 * Limits of the system: no thread starts while the working directory has a file "no-threads", as with a limit on
 * processes, and a process may open 100 files.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

typedef void *body(void *);
typedef int create(pthread_t *, const pthread_attr_t *, body *, void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, body *start, void *argument)
{
    if (access("no-threads", F_OK) == 0)
        return EAGAIN;
    return ((create *)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, start, argument);
}

__attribute__((constructor)) static void limit_files(void)
{
    struct rlimit limit = {100, 100};
    setrlimit(RLIMIT_NOFILE, &limit);
}
