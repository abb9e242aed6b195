/*
 * Writes down when each kernel, copy and fill ran on the GPU.
 *
 * The CUDA driver loads the library that CUDA_INJECTION64_PATH names and calls InitializeInjection(), in every program
 * alike: OneFlow 0.8.0, whose CUDA 10.2 is linked into it, and PyTorch. The times come from CUPTI's activity records.
 * Of a program of several ranks only rank 0 is traced.
 *
 * KERNEL_TRACE_FILE names the file; the process's id is appended to its name. It begins to exist with the first record
 * and has these lines:
 *
 *   trace 1 <CUPTI's version> <CUPTI's file>
 *   clock <CUPTI's time> <time since 1970>         both in ns, of the same moment; one for each buffer of records
 *   name <number> <name of a kernel, copy or fill>
 *   <start> <end> <device> <stream> <number>       in CUPTI's ns
 *   dropped <records that CUPTI lost>
 *
 * CUPTI is the one that the program has loaded already, as PyTorch has: two of them in one process would be in each
 * other's way. Else it is the file that KERNEL_TRACE_CUPTI names, or the first of 13, 12 and 11 that the loader finds;
 * RTLD_DEEPBIND keeps it apart from the CUPTI 10.2 that is part of OneFlow's wheel.
 * No header of CUDA is needed here. What is declared below stood at the same places in the records of CUPTI 11.8.87,
 * 12.1.105, 12.9.79, 13.0.85 and 13.5.25: all later versions of a record append to it.
 *
 * Nothing here ends the program. What goes wrong is said on standard error, and the trace is then not there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0 };
enum { MEMCPY = 1, MEMSET = 2, CONCURRENT_KERNEL = 10 };
enum { BUFFER = 1 << 20, ALIGNMENT = 8, FLUSH_MS = 500, NAMES = 1 << 14 };

/* CUpti_ActivityKernel4 and later; CUpti_ActivityMemcpy5 and CUpti_ActivityMemset4 and later. */
struct kernel {
    uint32_t kind;
    uint8_t not_read[12];
    uint64_t start, end;
    uint8_t not_read_either[8];
    uint32_t device, context, stream;
    uint8_t nor_this[52];
    const char *name;
};
struct transfer {
    uint32_t kind;
    uint8_t direction;
    uint8_t not_read[3];
    uint64_t bytes, start, end;
    uint32_t device, context, stream;
};
_Static_assert(offsetof(struct kernel, start) == 16 && offsetof(struct kernel, device) == 40 &&
               offsetof(struct kernel, stream) == 48 && offsetof(struct kernel, name) == 104, "not CUPTI's kernel");
_Static_assert(offsetof(struct transfer, start) == 16 && offsetof(struct transfer, device) == 32 &&
               offsetof(struct transfer, stream) == 40, "not CUPTI's copy");

static const char *const libraries[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11"};
static const char *const directions[] = {"unknown", "host to device", "device to host", "host to array",
                                         "array to host", "array to array", "array to device", "device to array",
                                         "device to device", "host to host", "peer to peer"};
static int (*next_record)(uint8_t *, size_t, void **);
static int (*flush_all)(uint32_t);
static int (*timestamp)(uint64_t *);
static int (*dropped_records)(void *, uint32_t, size_t *);
static char *(*demangle)(const char *, char *, size_t *, int *);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *cupti;
static FILE *trace;
static char *names[NAMES];
static unsigned int known;

static void complain(const char *what, const char *of)
{
    fprintf(stderr, "kernel_trace: %s%s; there is no trace of this process\n", what, of);
}

static void *open_cupti(void)
{
    const size_t count = sizeof libraries / sizeof *libraries;
    const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
    const char *given = getenv("KERNEL_TRACE_CUPTI");
    void *found = NULL;

    for (size_t i = 0; !found && i < count; i++)
        found = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);
    if (!found && given && *given)
        return dlopen(given, flags);
    for (size_t i = 0; !found && i < count; i++)
        found = dlopen(libraries[i], flags);
    return found;
}

static void write_clock(void)
{
    struct timespec now;
    uint64_t at;

    clock_gettime(CLOCK_REALTIME, &now);
    if (timestamp(&at) == SUCCESS)
        fprintf(trace, "clock %" PRIu64 " %lld%09ld\n", at, (long long)now.tv_sec, now.tv_nsec);
}

static int open_trace(void)
{
    const char *stem = getenv("KERNEL_TRACE_FILE");
    int (*version)(uint32_t *) = (int (*)(uint32_t *))dlsym(cupti, "cuptiGetVersion");
    struct link_map *map;
    uint32_t number = 0;
    char path[4096];

    snprintf(path, sizeof path, "%s.%d", stem, (int)getpid());
    trace = fopen(path, "w");
    if (!trace)
        return 0;
    if (version)
        version(&number);
    fprintf(trace, "trace 1 %" PRIu32 " %s\n", number, dlinfo(cupti, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "?");
    return 1;
}

/* The number of a name; a new one is written down. Names are looked up by their text: CUPTI may move them. */
static unsigned int number_of(const char *name)
{
    unsigned int place = 5381;
    int status = -1;
    char *readable;

    for (const char *letter = name; *letter; letter++)
        place = place * 33 + (unsigned char)*letter;
    for (place %= NAMES; names[place]; place = (place + 1) % NAMES)
        if (strcmp(names[place], name) == 0)
            return place;
    if (known == NAMES - 1)
        return NAMES;
    readable = demangle ? demangle(name, NULL, NULL, &status) : NULL;
    fprintf(trace, "name %u %s\n", place, status == 0 ? readable : name);
    free(readable);
    names[place] = strdup(name);
    known += names[place] != NULL;
    return place;
}

/* What had not ended when the program did has no times, and is left out. */
static void write_line(uint64_t start, uint64_t end, uint32_t device, uint32_t stream, const char *name)
{
    if (start && end) {
        const unsigned int number = number_of(name);
        fprintf(trace, "%" PRIu64 " %" PRIu64 " %u %u %u\n", start, end, device, stream, number);
    }
}

static void write_record(const void *record)
{
    const struct kernel *kernel = record;
    const struct transfer *copy = record;
    const size_t kinds = sizeof directions / sizeof *directions;
    char name[64] = "Memset";

    if (kernel->kind == CONCURRENT_KERNEL) {
        write_line(kernel->start, kernel->end, kernel->device, kernel->stream, kernel->name ? kernel->name : "?");
    } else if (copy->kind == MEMCPY || copy->kind == MEMSET) {
        if (copy->kind == MEMCPY)
            snprintf(name, sizeof name, "Memcpy %s", directions[copy->direction < kinds ? copy->direction : 0]);
        write_line(copy->start, copy->end, copy->device, copy->stream, name);
    }
}

static void give_buffer(uint8_t **buffer, size_t *size, size_t *most_records)
{
    *buffer = aligned_alloc(ALIGNMENT, BUFFER);
    *size = *buffer ? BUFFER : 0;
    *most_records = 0;
}

static void take_buffer(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t filled)
{
    void *record = NULL;
    size_t dropped = 0;

    (void)size;
    pthread_mutex_lock(&lock);
    if (filled && (trace || open_trace())) {
        write_clock();
        while (next_record(buffer, filled, &record) == SUCCESS)
            write_record(record);
        if (dropped_records && dropped_records(context, stream, &dropped) == SUCCESS && dropped)
            fprintf(trace, "dropped %zu\n", dropped);
        fflush(trace);
    }
    pthread_mutex_unlock(&lock);
    free(buffer);
}

static void finish(void)
{
    flush_all(1);
}

/* Gives 0, and says why, if CUPTI does not trace. */
static int start(void)
{
    static const int kinds[] = {CONCURRENT_KERNEL, MEMCPY, MEMSET};
    int (*enable)(int) = (int (*)(int))dlsym(cupti, "cuptiActivityEnable");
    int (*register_callbacks)(void *, void *) = (int (*)(void *, void *))dlsym(cupti, "cuptiActivityRegisterCallbacks");
    int (*flush_period)(uint32_t) = (int (*)(uint32_t))dlsym(cupti, "cuptiActivityFlushPeriod");

    next_record = (int (*)(uint8_t *, size_t, void **))dlsym(cupti, "cuptiActivityGetNextRecord");
    flush_all = (int (*)(uint32_t))dlsym(cupti, "cuptiActivityFlushAll");
    timestamp = (int (*)(uint64_t *))dlsym(cupti, "cuptiGetTimestamp");
    dropped_records = (int (*)(void *, uint32_t, size_t *))dlsym(cupti, "cuptiActivityGetNumDroppedRecords");
    if (!enable || !register_callbacks || !next_record || !flush_all || !timestamp) {
        complain("this CUPTI lacks functions of the activity API", "");
        return 0;
    }
    int status = register_callbacks((void *)give_buffer, (void *)take_buffer);
    for (size_t i = 0; status == SUCCESS && i < sizeof kinds / sizeof *kinds; i++)
        status = enable(kinds[i]);
    if (status != SUCCESS) {
        char number[16];
        snprintf(number, sizeof number, "%d", status);
        complain("CUPTI refuses to trace, with status ", number);
        return 0;
    }
    if (flush_period)
        flush_period(FLUSH_MS);
    return 1;
}

/* Called by the driver when the program initialises CUDA. */
int InitializeInjection(void)
{
    const char *rank = getenv("RANK"), *stem = getenv("KERNEL_TRACE_FILE");
    void *standard;

    if (!stem || !*stem || (rank && strcmp(rank, "0") != 0) || cupti)
        return 1;
    cupti = open_cupti();
    if (!cupti) {
        complain("CUPTI cannot be opened: ", dlerror());
        return 1;
    }
    standard = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
    if (standard)
        demangle = (char *(*)(const char *, char *, size_t *, int *))dlsym(standard, "__cxa_demangle");
    if (start())
        atexit(finish);
    return 1;
}
