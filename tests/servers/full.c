/* A full disk for the tables of one PostgreSQL server: LD_PRELOAD=full.so FULL_FILE=path.
 * While the file exists, whatever would make a file below `base/` longer fails with ENOSPC. Its log can be written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_full(int file, off_t end) {
    const char *name = getenv("FULL_FILE");
    char link[64], path[4096];
    struct stat now;
    if (!name || access(name, F_OK) != 0 || fstat(file, &now) != 0 || end <= now.st_size)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strstr(path, "/base/") != NULL;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    if (is_full(file, at + (off_t)size)) { errno = ENOSPC; return -1; }
    return REAL(pwrite)(file, data, size, at);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    if (is_full(file, at + (off_t)size)) { errno = ENOSPC; return -1; }
    return REAL(pwrite64)(file, data, size, at);
}

ssize_t pwritev(int file, const struct iovec *parts, int number, off_t at) {
    if (is_full(file, at + 1)) { errno = ENOSPC; return -1; }
    return REAL(pwritev)(file, parts, number, at);
}

ssize_t pwritev64(int file, const struct iovec *parts, int number, off64_t at) {
    if (is_full(file, at + 1)) { errno = ENOSPC; return -1; }
    return REAL(pwritev64)(file, parts, number, at);
}

int posix_fallocate(int file, off_t at, off_t size) {
    return is_full(file, at + size) ? ENOSPC : REAL(posix_fallocate)(file, at, size);
}

int posix_fallocate64(int file, off64_t at, off64_t size) {
    return is_full(file, at + size) ? ENOSPC : REAL(posix_fallocate64)(file, at, size);
}
