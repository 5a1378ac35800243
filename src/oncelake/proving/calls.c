/*
 * Preloaded (LD_PRELOAD) into every process of a job under proof. Each call that changes a file below the watched
 * folders is numbered across all threads and processes, and written to a journal; at a chosen number the job is killed,
 * the call fails, its reply is lost, or the process stops. Nothing else changes: outside the folders, and while the
 * control page is off, every call is passed through.
 *
 * The control page is a file shared by all processes and by the prover; calls.py repeats its layout.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MAX_FOLDERS = 16, MAX_JVMS = 16 };
enum action { NOTHING, KILL, FAIL, LOSE, STOP };
enum kind { CREATE = 1, WRITE, TRUNCATE, MKDIR, RENAME, LINK, UNLINK, RMDIR, SYMLINK };
enum who { PYTHON = 1, JVM = 2 };

struct control {
    uint32_t on;               /* 1 while calls are numbered */
    uint32_t action;
    uint64_t count;            /* calls numbered so far */
    uint64_t at;               /* the number at which to act; 0: never */
    uint32_t error;            /* the errno of FAIL and LOSE */
    uint32_t onwards;          /* FAIL also every later call that needs space */
    uint32_t who;              /* which processes KILL kills */
    uint32_t driver;           /* the pid of the Python driver */
    uint32_t acted;            /* set when the action was taken */
    uint32_t epoch;            /* incremented for every new journal */
    uint32_t jvms[MAX_JVMS];
    uint32_t folders;
    char journal[PATH_MAX];
    char folder[MAX_FOLDERS][PATH_MAX];
    uint32_t ready;            /* the lock below is initialised */
    pthread_mutex_t lock;
};

struct record {                /* in the journal, followed by both paths and the data */
    uint64_t number, offset, length;
    uint32_t kind, failed, jvm, first, second, pad;
};

struct call {
    enum kind kind;
    uint64_t number;           /* 0: not numbered */
    int fails, lost;
    char first[PATH_MAX], second[PATH_MAX];
};

static struct control *control;
static int journal = -1, in_jvm;
static uint32_t journal_epoch;

static void start(void) __attribute__((constructor));
static void start(void)
{
    const char *path = getenv("ONCELAKE_CALLS");
    if (!path)
        return;
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (file < 0)
        return;
    struct control *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        return;
    flock(file, LOCK_EX);
    if (!page->ready) {
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST); /* its holder may be killed */
        pthread_mutex_init(&page->lock, &kind);
        page->ready = 1;
    }
    char name[32] = "";
    int comm = syscall(SYS_openat, AT_FDCWD, "/proc/self/comm", O_RDONLY, 0);
    if (comm >= 0 && syscall(SYS_read, comm, name, sizeof name - 1) > 0 && !strncmp(name, "java\n", 5)) {
        in_jvm = 1;
        for (int i = 0; i < MAX_JVMS; i++)
            if (!page->jvms[i]) {
                page->jvms[i] = getpid();
                break;
            }
    }
    if (comm >= 0)
        syscall(SYS_close, comm);
    flock(file, LOCK_UN);
    syscall(SYS_close, file);
    control = page;
}

/* --- which paths are watched ------------------------------------------------------------------------------------- */

static int below(const char *path)
{
    for (uint32_t i = 0; i < control->folders; i++) {
        size_t n = strlen(control->folder[i]);
        if (!strncmp(path, control->folder[i], n) && (path[n] == '/' || !path[n]))
            return 1;
    }
    return 0;
}

static void tidy(char *path) /* "a//b/./c/" is "a/b/c" */
{
    char *to = path;
    for (char *from = path; *from;) {
        if (from[0] == '/' && (from[1] == '/' || !from[1]) && from != path)
            from++;
        else if (from[0] == '/' && from[1] == '.' && (from[2] == '/' || !from[2]))
            from += 2;
        else
            *to++ = *from++;
    }
    *to = 0;
}

static int of_descriptor(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (n <= 0)
        return 0;
    path[n] = 0;
    return path[0] == '/';
}

/* The absolute path, and whether it is below a watched folder, also by way of symbolic links. */
static int ours(int folder, const char *path, char *whole)
{
    if (!control || !control->on || !path)
        return 0;
    if (path[0] == '/')
        snprintf(whole, PATH_MAX, "%s", path);
    else {
        char base[PATH_MAX];
        if (folder == AT_FDCWD ? !getcwd(base, sizeof base) : !of_descriptor(folder, base))
            return 0;
        if (snprintf(whole, PATH_MAX, "%s/%s", base, path) >= PATH_MAX)
            return 0;
    }
    tidy(whole);
    if (below(whole))
        return 1;
    char parent[PATH_MAX], real[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", whole);
    char *name = strrchr(parent, '/');
    if (!name || name == parent)
        return 0;
    *name++ = 0;
    if (!realpath(parent, real) || snprintf(whole, PATH_MAX, "%s/%s", real, name) >= PATH_MAX)
        return 0;
    return below(whole);
}

static int there(const char *path)
{
    struct stat facts;
    return !syscall(SYS_newfstatat, AT_FDCWD, path, &facts, AT_SYMLINK_NOFOLLOW);
}

/* --- numbering, acting, recording ------------------------------------------------------------------------------ */

static void act_kill(void)
{
    for (int i = 0; i < MAX_JVMS && (control->who & JVM); i++)
        if (control->jvms[i] && control->jvms[i] != (uint32_t)getpid())
            kill(control->jvms[i], SIGKILL);
    if ((control->who & PYTHON) && control->driver != (uint32_t)getpid())
        kill(control->driver, SIGKILL);
    if (in_jvm ? control->who & JVM : (control->who & PYTHON) && control->driver == (uint32_t)getpid())
        kill(getpid(), SIGKILL);
}

static void acquire(void)
{
    if (pthread_mutex_lock(&control->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&control->lock);
}

static void begin(struct call *call, enum kind kind, int changes)
{
    int before = errno;
    call->kind = kind;
    call->number = 0;
    call->fails = call->lost = 0;
    acquire();
    if (!changes || !control->on) {
        errno = before;
        return;
    }
    call->number = ++control->count;
    int here = control->at && call->number == control->at;
    int later = control->at && control->onwards && call->number > control->at && (kind <= MKDIR && kind != TRUNCATE);
    if (here)
        control->acted = 1;
    if (here && control->action == KILL)
        act_kill();
    if (here && control->action == STOP) {
        pthread_mutex_unlock(&control->lock);
        kill(getpid(), SIGSTOP);
        acquire();
    }
    call->fails = (here || later) && control->action == FAIL;
    call->lost = here && control->action == LOSE;
    errno = before;
}

static void note(struct call *call, int failed, uint64_t offset, const void *data, uint64_t length)
{
    if (journal_epoch != control->epoch) {
        if (journal >= 0)
            syscall(SYS_close, journal);
        journal = syscall(SYS_openat, AT_FDCWD, control->journal, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        journal_epoch = control->epoch;
    }
    struct record record = {
        .number = call->number, .offset = offset, .length = length, .kind = call->kind, .failed = failed,
        .jvm = in_jvm, .first = strlen(call->first), .second = strlen(call->second),
    };
    struct iovec parts[] = {
        {&record, sizeof record}, {call->first, record.first}, {call->second, record.second}, {(void *)data, length},
    };
    syscall(SYS_writev, journal, parts, 4);
}

/* Return the result to the caller, or -1 if the call is to fail or its reply is to be lost. */
static long end(struct call *call, long result, uint64_t offset, const void *data, uint64_t length)
{
    int error = call->fails || call->lost ? (int)control->error : errno;
    if (call->number)
        note(call, result < 0, offset, data, result < 0 ? 0 : length);
    pthread_mutex_unlock(&control->lock);
    errno = error;
    return call->lost ? -1 : result;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* --- calls on names --------------------------------------------------------------------------------------------- */

static int is_folder(const char *path)
{
    struct stat facts;
    return !syscall(SYS_newfstatat, AT_FDCWD, path, &facts, AT_SYMLINK_NOFOLLOW) && S_ISDIR(facts.st_mode);
}

#define CHANGES(name, PARAMETERS, folder, ARGUMENTS, kind, changes, data) \
    int name PARAMETERS \
    { \
        REAL(name); \
        struct call call = {.second = ""}; \
        if (!ours(folder, path, call.first)) \
            return real ARGUMENTS; \
        begin(&call, kind, changes); \
        return end(&call, call.fails ? -1 : real ARGUMENTS, 0, data, strlen(data)); \
    }
#define MAKES_FOLDER(name, PARAMETERS, folder, ARGUMENTS) \
    CHANGES(name, PARAMETERS, folder, ARGUMENTS, MKDIR, !there(call.first), "")
#define REMOVES(name, PARAMETERS, folder, ARGUMENTS) \
    CHANGES(name, PARAMETERS, folder, ARGUMENTS, is_folder(call.first) ? RMDIR : UNLINK, there(call.first), "")
#define LINKS(name, PARAMETERS, folder, ARGUMENTS) \
    CHANGES(name, PARAMETERS, folder, ARGUMENTS, SYMLINK, !there(call.first), target)
MAKES_FOLDER(mkdir, (const char *path, mode_t mode), AT_FDCWD, (path, mode))
MAKES_FOLDER(mkdirat, (int at, const char *path, mode_t mode), at, (at, path, mode))
REMOVES(unlink, (const char *path), AT_FDCWD, (path))
REMOVES(remove, (const char *path), AT_FDCWD, (path))
REMOVES(rmdir, (const char *path), AT_FDCWD, (path))
REMOVES(unlinkat, (int at, const char *path, int flags), at, (at, path, flags))
LINKS(symlink, (const char *target, const char *path), AT_FDCWD, (target, path))
LINKS(symlinkat, (const char *target, int at, const char *path), at, (target, at, path))

/* A rename into the folders from outside, or out of them, is not followed: the prover compares what it replays with
 * what is on disk at the end and says so. */
#define MOVES(name, kind, PARAMETERS, from_folder, to_folder, ARGUMENTS, changes) \
    int name PARAMETERS \
    { \
        REAL(name); \
        struct call call; \
        int first = ours(from_folder, from, call.first), second = ours(to_folder, to, call.second); \
        if (!first || !second) \
            return real ARGUMENTS; \
        begin(&call, kind, changes); \
        return end(&call, call.fails ? -1 : real ARGUMENTS, 0, NULL, 0); \
    }
MOVES(rename, RENAME, (const char *from, const char *to), AT_FDCWD, AT_FDCWD, (from, to), there(call.first))
MOVES(renameat, RENAME, (int at, const char *from, int at2, const char *to), at, at2, (at, from, at2, to),
      there(call.first))
MOVES(renameat2, RENAME, (int at, const char *from, int at2, const char *to, unsigned flags), at, at2,
      (at, from, at2, to, flags), there(call.first) && !((flags & RENAME_NOREPLACE) && there(call.second)))
MOVES(link, LINK, (const char *from, const char *to), AT_FDCWD, AT_FDCWD, (from, to),
      there(call.first) && !there(call.second))
MOVES(linkat, LINK, (int at, const char *from, int at2, const char *to, int flags), at, at2,
      (at, from, at2, to, flags), there(call.first) && !there(call.second))

/* --- opening ------------------------------------------------------------------------------------------------------- */

static int opening(struct call *call, int flags)
{
    struct stat facts;
    int exists = !syscall(SYS_newfstatat, AT_FDCWD, call->first, &facts, 0);
    begin(call, exists ? TRUNCATE : CREATE, exists ? (flags & O_TRUNC) && facts.st_size : flags & O_CREAT);
    return call->fails;
}

#define OPENS(name, PARAMETERS, folder, LAST, ARGUMENTS) \
    int name PARAMETERS \
    { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, LAST); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        struct call call = {.second = ""}; \
        if (!(flags & (O_CREAT | O_TRUNC)) || !ours(folder, path, call.first)) \
            return real ARGUMENTS; \
        return end(&call, opening(&call, flags) ? -1 : real ARGUMENTS, 0, NULL, 0); \
    }
OPENS(open, (const char *path, int flags, ...), AT_FDCWD, flags, (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD, flags, (path, flags, mode))
OPENS(openat, (int at, const char *path, int flags, ...), at, flags, (at, path, flags, mode))
OPENS(openat64, (int at, const char *path, int flags, ...), at, flags, (at, path, flags, mode))

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* --- calls on open files --------------------------------------------------------------------------------------------- */

static int ours_open(int file, struct call *call)
{
    return control && control->on && of_descriptor(file, call->first) && below(call->first);
}

static uint64_t position(int file, long written)
{
    return (uint64_t)(syscall(SYS_lseek, file, 0, SEEK_CUR) - written);
}

ssize_t write(int file, const void *data, size_t length)
{
    REAL(write);
    struct call call = {.second = ""};
    if (!ours_open(file, &call))
        return real(file, data, length);
    begin(&call, WRITE, length > 0);
    ssize_t n = call.fails ? -1 : real(file, data, length);
    return end(&call, n, n < 0 ? 0 : position(file, n), data, n < 0 ? 0 : n);
}

#define WRITES_AT(name, type) \
    ssize_t name(int file, const void *data, size_t length, type offset) \
    { \
        REAL(name); \
        struct call call = {.second = ""}; \
        if (!ours_open(file, &call)) \
            return real(file, data, length, offset); \
        begin(&call, WRITE, length > 0); \
        ssize_t n = call.fails ? -1 : real(file, data, length, offset); \
        return end(&call, n, offset, data, n < 0 ? 0 : n); \
    }
WRITES_AT(pwrite, off_t)
WRITES_AT(pwrite64, off64_t)

/* Data that a call wrote from a buffer we cannot see is read back from the file. */
static ssize_t end_unseen(struct call *call, int file, ssize_t n, uint64_t offset)
{
    char *data = n > 0 ? malloc(n) : NULL;
    if (data) {
        int error = errno;
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        int again = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
        if (again < 0 || syscall(SYS_pread64, again, data, n, offset) != n)
            memset(data, 0, n);
        if (again >= 0)
            syscall(SYS_close, again);
        errno = error;
    }
    ssize_t result = end(call, n, offset, data, n > 0 ? n : 0);
    free(data);
    return result;
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    REAL(writev);
    struct call call = {.second = ""};
    if (!ours_open(file, &call))
        return real(file, parts, count);
    begin(&call, WRITE, 1);
    ssize_t n = call.fails ? -1 : real(file, parts, count);
    return end_unseen(&call, file, n, n < 0 ? 0 : position(file, n));
}

#define SENDS(name, type) \
    ssize_t name(int file, int from, type *offset, size_t length) \
    { \
        REAL(name); \
        struct call call = {.second = ""}; \
        if (!ours_open(file, &call)) \
            return real(file, from, offset, length); \
        begin(&call, WRITE, length > 0); \
        ssize_t n = call.fails ? -1 : real(file, from, offset, length); \
        return end_unseen(&call, file, n, n < 0 ? 0 : position(file, n)); \
    }
SENDS(sendfile, off_t)
SENDS(sendfile64, off64_t)

ssize_t copy_file_range(int from, off64_t *at, int file, off64_t *offset, size_t length, unsigned flags)
{
    REAL(copy_file_range);
    struct call call = {.second = ""};
    if (!ours_open(file, &call))
        return real(from, at, file, offset, length, flags);
    begin(&call, WRITE, length > 0);
    ssize_t n = call.fails ? -1 : real(from, at, file, offset, length, flags);
    return end_unseen(&call, file, n, n < 0 ? 0 : offset ? (uint64_t)(*offset - n) : position(file, n));
}

#define CUTS(name, type) \
    int name(int file, type length) \
    { \
        REAL(name); \
        struct call call = {.second = ""}; \
        struct stat facts; \
        if (!ours_open(file, &call)) \
            return real(file, length); \
        begin(&call, TRUNCATE, syscall(SYS_fstat, file, &facts) || facts.st_size != length); \
        return end(&call, call.fails ? -1 : real(file, length), length, NULL, 0); \
    }
CUTS(ftruncate, off_t)
CUTS(ftruncate64, off64_t)
