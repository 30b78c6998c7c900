/*
 * Lets the search for the address of one host, slow.invalid, hang for a minute, as it does where the
 * name server does not answer. Other names are looked up as ever.
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
