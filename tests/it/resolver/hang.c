/*
 * Replaces getaddrinfo: the name slow.invalid takes a minute, as with an unresponsive name server. Other names are
 * resolved normally.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    if (node && strcmp(node, "slow.invalid") == 0) {
        for (unsigned left = 60; left > 0;)
            left = sleep(left);
        return EAI_AGAIN;
    }
    return ((lookup *)dlsym(RTLD_NEXT, "getaddrinfo"))(node, service, hints, found);
}
