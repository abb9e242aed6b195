/*
 * Stands in for CUPTI: what is registered and enabled is kept, and a flush hands over a buffer of records,
 * one of them unfinished.
 *
 * Fields are written at the offsets of CUPTI 13.0's headers, which are given as numbers here, so that a wrong
 * declaration in the tracer is seen.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNEL = 216, MEMCPY = 96, MEMSET = 88, MAX_LIMIT_REACHED = 12 };

static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static int enabled[64];

static void put32(uint8_t *at, uint32_t value) { memcpy(at, &value, sizeof value); }
static void put64(uint8_t *at, uint64_t value) { memcpy(at, &value, sizeof value); }

static size_t kernel(uint8_t *at, uint64_t start, uint64_t end, uint32_t stream, const char *name)
{
    put32(at, 10);
    put64(at + 16, start);
    put64(at + 24, end);
    put32(at + 40, 3);
    put32(at + 48, stream);
    memcpy(at + 104, &name, sizeof name);
    return KERNEL;
}

static size_t transfer(uint8_t *at, uint32_t kind, uint8_t direction, uint64_t start, uint64_t end, size_t size)
{
    put32(at, kind);
    at[4] = direction;
    put64(at + 8, 4096);
    put64(at + 16, start);
    put64(at + 24, end);
    put32(at + 32, 3);
    put32(at + 40, 9);
    return size;
}

int cuptiActivityRegisterCallbacks(void *requested, void *completed)
{
    request = (void (*)(uint8_t **, size_t *, size_t *))requested;
    complete = (void (*)(void *, uint32_t, uint8_t *, size_t, size_t))completed;
    return 0;
}

int cuptiActivityEnable(int kind)
{
    if (getenv("FAKE_CUPTI_REFUSES"))
        return 35;
    enabled[kind] = 1;
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t filled, void **record)
{
    uint8_t *next = *record;

    if (next) {
        uint32_t kind;
        memcpy(&kind, next, sizeof kind);
        next += kind == 10 ? KERNEL : kind == 1 ? MEMCPY : MEMSET;
    } else {
        next = buffer;
    }
    if (next >= buffer + filled)
        return MAX_LIMIT_REACHED;
    *record = next;
    return 0;
}

int cuptiActivityFlushAll(uint32_t forced)
{
    size_t size, most, at = 0;
    uint8_t *buffer;

    if (!enabled[10] || !enabled[1] || !enabled[2] || forced != 1)
        return 1;
    request(&buffer, &size, &most);
    memset(buffer, 0, size);
    at += kernel(buffer + at, 1000, 2500, 7, "_ZN3foo3barIfEEvPT_");
    at += kernel(buffer + at, 2550, 0, 7, "unfinished");
    at += transfer(buffer + at, 1, 2, 2600, 2700, MEMCPY);
    at += kernel(buffer + at, 3000, 3100, 8, "plain_kernel");
    at += transfer(buffer + at, 2, 0, 3200, 3300, MEMSET);
    at += kernel(buffer + at, 4000, 4400, 7, "_ZN3foo3barIfEEvPT_");
    complete(NULL, 0, buffer, size, at);
    return 0;
}

int cuptiGetTimestamp(uint64_t *timestamp)
{
    *timestamp = 123456789;
    return 0;
}

int cuptiGetVersion(uint32_t *version)
{
    *version = 130001;
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    *dropped = getenv("FAKE_CUPTI_DROPS") ? 5 : 0;
    return 0;
}
