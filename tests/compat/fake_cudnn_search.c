/*
 * A stand-in for a newer cuDNN with its backend interface, and for the driver, in one library with a clock of its own.
 *
 * Legacy algorithm i takes the i-th of the numbers in ALGORITHMS, the backend's engine i that of ENGINES, in ms; a
 * negative one fails. NOTES holds each engine's numerical note (9: none that matters), WORKSPACE what engines need, in
 * bytes. Each computation is printed with its output.
 *
 * A tensor is described by a number: its channels, in half precision from 1000 on. A convolution: its groups, with
 * tensor cores from 1000 on, and with inputs converted for them from 2000 on.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct made {
    int engine, output;
    void *tensors[3];
};

static double now;
static long lent, made;
static int output; /* which of x, w and y the operation described last computes */

static int entries(const char *name)
{
    int count = 1;
    for (const char *text = getenv(name); (text = strchr(text, ',')); text++)
        count++;
    return count;
}

static double entry(const char *name, int which)
{
    const char *text = getenv(name);
    for (; which > 0; which--)
        text = strchr(text, ',') + 1;
    return atof(text);
}

static int compute(const char *kind, const char *costs, int which, const void *output, const float *beta)
{
    const double ms = entry(costs, which);
    printf("%s %d into %p%s\n", kind, which, output, beta && *beta ? " adding" : "");
    now += ms > 0 ? ms : 0;
    return ms < 0 ? 3000 : 0;
}

int cudnnConvolutionForward(void *handle, const void *alpha, void *xd, const void *x, void *wd, const void *w, void *cd,
                            int algorithm, void *workspace, size_t size, const float *beta, void *yd, void *y)
{
    (void)handle, (void)alpha, (void)xd, (void)x, (void)wd, (void)w, (void)cd, (void)workspace, (void)size, (void)yd;
    return compute("algorithm", "ALGORITHMS", algorithm, y, beta);
}

int cudnnConvolutionBackwardData(void *handle, const void *alpha, void *wd, const void *w, void *yd, const void *y,
                                 void *cd, int algorithm, void *workspace, size_t size, const float *beta, void *xd,
                                 void *x)
{
    (void)handle, (void)alpha, (void)xd, (void)y, (void)wd, (void)w, (void)cd, (void)workspace, (void)size, (void)yd;
    return compute("data algorithm", "ALGORITHMS", algorithm, x, beta);
}

int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, void *xd, const void *x, void *yd, const void *y,
                                   void *cd, int algorithm, void *workspace, size_t size, const float *beta, void *wd,
                                   void *w)
{
    (void)handle, (void)alpha, (void)xd, (void)y, (void)wd, (void)x, (void)cd, (void)workspace, (void)size, (void)yd;
    return compute("filter algorithm", "ALGORITHMS", algorithm, w, beta);
}

struct performance { int algorithm, status; float time; size_t memory; int rest[5]; };

#define LISTS(name)                                                                                               \
    int name(void *handle, void *a, void *b, void *c, void *d, int limit, int *count, struct performance *listed)  \
    {                                                                                                              \
        (void)handle, (void)a, (void)b, (void)c, (void)d, (void)limit;                                             \
        *count = entries("ALGORITHMS");                                                                            \
        for (int i = 0; i < *count; i++)                                                                           \
            listed[i] = (struct performance){.algorithm = i};                                                      \
        return 0;                                                                                                  \
    }

LISTS(cudnnGetConvolutionForwardAlgorithm_v7)
LISTS(cudnnGetConvolutionBackwardDataAlgorithm_v7)
LISTS(cudnnGetConvolutionBackwardFilterAlgorithm_v7)

int cudnnGetTensorNdDescriptor(intptr_t of, int limit, int *type, int *rank, int *dimensions, int *strides)
{
    const int channels = of % 1000;
    (void)limit;
    *type = of >= 1000 ? 2 : 0;
    *rank = 4;
    memcpy(dimensions, (int[]){2, channels, 8, 8}, 4 * sizeof(int));
    memcpy(strides, (int[]){64 * channels, 64, 8, 1}, 4 * sizeof(int));
    return 0;
}

int cudnnGetFilterNdDescriptor(intptr_t of, int limit, int *type, int *format, int *rank, int *dimensions)
{
    int strides[4];
    *format = 0;
    return cudnnGetTensorNdDescriptor(of, limit, type, rank, dimensions, strides);
}

int cudnnGetConvolutionNdDescriptor(void *of, int limit, int *rank, int *pads, int *steps, int *dilations,
                                    int *mode, int *type)
{
    (void)of, (void)limit;
    *rank = 2;
    pads[0] = pads[1] = *type = 0;
    steps[0] = steps[1] = dilations[0] = dilations[1] = *mode = 1;
    return 0;
}

int cudnnGetConvolutionMathType(intptr_t of, int *math) { *math = of >= 2000 ? 2 : of >= 1000 ? 1 : 3; return 0; }
int cudnnSetConvolutionMathType(intptr_t of, int math) { printf("mathematics %d of %d\n", math, (int)of); return 0; }
int cudnnGetConvolutionGroupCount(intptr_t of, int *groups) { *groups = of % 1000; return 0; }
int cudnnGetStream(void *handle, void **stream) { *stream = handle; return 0; }
int cudnnDestroy(void *handle) { (void)handle; return 0; }

/* Bytes that the driver has lent, and descriptors of the backend. */
int say_what_is_held(void) { printf("%ld bytes, %ld descriptors\n", lent, made); return 0; }

int cudnnBackendCreateDescriptor(int type, struct made **into)
{
    made++;
    *into = calloc(1, sizeof **into);
    if (type >= 10 && type <= 12)
        output = 12 - type;
    return 0;
}

int cudnnBackendDestroyDescriptor(struct made *of) { made--; free(of); return 0; }
int cudnnBackendFinalize(struct made *of) { (void)of; return 0; }

int cudnnBackendSetAttribute(struct made *of, int attribute, int type, int64_t count, void *const *values)
{
    (void)type;
    if (attribute == 200)
        of->engine = *(const int *)values;
    else if (attribute == 401)
        *of = *(const struct made *)values[0];
    else if (attribute == 1001)
        memcpy(of->tensors, values, count * sizeof *values);
    return 0;
}

/* Heuristic mode A (3) proposes all engines, the fallback none. */
int cudnnBackendGetAttribute(struct made *of, int attribute, int type, int64_t limit, int64_t *count, void *values)
{
    (void)type, (void)limit;
    *count = 1;
    if (attribute == 202) {
        *count = of->engine == 3 ? entries("ENGINES") : 0;
        for (int i = 0; i < *count; i++)
            *((struct made **)values)[i] = (struct made){.engine = i, .output = output};
    } else if (attribute == 300)
        (*(struct made **)values)->engine = of->engine;
    else if (attribute == 402)
        *(int64_t *)values = entry("WORKSPACE", 0);
    else if (attribute == 1301)
        *(int64_t *)values = of->engine;
    else if (attribute == 1303)
        *(int32_t *)values = entry("NOTES", of->engine);
    return 0;
}

int cudnnBackendExecute(void *handle, struct made *plan, struct made *pack)
{
    (void)handle;
    return compute("engine", "ENGINES", plan->engine, pack->tensors[plan->output], NULL);
}

/* Nothing uses the memory lent, so that it is no more than its size. */
int cuMemAlloc_v2(size_t **memory, size_t size)
{
    *(*memory = malloc(sizeof size)) = size;
    lent += size;
    return 0;
}

int cuMemFree_v2(size_t *memory)
{
    lent -= *memory;
    free(memory);
    return 0;
}

int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = calloc(1, sizeof(double)); return 0; }
int cuEventDestroy_v2(void *event) { free(event); return 0; }
int cuEventRecord(double *event, void *stream) { (void)stream; *event = now; return 0; }
int cuEventSynchronize(void *event) { (void)event; return 0; }
int cuEventElapsedTime(float *ms, const double *from, const double *to) { *ms = *to - *from; return 0; }
int cuStreamSynchronize(void *stream) { (void)stream; return 0; }
