/* Names of glibc 2.28 for objects that were compiled with a later one, so that a wheel runs
 * wherever there is that version (manylinux_2_28). Functions that got a new version later, because
 * they moved from libpthread and libdl to libc or set errno in another way, are still there under
 * the old one; those that are newer are written in terms of older ones. The linker's --wrap brings
 * each reference to NAME here (wheel.cmake lists them). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#define OLDER(name, version)                                                                       \
    __asm__(".text\n"                                                                              \
            ".globl __wrap_" #name "\n"                                                            \
            ".hidden __wrap_" #name "\n"                                                           \
            ".type __wrap_" #name ", @function\n"                                                  \
            ".symver older_" #name ", " #name "@" version "\n"                                     \
            "__wrap_" #name ": jmp older_" #name "@PLT\n")

OLDER(dladdr, "GLIBC_2.2.5");
OLDER(dlclose, "GLIBC_2.2.5");
OLDER(dlerror, "GLIBC_2.2.5");
OLDER(dlopen, "GLIBC_2.2.5");
OLDER(dlsym, "GLIBC_2.2.5");
OLDER(exp, "GLIBC_2.2.5");
OLDER(log, "GLIBC_2.2.5");
OLDER(log2, "GLIBC_2.2.5");
OLDER(pow, "GLIBC_2.2.5");
OLDER(__pthread_key_create, "GLIBC_2.2.5");
OLDER(pthread_attr_setaffinity_np, "GLIBC_2.3.4");
OLDER(pthread_create, "GLIBC_2.2.5");
OLDER(pthread_detach, "GLIBC_2.2.5");
OLDER(pthread_getspecific, "GLIBC_2.2.5");
OLDER(pthread_join, "GLIBC_2.2.5");
OLDER(pthread_key_create, "GLIBC_2.2.5");
OLDER(pthread_key_delete, "GLIBC_2.2.5");
OLDER(pthread_mutex_trylock, "GLIBC_2.2.5");
OLDER(pthread_mutexattr_destroy, "GLIBC_2.2.5");
OLDER(pthread_mutexattr_init, "GLIBC_2.2.5");
OLDER(pthread_mutexattr_settype, "GLIBC_2.2.5");
OLDER(pthread_once, "GLIBC_2.2.5");
OLDER(pthread_rwlock_destroy, "GLIBC_2.2.5");
OLDER(pthread_rwlock_init, "GLIBC_2.2.5");
OLDER(pthread_rwlock_rdlock, "GLIBC_2.2.5");
OLDER(pthread_rwlock_unlock, "GLIBC_2.2.5");
OLDER(pthread_rwlock_wrlock, "GLIBC_2.2.5");
OLDER(pthread_setspecific, "GLIBC_2.2.5");
OLDER(pthread_sigmask, "GLIBC_2.2.5");
#ifdef STASIS_CUDA_MODULE /* of CUDA's own runtime, which is in the module */
OLDER(dlmopen, "GLIBC_2.3.4");
OLDER(dlvsym, "GLIBC_2.2.5");
OLDER(pthread_condattr_setpshared, "GLIBC_2.2.5");
OLDER(pthread_kill, "GLIBC_2.2.5");
OLDER(pthread_mutexattr_setpshared, "GLIBC_2.2.5");
OLDER(pthread_rwlock_timedrdlock, "GLIBC_2.2.5");
OLDER(pthread_rwlock_timedwrlock, "GLIBC_2.2.5");
OLDER(pthread_rwlock_tryrdlock, "GLIBC_2.2.5");
OLDER(pthread_rwlock_trywrlock, "GLIBC_2.2.5");
OLDER(pthread_rwlockattr_destroy, "GLIBC_2.2.5");
OLDER(pthread_rwlockattr_init, "GLIBC_2.2.5");
OLDER(pthread_rwlockattr_setpshared, "GLIBC_2.2.5");
OLDER(pthread_spin_destroy, "GLIBC_2.2.5");
OLDER(pthread_spin_init, "GLIBC_2.2.5");
OLDER(pthread_spin_lock, "GLIBC_2.2.5");
OLDER(pthread_spin_trylock, "GLIBC_2.2.5");
OLDER(pthread_spin_unlock, "GLIBC_2.2.5");
OLDER(sem_destroy, "GLIBC_2.2.5");
OLDER(sem_init, "GLIBC_2.2.5");
OLDER(sem_post, "GLIBC_2.2.5");
OLDER(sem_timedwait, "GLIBC_2.2.5");
OLDER(sem_trywait, "GLIBC_2.2.5");
OLDER(sem_wait, "GLIBC_2.2.5");
OLDER(shm_open, "GLIBC_2.2.5");
OLDER(shm_unlink, "GLIBC_2.2.5");
#endif

#define HIDDEN __attribute__((visibility("hidden")))

/* Before 2.33 the functions that headers inline calls to had the struct's version in front. */
int __xstat(int version, const char *path, struct stat *result);
int __lxstat(int version, const char *path, struct stat *result);
int __fxstat(int version, int file, struct stat *result);
enum { STAT_VERSION = 1 }; /* of 64-bit machines */

HIDDEN int __wrap_stat(const char *path, struct stat *result) {
    return __xstat(STAT_VERSION, path, result);
}
HIDDEN int __wrap_lstat(const char *path, struct stat *result) {
    return __lxstat(STAT_VERSION, path, result);
}
HIDDEN int __wrap_stat64(const char *path, struct stat *result) {
    return __xstat(STAT_VERSION, path, result);
}
HIDDEN int __wrap_lstat64(const char *path, struct stat *result) {
    return __lxstat(STAT_VERSION, path, result);
}
HIDDEN int __wrap_fstat(int file, struct stat *result) {
    return __fxstat(STAT_VERSION, file, result);
}
HIDDEN int __wrap_fstat64(int file, struct stat *result) {
    return __fxstat(STAT_VERSION, file, result);
}

/* "Perhaps not" is always right: atomic operations are then used. */
HIDDEN char __wrap___libc_single_threaded = 0;

HIDDEN uint32_t __wrap_arc4random(void) {
    uint32_t value = 0;
    while (getrandom(&value, sizeof value, 0) < 0 && errno == EINTR) {
    }
    return value;
}

HIDDEN void __wrap_arc4random_buf(void *buffer, size_t bytes) {
    while (bytes > 0) {
        const ssize_t got = getrandom(buffer, bytes, 0);
        if (got > 0) {
            buffer = (char *)buffer + got;
            bytes -= (size_t)got;
        }
    }
}

/* Since 2.30. The older function waits by the wall clock, which may be set meanwhile: so a wait
 * takes a second at most, and ends as a spurious one does, after which callers wait on. */
HIDDEN int __wrap_pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                         clockid_t clock, const struct timespec *until) {
    enum { SECOND = 1000000000 };
    struct timespec now, end;
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &end) != 0) {
        return EINVAL;
    }
    const int64_t seconds = until->tv_sec - now.tv_sec;
    const int64_t left = seconds > 2    ? 2LL * SECOND
                         : seconds < -2 ? 0
                                        : seconds * SECOND + until->tv_nsec - now.tv_nsec;
    if (left <= 0) {
        return ETIMEDOUT;
    }
    end.tv_nsec += left < SECOND ? left : SECOND - 1;
    end.tv_sec += end.tv_nsec / SECOND;
    end.tv_nsec %= SECOND;
    const int waited = pthread_cond_timedwait(condition, mutex, &end);
    return waited == ETIMEDOUT && left >= SECOND ? 0 : waited;
}

/* What libgcc asks in place of dl_iterate_phdr where there is it. */
struct found {
    uintptr_t address;
    struct dl_find_object *object;
};

static int find(struct dl_phdr_info *info, size_t size, void *user) {
    const struct found *found = user;
    const void *frames = NULL;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uintptr_t place = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD) {
            begin = place < begin ? place : begin;
            end = place + header->p_memsz > end ? place + header->p_memsz : end;
        } else if (header->p_type == PT_GNU_EH_FRAME) {
            frames = (const void *)place;
        }
    }
    if (found->address < begin || found->address >= end || frames == NULL) {
        return 0;
    }
    *found->object = (struct dl_find_object){.dlfo_map_start = (void *)begin,
                                             .dlfo_map_end = (void *)end,
                                             .dlfo_eh_frame = (void *)frames};
    return 1;
}

HIDDEN int __wrap__dl_find_object(void *address, struct dl_find_object *object) {
    struct found found = {(uintptr_t)address, object};
    return dl_iterate_phdr(find, &found) == 1 ? 0 : -1;
}

/* A program's start. Before 2.34 the program itself called its constructors; later versions do so
 * for a program that says how, as all before them did. */
#ifdef STASIS_PROGRAM
typedef int main_fn(int, char **, char **);
typedef void start_fn(int, char **, char **);
extern start_fn *__init_array_start[] HIDDEN, *__init_array_end[] HIDDEN;
__asm__(".symver older_start, __libc_start_main@GLIBC_2.2.5");
int older_start(main_fn *entry, int count, char **arguments, start_fn *init, void (*fini)(void),
                void (*loader_fini)(void), void *stack_end);

static void construct(int count, char **arguments, char **environment) {
    for (start_fn **each = __init_array_start; each < __init_array_end; ++each) {
        (*each)(count, arguments, environment);
    }
}

HIDDEN int __wrap___libc_start_main(main_fn *entry, int count, char **arguments, start_fn *init,
                                    void (*fini)(void), void (*loader_fini)(void),
                                    void *stack_end) {
    (void)init; /* none, nor fini: the loader calls the destructors in all versions */
    return older_start(entry, count, arguments, construct, fini, loader_fini, stack_end);
}
#endif
