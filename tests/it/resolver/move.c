/* Replaces getaddrinfo: moving.invalid has the address in a file, whose path is in an environment variable. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    lookup *real = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (node == NULL || strcmp(node, "moving.invalid") != 0)
        return real(node, service, hints, found);
    char address[64] = "";
    const char *path = getenv("QUORLOCK_TEST_RESOLVER_FILE");
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    if (file == NULL)
        return EAI_NONAME;
    int read = fscanf(file, "%63s", address);
    fclose(file);
    return read == 1 ? real(address, service, hints, found) : EAI_NONAME;
}
