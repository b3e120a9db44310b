/*
 * Events: a test appends them to the file `events`, every event set reads on from its own place.
 *
 * One kind of event a line: `<gpu[:slot]> <xid|mig|unavailable|recovery> [code] [count]`, of which
 * each wait hands out one. A set begins at the end of the file as it was at its first registration.
 * Where a file `registered` exists, each registration adds a line to it: `<pid> <gpu> <types>`,
 * and each set that is freed adds `<pid> freed`.
 *
 * A wait sleeps until the directory changes, as a driver's does until there is an event; where no
 * watch can be had, it looks every 100 ms.
 *
 * Included once, by libnvidia-ml.c.
 */
enum { TIMEOUT = 10, POLL_MS = 100, NO_INSTANCE = -1 };

/* nvmlEventType*: all that a recent driver was seen to offer and a test may inject. */
enum { SINGLE_BIT = 0x1, DOUBLE_BIT = 0x2, XID = 0x8, MIG_CHANGE = 0x100, UNAVAILABLE = 0x4000,
       RECOVERY = 0x8000 };

typedef struct {
    Device *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance; /* not in the struct of the older wait */
} EventData;

typedef struct {
    unsigned long long types[MAX_GPUS]; /* registered ones */
    int file, watch, is_registered;
    off_t at;
    EventData event; /* handed out `left` more times */
    unsigned long long left;
} EventSet;

static int open_in_machine(const char *name, int flags) {
    char path[4096];
    const char *directory = getenv("NODETOPO_FAKE_NVML");
    snprintf(path, sizeof path, "%s/%s", directory ? directory : "", name);
    return open(path, flags | O_CLOEXEC);
}

static void tell(const char *format, ...) {
    int file = open_in_machine("registered", O_WRONLY | O_APPEND);
    va_list arguments;
    if (file < 0) return;
    va_start(arguments, format);
    vdprintf(file, format, arguments);
    va_end(arguments);
    close(file);
}

/* Returns -1 where there is no watch. */
static int watch_machine(void) {
    const char *directory = getenv("NODETOPO_FAKE_NVML");
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch >= 0 && inotify_add_watch(watch, directory ? directory : "/", IN_MODIFY | IN_CREATE) < 0) {
        close(watch);
        return -1;
    }
    return watch;
}

int nvmlEventSetCreate(EventSet **to) {
    int is_garbage, code = enter("nvmlEventSetCreate", -1, &is_garbage);
    if (code != -1) return code;
    *to = calloc(1, sizeof **to);
    if (!*to) abort();
    (*to)->file = -1;
    (*to)->watch = watch_machine();
    return SUCCESS;
}

int nvmlEventSetFree(EventSet *set) {
    int is_garbage, code = enter("nvmlEventSetFree", -1, &is_garbage);
    if (code != -1) return code;
    tell("%d freed\n", getpid());
    if (set->file >= 0) close(set->file);
    if (set->watch >= 0) close(set->watch);
    free(set);
    return SUCCESS;
}

/* Apply the faults of a function whose line in the machine's file may be missing. */
static int optional(const char *function, Device *device, Answer *answer) {
    int is_garbage, code;
    if (!device) return INVALID_ARGUMENT;
    code = enter(function, device->gpu, &is_garbage);
    if (code != -1) return code;
    *answer = ask(function, device, -1);
    return answer->code == NOT_SUPPORTED ? SUCCESS : answer->code;
}

/* A driver of today, unless the machine's file has a mask of its own. */
int nvmlDeviceGetSupportedEventTypes(Device *device, unsigned long long *to) {
    Answer answer;
    int code = optional("nvmlDeviceGetSupportedEventTypes", device, &answer);
    if (code != SUCCESS) return code;
    *to = SINGLE_BIT | DOUBLE_BIT | XID | MIG_CHANGE | UNAVAILABLE | RECOVERY;
    if (answer.code == SUCCESS) *to = number(&answer, 0);
    return SUCCESS;
}

/* A line in the machine's file is needed only to make one fail. */
int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, EventSet *set) {
    unsigned long long supported;
    Answer answer;
    if (!set || !types) return INVALID_ARGUMENT;
    int code = optional("nvmlDeviceRegisterEvents", device, &answer);
    if (code == SUCCESS) code = nvmlDeviceGetSupportedEventTypes(device, &supported);
    if (code != SUCCESS) return code;
    if (types & ~supported) return NOT_SUPPORTED;
    if (set->file < 0) set->file = open_in_machine("events", O_RDONLY);
    if (!set->is_registered && set->file >= 0) set->at = lseek(set->file, 0, SEEK_END);
    set->is_registered = 1;
    set->types[device->gpu] |= types;
    tell("%d %d %#llx\n", getpid(), device->gpu, types);
    return SUCCESS;
}

static unsigned long long type_of(const char *word) {
    if (!strcmp(word, "xid")) return XID;
    if (!strcmp(word, "mig")) return MIG_CHANGE;
    if (!strcmp(word, "unavailable")) return UNAVAILABLE;
    return strcmp(word, "recovery") ? 0 : RECOVERY;
}

/* Read one whole line; returns 0 where there is none yet. */
static int next_line(EventSet *set, char *text, size_t size) {
    if (set->file < 0) set->file = open_in_machine("events", O_RDONLY);
    ssize_t got = set->file < 0 ? 0 : pread(set->file, text, size - 1, set->at);
    text[got > 0 ? got : 0] = 0;
    char *end = strchr(text, '\n');
    if (!end) return 0;
    *end = 0;
    set->at += end + 1 - text;
    return 1;
}

static int next_event(EventSet *set, EventData *to) {
    char text[128], kind[16];
    while (!set->left && next_line(set, text, sizeof text)) {
        unsigned long long code = 0, count = 1;
        int gpu = 0, slot = -1, used = 0;
        if (sscanf(text, "%d%n:%d%n", &gpu, &used, &slot, &used) < 1) continue;
        if (sscanf(text + used, "%15s %llu %llu", kind, &code, &count) < 1) continue;
        if (gpu < 0 || gpu >= MAX_GPUS || slot >= MAX_MIG) continue;
        if (!(set->types[gpu] & type_of(kind))) continue;
        set->event = (EventData){&devices[gpu][slot + 1], type_of(kind), code,
                                 (unsigned)NO_INSTANCE, (unsigned)NO_INSTANCE};
        set->left = count;
    }
    if (!set->left) return 0;
    set->left--;
    *to = set->event;
    return 1;
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static int wait_for_event(const char *function, EventSet *set, EventData *to, unsigned ms) {
    int is_garbage, code = enter(function, -1, &is_garbage);
    if (code != -1) return code;
    if (!set) return INVALID_ARGUMENT;
    long long left, end = now_ms() + ms;
    for (;;) {
        char changes[4096];
        while (set->watch >= 0 && read(set->watch, changes, sizeof changes) > 0) continue;
        if (next_event(set, to)) return SUCCESS;
        left = end - now_ms();
        if (left <= 0) return TIMEOUT;
        if (set->watch < 0 && left > POLL_MS) left = POLL_MS;
        struct pollfd change = {set->watch, POLLIN, 0};
        poll(&change, 1, (int)(left < INT_MAX ? left : INT_MAX));
    }
}

/* The older struct ends before the instances. */
int nvmlEventSetWait(EventSet *set, EventData *to, unsigned ms) {
    EventData event;
    int code = wait_for_event("nvmlEventSetWait", set, &event, ms);
    if (code == SUCCESS) memcpy(to, &event, offsetof(EventData, gpu_instance));
    return code;
}

#ifndef WITHOUT_NEWER
int nvmlEventSetWait_v2(EventSet *set, EventData *to, unsigned ms) {
    return wait_for_event("nvmlEventSetWait_v2", set, to, ms);
}
#endif
