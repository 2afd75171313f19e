// Loaded into a process (LD_PRELOAD), it shifts the process' wall clock by as many seconds as the file says that
// RINGSIDE_WALL_CLOCK names. Each question reads them anew, so the clock can be made to step. Other clocks stay.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void find_shift(void) {
    const char *path = getenv("RINGSIDE_WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *seconds = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (seconds != MAP_FAILED) shift = seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && shift) now->tv_sec += *shift;
    return failed;
}
