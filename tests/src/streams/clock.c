/* Freezes the wall clock of a server at the number that a mapped file holds: microseconds since 1970.
   Preloaded into a server by tests, so that TIME, entry IDs and expiries are the test's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *frozen;

static long long now_us(void) {
    if (!frozen) {
        const char *path = getenv("STRANDLINE_CLOCK");
        int file = path ? open(path, O_RDONLY) : -1;
        if (file < 0) abort();
        void *page = mmap(0, sizeof *frozen, PROT_READ, MAP_SHARED, file, 0);
        if (page == MAP_FAILED) abort();
        close(file);
        frozen = page;
    }
    return *frozen;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    (void)zone;
    long long us = now_us();
    tv->tv_sec = us / 1000000;
    tv->tv_usec = us % 1000000;
    return 0;
}

time_t time(time_t *out) {
    time_t seconds = now_us() / 1000000;
    if (out) *out = seconds;
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        long long us = now_us();
        ts->tv_sec = us / 1000000;
        ts->tv_nsec = us % 1000000 * 1000;
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, clock, ts);
}

/* Where Valkey knows the rate of the processor's counter it asks nobody: from one turn of its loop to the
   next it goes on from the last time it was told by counting ticks, and a frozen clock creeps on. It learns
   the rate from this file; without it, it asks for every time. */
static FILE *opened(const char *how, const char *path, const char *mode) {
    if (strcmp(path, "/proc/cpuinfo") == 0) return NULL;
    FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, how);
    if (!real) abort();
    return real(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return opened("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return opened("fopen64", path, mode);
}
