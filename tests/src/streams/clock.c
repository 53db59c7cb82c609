/* Freezes the wall clock of a server at the number that a mapped file holds: microseconds since 1970.
   Preloaded into redis-server by tests, so that TIME, entry IDs and expiries are the test's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
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
