/*
 * The machine in the text file: read it, apply its faults, look answers up.
 *
 * Included once, by libnvidia-ml.c, whose first comment has the format of both files.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25,
};

enum { MAX_GPUS = 64, MAX_MIG = 16, TEXT = 1024, KEY = 128, MAX_FAULTS = 64 };

typedef struct { int gpu, mig; } Device; /* mig is -1 for the whole GPU */
typedef struct { char key[KEY], text[TEXT]; int code; } Line;
typedef struct { char kind[16], function[80]; int number; char text[TEXT]; } Fault;
typedef struct { int code, garbage; char text[TEXT]; } Answer;
typedef struct { time_t seconds; long nanoseconds; off_t size; ino_t inode; } Stamp;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Line *lines;
static size_t line_count;
static Fault faults[MAX_FAULTS];
static size_t fault_count;
static Stamp lines_stamp, faults_stamp;
static int initialised;

/* ---- the two files ---------------------------------------------------------------------- */

static char *trim(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1])) *--end = 0;
    return text;
}

static void copy(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from);
}

static FILE *changed(const char *name, Stamp *stamp, int *is_missing) {
    char path[4096];
    struct stat now;
    const char *directory = getenv("NODETOPO_FAKE_NVML");
    snprintf(path, sizeof path, "%s/%s", directory ? directory : "", name);
    *is_missing = !directory || stat(path, &now) != 0;
    if (*is_missing) return NULL;
    Stamp found = {now.st_mtim.tv_sec, now.st_mtim.tv_nsec, now.st_size, now.st_ino};
    if (found.seconds == stamp->seconds && found.nanoseconds == stamp->nanoseconds &&
        found.size == stamp->size && found.inode == stamp->inode)
        return NULL;
    *stamp = found;
    return fopen(path, "r");
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const Line *)a)->key, ((const Line *)b)->key);
}

static void add_line(char *text) {
    char *comment = strchr(text, '#'), *equals, *rest;
    if (comment) *comment = 0;
    equals = strstr(text, " = ");
    if (!equals) return;
    *equals = 0;
    Line *grown = realloc(lines, (line_count + 1) * sizeof *lines);
    if (!grown) abort();
    lines = grown;
    Line *line = &lines[line_count++];
    copy(line->key, sizeof line->key, trim(text));
    line->code = (int)strtol(equals + 3, &rest, 10);
    copy(line->text, sizeof line->text, trim(rest));
}

static void add_fault(char *text) {
    Fault *fault = &faults[fault_count];
    char *comment = strchr(text, '#');
    if (comment) *comment = 0;
    memset(fault, 0, sizeof *fault);
    if (sscanf(text, "%15s %79s %d", fault->kind, fault->function, &fault->number) < 2) return;
    copy(fault->text, sizeof fault->text, trim(trim(text) + strlen(fault->kind)));
    if (fault_count < MAX_FAULTS - 1) fault_count++;
}

static int refresh(void) { /* with the lock held; returns whether there is a machine */
    char text[TEXT + KEY];
    int is_missing;
    FILE *file = changed("faults", &faults_stamp, &is_missing);
    if (file || is_missing) fault_count = 0;
    if (is_missing) memset(&faults_stamp, 0, sizeof faults_stamp);
    while (file && fgets(text, sizeof text, file)) add_fault(text);
    if (file) fclose(file);
    file = changed("nvml.txt", &lines_stamp, &is_missing);
    if (file) line_count = 0;
    while (file && fgets(text, sizeof text, file)) add_line(text);
    if (file) fclose(file), qsort(lines, line_count, sizeof *lines, by_key);
    return !is_missing;
}

static const Line *find(const char *key) {
    Line wanted;
    copy(wanted.key, sizeof wanted.key, key);
    return line_count ? bsearch(&wanted, lines, line_count, sizeof *lines, by_key) : NULL;
}

/* ---- faults ----------------------------------------------------------------------------- */

static const Fault *fault(const char *kind, const char *function) {
    for (size_t i = 0; i < fault_count; i++)
        if (!strcmp(faults[i].kind, kind) &&
            (!strcmp(faults[i].function, function) || !strcmp(faults[i].function, "*")))
            return &faults[i];
    return NULL;
}

static int is_lost(int gpu, int only_gone) {
    for (size_t i = 0; i < fault_count; i++)
        if (gpu >= 0 && atoi(faults[i].function) == gpu &&
            (!strcmp(faults[i].kind, "gone") || (!only_gone && !strcmp(faults[i].kind, "lost"))))
            return 1;
    return 0;
}

static void sleep_ms(int ms) {
    struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&time, NULL);
}

/* Go to sleep in the kernel, where no signal reaches, if the file's file system is frozen. */
static void write_through(const char *path) {
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || write(file, "x", 1) != 1 || fsync(file)) abort();
    close(file);
}

static void leak(size_t size) {
    static void *volatile kept;
    void **more = malloc(size);
    if (!more) abort();
    memset(more, 1, size); /* only then is it resident */
    *more = kept, kept = more;
}

/* Apply what comes before any answer; returns a code to give, or -1 to go on. */
static int enter(const char *function, int gpu, int *is_garbage) {
    pthread_mutex_lock(&lock);
    int has_machine = refresh(), code = -1;
    int hangs = fault("hang", function) != NULL, crashes = fault("crash", function) != NULL;
    const Fault *slow = fault("slow", function), *coded = fault("code", function);
    const Fault *written = fault("fsync", function), *leaking = fault("leak", function);
    int delay = slow ? slow->number : 0;
    char path[TEXT] = "";
    if (written) copy(path, sizeof path, written->text + strlen(written->function) + 1);
    *is_garbage = fault("garbage", function) != NULL;
    if (leaking) leak((size_t)leaking->number << 10);
    if (coded) code = coded->number;
    else if (!has_machine) code = DRIVER_NOT_LOADED;
    else if (is_lost(gpu, 0)) code = GPU_IS_LOST;
    else if (!initialised && strncmp(function, "nvmlInit", 8)) code = UNINITIALIZED;
    pthread_mutex_unlock(&lock);
    if (crashes) raise(SIGKILL);
    if (*path) write_through(path);
    while (hangs) pause();
    if (delay) sleep_ms(delay);
    return code;
}

/* ---- answers ---------------------------------------------------------------------------- */

static Answer ask_at(const char *function, int gpu, const char *format, ...) {
    char key[KEY];
    Answer answer = {.code = NOT_SUPPORTED};
    va_list arguments;
    int code = enter(function, gpu, &answer.garbage);
    if (code != -1 || answer.garbage) {
        answer.code = code == -1 ? SUCCESS : code;
        return answer;
    }
    size_t used = (size_t)snprintf(key, sizeof key, "%s", function);
    va_start(arguments, format);
    if (*format) vsnprintf(key + used, sizeof key - used, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    const Line *line = find(key);
    if (line) {
        answer.code = line->code;
        copy(answer.text, sizeof answer.text, line->text);
    }
    pthread_mutex_unlock(&lock);
    return answer;
}

static const char *name_of(const Device *device, char *text, size_t size) {
    if (device->mig < 0) snprintf(text, size, "%d", device->gpu);
    else snprintf(text, size, "%d:%d", device->gpu, device->mig);
    return text;
}

static Answer ask(const char *function, const Device *device, int argument) {
    char name[32];
    Answer invalid = {.code = INVALID_ARGUMENT};
    if (!device) return invalid;
    name_of(device, name, sizeof name);
    return argument < 0 ? ask_at(function, device->gpu, " %s", name)
                        : ask_at(function, device->gpu, " %s %d", name, argument);
}

static const char *part(const Answer *answer, int position) {
    const char *at = answer->text;
    while (position-- && at)
        if ((at = strchr(at, '|'))) at++;
    while (at && *at == ' ') at++;
    return at ? at : "0";
}

static unsigned number(const Answer *answer, int position) {
    if (answer->garbage) return 0xa5a5a5a5u;
    return (unsigned)strtoul(part(answer, position), NULL, 0);
}

static int give_text(Answer answer, char *to, unsigned size) {
    if (answer.code != SUCCESS) return answer.code;
    if (answer.garbage) copy(answer.text, sizeof answer.text, "\xa5\xff\xfe");
    if (strlen(answer.text) + 1 > size) return INSUFFICIENT_SIZE;
    copy(to, size, answer.text);
    return SUCCESS;
}

static int give_1(Answer answer, unsigned *a) {
    if (answer.code == SUCCESS) *a = number(&answer, 0);
    return answer.code;
}

static int give_2(Answer answer, unsigned *a, unsigned *b) {
    if (answer.code == SUCCESS) *a = number(&answer, 0), *b = number(&answer, 1);
    return answer.code;
}

static int give_pair(const char *function, Device *a, Device *b, int argument, unsigned *to) {
    char extra[16] = "";
    if (!a || !b) return INVALID_ARGUMENT;
    if (argument >= 0) snprintf(extra, sizeof extra, " %d", argument);
    Answer answer = ask_at(function, a->gpu, " %d %d%s", a->gpu, b->gpu, extra);
    if (answer.code == NOT_SUPPORTED) /* a file may list one direction for both */
        answer = ask_at(function, b->gpu, " %d %d%s", b->gpu, a->gpu, extra);
    pthread_mutex_lock(&lock);
    if (is_lost(b->gpu, 0)) answer.code = GPU_IS_LOST;
    pthread_mutex_unlock(&lock);
    return give_1(answer, to);
}
