/* A host name that can be led elsewhere, for one process: LD_PRELOAD=names.so NAMES_FILE=path.
 * The file holds an address and a port, as `127.0.0.1 15432`. Whoever looks for `moving.test` gets these. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        (__typeof__(&getaddrinfo))dlsym(RTLD_NEXT, "getaddrinfo");
    const char *name = getenv("NAMES_FILE");
    char address[64], port[16];
    if (!node || !name || strcmp(node, "moving.test") != 0)
        return real(node, service, hints, found);
    FILE *file = fopen(name, "r");
    int fields = file ? fscanf(file, "%63s %15s", address, port) : 0;
    if (file)
        fclose(file);
    return fields == 2 ? real(address, port, hints, found) : EAI_AGAIN;
}
