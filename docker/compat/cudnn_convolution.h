/* A convolution that OneFlow calls for: the functions that compute it, and what it is. A part of cudnn_search.h. */
#include <pthread.h>
#include <stdint.h>

enum { FLOAT_DATA = 0, HALF_DATA = 2, NCHW = 0, NHWC = 1, ALIGNMENT = 16, MOST_DIMENSIONS = 8 };

/* What is computed; the values are those of the backend's operations. */
enum direction { FORWARD_PASS = 10, FILTER_GRADIENT = 11, DATA_GRADIENT = 12 };

/* Any of the three calls: x and y are a forward pass's input and output, or their gradients, w the filter or its. */
struct call {
    enum direction direction;
    handle_t handle;
    const float *alpha, *beta;
    descriptor_t x_is, w_is, y_is, convolution;
    void *x, *w, *y;
    int algorithm;
    void *workspace;
    size_t size;
};

struct performance { /* cudnnConvolution...AlgoPerf_t */
    int algorithm;
    status_t status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
};

/* cuDNN's functions that the search calls. */
#define CALLED(F)                                                                                                    \
    F(cudnnGetStream, (handle_t, void **))                                                                           \
    F(cudnnGetTensorNdDescriptor, (descriptor_t, int, int *, int *, int *, int *))                                   \
    F(cudnnGetFilterNdDescriptor, (descriptor_t, int, int *, int *, int *, int *))                                   \
    F(cudnnGetConvolutionNdDescriptor, (descriptor_t, int, int *, int *, int *, int *, int *, int *))                \
    F(cudnnGetConvolutionMathType, (descriptor_t, int *))                                                            \
    F(cudnnGetConvolutionGroupCount, (descriptor_t, int *))                                                          \
    F(cudnnGetConvolutionForwardAlgorithm_v7,                                                                        \
      (handle_t, descriptor_t, descriptor_t, descriptor_t, descriptor_t, int, int *, struct performance *))          \
    F(cudnnGetConvolutionBackwardDataAlgorithm_v7,                                                                   \
      (handle_t, descriptor_t, descriptor_t, descriptor_t, descriptor_t, int, int *, struct performance *))          \
    F(cudnnGetConvolutionBackwardFilterAlgorithm_v7,                                                                 \
      (handle_t, descriptor_t, descriptor_t, descriptor_t, descriptor_t, int, int *, struct performance *))          \
    F(cudnnBackendCreateDescriptor, (int, descriptor_t *))                                                           \
    F(cudnnBackendDestroyDescriptor, (descriptor_t))                                                                 \
    F(cudnnBackendSetAttribute, (descriptor_t, int, int, int64_t, const void *))                                     \
    F(cudnnBackendGetAttribute, (descriptor_t, int, int, int64_t, int64_t *, void *))                                \
    F(cudnnBackendFinalize, (descriptor_t))                                                                          \
    F(cudnnBackendExecute, (handle_t, descriptor_t, descriptor_t))

/* The driver's; a stream, an event and an error have the size of a pointer, a pointer and an int. */
#define DRIVEN(F)                                         \
    F(cuMemAlloc_v2, (void **, size_t))                   \
    F(cuMemFree_v2, (void *))                             \
    F(cuEventCreate, (void **, unsigned))                 \
    F(cuEventDestroy_v2, (void *))                        \
    F(cuEventRecord, (void *, void *))                    \
    F(cuEventSynchronize, (void *))                       \
    F(cuEventElapsedTime, (float *, void *, void *))      \
    F(cuStreamSynchronize, (void *))

#define POINTER(name, types) static int(*the_##name) types;
CALLED(POINTER)
DRIVEN(POINTER)

static status_t (*forward_pass)(handle_t, const void *, descriptor_t, const void *, descriptor_t, const void *,
                                descriptor_t, int, void *, size_t, const void *, descriptor_t, void *);
static __typeof__(forward_pass) data_gradient, filter_gradient;
static status_t (*set_math)(descriptor_t, int);
static bool searching, logging;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

__attribute__((constructor(103))) static void prepare_search(void)
{
    const char *search = getenv("CUDNN_FORWARD_SEARCH"), *log = getenv("CUDNN_FORWARD_LOG");

    forward_pass = find("cudnnConvolutionForward");
    data_gradient = find("cudnnConvolutionBackwardData");
    filter_gradient = find("cudnnConvolutionBackwardFilter");
    set_math = find("cudnnSetConvolutionMathType");
    searching = library && !(search && strcmp(search, "0") == 0);
    logging = log && *log && strcmp(log, "0") != 0;
#define FIND(name, types) searching = searching && (the_##name = dlsym(library, #name)) != NULL;
    CALLED(FIND)
}

/* Not before the first convolution: this library is preloaded into programs that have nothing to do with a GPU. */
static void find_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    bool all = driver != NULL;

#define FIND_DRIVEN(name, types) all = all && (the_##name = dlsym(driver, #name)) != NULL;
    DRIVEN(FIND_DRIVEN)
    searching = all;
}

static status_t legacy(const struct call *c, int algorithm, void *workspace, size_t size)
{
    switch (c->direction) {
    case FORWARD_PASS:
        return forward_pass(c->handle, c->alpha, c->x_is, c->x, c->w_is, c->w, c->convolution, algorithm, workspace,
                            size, c->beta, c->y_is, c->y);
    case DATA_GRADIENT:
        return data_gradient(c->handle, c->alpha, c->w_is, c->w, c->y_is, c->y, c->convolution, algorithm, workspace,
                             size, c->beta, c->x_is, c->x);
    default:
        return filter_gradient(c->handle, c->alpha, c->x_is, c->x, c->y_is, c->y, c->convolution, algorithm, workspace,
                               size, c->beta, c->w_is, c->w);
    }
}

/* ---- Which convolution a call is ---- */

struct tensor {
    int64_t dimensions[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
};

struct key { /* without padding, to be compared as bytes */
    handle_t handle;
    float alpha, beta;
    int32_t direction, algorithm, rank, mode, type, unused; /* type: of all three tensors */
    struct tensor x, w, y;
    int64_t pads[MOST_DIMENSIONS], steps[MOST_DIMENSIONS], dilations[MOST_DIMENSIONS];
};

static void widen(int64_t *to, const int *from, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = from[i];
}

/* Whether a tensor's type is searched for, and that of the tensors before it. */
static bool is_of(struct key *key, bool first, int type)
{
    if (first && (type == FLOAT_DATA || type == HALF_DATA))
        key->type = type;
    else if (first)
        return false;
    return key->type == type;
}

static bool describe_tensor(descriptor_t of, struct key *key, bool first, struct tensor *tensor, int *rank)
{
    int type, dimensions[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];

    if (the_cudnnGetTensorNdDescriptor(of, MOST_DIMENSIONS, &type, rank, dimensions, strides) ||
        *rank > MOST_DIMENSIONS || !is_of(key, first, type))
        return false;
    widen(tensor->dimensions, dimensions, *rank);
    widen(tensor->strides, strides, *rank);
    return true;
}

static bool describe_filter(descriptor_t of, struct key *key, struct tensor *tensor, int *rank)
{
    int type, format, dimensions[MOST_DIMENSIONS];
    int64_t stride = 1;

    if (the_cudnnGetFilterNdDescriptor(of, MOST_DIMENSIONS, &type, &format, rank, dimensions) || !is_of(key, false, type) ||
        (format != NCHW && format != NHWC) || *rank < 3 || *rank > MOST_DIMENSIONS)
        return false;
    widen(tensor->dimensions, dimensions, *rank);
    if (format == NHWC) {
        tensor->strides[1] = stride;
        stride = dimensions[1];
    }
    for (int i = *rank - 1; i >= (format == NHWC ? 2 : 1); i--) {
        tensor->strides[i] = stride;
        stride *= dimensions[i];
    }
    tensor->strides[0] = stride;
    return true;
}

/*
 * Whether a convolution of this type of mathematics is one in true fp32, or in TF32 where that is taken. One in half
 * precision is to use tensor cores, whatever was said of its descriptor before its tensors were known.
 */
static bool takes_math(const struct call *c, const struct key *key, int math)
{
    if (key->type == HALF_DATA)
        return math == TENSOR_MATH || set_math(c->convolution, TENSOR_MATH) == SUCCESS;
    return takes_tf32 ? math != CONVERTING_MATH : math == FMA_MATH;
}

/* Whether a call is to be searched for, and as what. */
static bool describe(const struct call *c, struct key *key)
{
    int x_rank, w_rank, y_rank, rank, mode, type, math, groups;
    int pads[MOST_DIMENSIONS], steps[MOST_DIMENSIONS], dilations[MOST_DIMENSIONS];

    memset(key, 0, sizeof *key);
    if (((uintptr_t)c->x | (uintptr_t)c->w | (uintptr_t)c->y) % ALIGNMENT ||
        !describe_tensor(c->x_is, key, true, &key->x, &x_rank) ||
        !describe_tensor(c->y_is, key, false, &key->y, &y_rank) ||
        !describe_filter(c->w_is, key, &key->w, &w_rank) || x_rank != w_rank || y_rank != w_rank ||
        the_cudnnGetConvolutionMathType(c->convolution, &math) || !takes_math(c, key, math) ||
        the_cudnnGetConvolutionGroupCount(c->convolution, &groups) || groups != 1 ||
        the_cudnnGetConvolutionNdDescriptor(c->convolution, MOST_DIMENSIONS - 2, &rank, pads, steps, dilations, &mode,
                                            &type) ||
        type != FLOAT_DATA || rank != w_rank - 2)
        return false;
    widen(key->pads, pads, rank);
    widen(key->steps, steps, rank);
    widen(key->dilations, dilations, rank);
    key->handle = c->handle;
    key->alpha = *c->alpha;
    key->beta = *c->beta;
    key->direction = c->direction;
    key->algorithm = c->algorithm;
    key->rank = w_rank;
    key->mode = mode;
    return true;
}
