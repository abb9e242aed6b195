/*
 * Hands OneFlow's cuBLAS calls to a newer cuBLAS.
 *
 * OneFlow 0.8.0 holds cuBLAS 10.2, which knows no GPU younger than Turing. Its calls go through its symbol table, so
 * the functions of this library, once preloaded, are called in their place. The newer library is the one that
 * CUBLAS_FORWARD_LIBRARY names, or else the first that the loader finds of libcublas.so.13, .12 and .11. It is opened
 * with RTLD_DEEPBIND, so that it calls its own functions and not these.
 *
 * Products of fp32 matrices stay true fp32, unless CUBLAS_FORWARD_TF32=1 lets them be computed in TF32.
 *
 * Nothing here aborts: a call that cannot be forwarded says why on standard error and returns a cuBLAS status, with
 * which OneFlow ends the run.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int status_t;
typedef void *handle_t;

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { DEFAULT_MATH = 0, DEFAULT_ALGORITHM = -1 };

/* cudaDataType_t, which cuBLAS 10.2 takes for the type to compute in. */
enum { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_C_32F = 4, CUDA_C_64F = 5, CUDA_R_32I = 10 };

/* cublasComputeType_t, which cuBLAS 11 and later take instead. */
enum {
    COMPUTE_16F = 64,
    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    COMPUTE_32I = 72,
    COMPUTE_TF32 = 77,
    COMPUTE_UNKNOWN = -1
};

static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
static pthread_once_t opened = PTHREAD_ONCE_INIT;
static void *library;
static char path[4096];
static int takes_tf32;

__attribute__((constructor)) static void ask_for_tf32(void)
{
    const char *asked = getenv("CUBLAS_FORWARD_TF32");
    takes_tf32 = asked && *asked && strcmp(asked, "0") != 0;
}

static void say_what_is_used(void)
{
    int number[3] = {0, 0, 0};
    status_t (*property)(int, int *) = (status_t (*)(int, int *))dlsym(library, "cublasGetProperty");
    for (int which = 0; property && which < 3; which++)
        property(which, &number[which]);
    fprintf(stderr, "cublas_forward: cuBLAS calls go to %s (%d.%d.%d)%s\n", path, number[0], number[1], number[2],
            takes_tf32 ? ", fp32 products in TF32" : "");
}

static void open_library(void)
{
    const char *given = getenv("CUBLAS_FORWARD_LIBRARY");
    const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
    struct link_map *map;

    if (given && *given) {
        library = dlopen(given, flags);
        if (!library)
            fprintf(stderr, "cublas_forward: CUBLAS_FORWARD_LIBRARY: %s\n", dlerror());
    } else {
        for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
            library = dlopen(names[i], flags);
        if (!library)
            fprintf(stderr, "cublas_forward: no libcublas.so.13, .12 or .11 here (%s); mount the folder that holds one at "
                            "/opt/cublas, or name the file in CUBLAS_FORWARD_LIBRARY\n", dlerror());
    }
    if (library && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
        snprintf(path, sizeof path, "%s", map->l_name);
    if (library)
        say_what_is_used();
}

/* The newer library's path, NULL without one; it is opened if it was not yet. */
const char *cublas_forward_library(void)
{
    pthread_once(&opened, open_library);
    return library ? path : NULL;
}

/* The newer library's function. Without it, NULL, with the status to return in *status and the reason said. */
static void *find(const char *name, status_t *status)
{
    void *function = NULL;
    if (!cublas_forward_library()) {
        *status = NOT_INITIALIZED;
        return NULL;
    }
    function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "cublas_forward: %s has no %s\n", path, name);
        *status = NOT_SUPPORTED;
    }
    return function;
}

/* The rest of a function: call the namesake `symbol`, whose parameters have these types, with these arguments. */
#define FORWARD(symbol, types, arguments)                             \
    static _Atomic(void *) found;                                     \
    status_t status = SUCCESS;                                        \
    if (!found)                                                       \
        found = find(symbol, &status);                                \
    return found ? ((status_t(*) types)(void *)found)arguments : status

/* The type that products of matrices of this type are computed in if they accumulate in fp32. */
static int in_fp32(int type)
{
    return type == CUDA_R_32F && takes_tf32 ? COMPUTE_TF32 : COMPUTE_32F;
}

#include "cublas_search.h"

/* Whether a product is of one type, fp32 or half, and computed in fp32, as all of a training step are. */
static int can_choose(int atype, int btype, int ctype, int data_type)
{
    return data_type == CUDA_R_32F && atype == btype && btype == ctype && (atype == CUDA_R_32F || atype == CUDA_R_16F);
}

status_t cublasCreate_v2(handle_t *handle)
{
    FORWARD("cublasCreate_v2", (handle_t *), (handle));
}

status_t cublasDestroy_v2(handle_t handle)
{
    FORWARD("cublasDestroy_v2", (handle_t), (handle));
}

status_t cublasSetStream_v2(handle_t handle, void *stream)
{
    FORWARD("cublasSetStream_v2", (handle_t, void *), (handle, stream));
}

/*
 * Math modes are accepted and forgotten. OneFlow sets CUBLAS_TENSOR_OP_MATH around fp16 products, for which later
 * versions use tensor cores anyway; those of fp32 have TF32 or not by the type that they are computed in.
 */
status_t cublasSetMathMode(handle_t handle, int mode)
{
    (void)handle;
    (void)mode;
    return SUCCESS;
}

status_t cublasGetMathMode(handle_t handle, int *mode)
{
    (void)handle;
    if (!mode)
        return INVALID_VALUE;
    *mode = DEFAULT_MATH;
    return SUCCESS;
}

static int compute_type(int data_type, int atype)
{
    switch (data_type) {
    case CUDA_R_16F:
        return COMPUTE_16F;
    case CUDA_R_32F:
        return in_fp32(atype);
    case CUDA_C_32F:
        return COMPUTE_32F;
    case CUDA_R_64F:
    case CUDA_C_64F:
        return COMPUTE_64F;
    case CUDA_R_32I:
        return COMPUTE_32I;
    default:
        fprintf(stderr, "cublas_forward: a product computed in type %d is not forwarded\n", data_type);
        return COMPUTE_UNKNOWN;
    }
}

/* In both products the algorithm is left to the newer library: it has none of the numbered ones of 10.2. */
status_t cublasGemmEx(handle_t handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *a,
                      int atype, int lda, const void *b, int btype, int ldb, const void *beta, void *c, int ctype,
                      int ldc, int data_type, int algorithm)
{
    const int compute = compute_type(data_type, atype);
    (void)algorithm;
    if (compute == COMPUTE_UNKNOWN)
        return NOT_SUPPORTED;
    if (can_choose(atype, btype, ctype, data_type) &&
        multiplied(handle, &(product_t){transa, transb, m, n, k, lda, ldb, ldc, ctype, 1, 0, 0, 0, 0, 0},
                   &(operands_t){alpha, a, b, beta, c}))
        return SUCCESS;
    FORWARD("cublasGemmEx",
            (handle_t, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
             const void *, void *, int, int, int, int),
            (handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc, compute,
             DEFAULT_ALGORITHM));
}

status_t cublasGemmStridedBatchedEx(handle_t handle, int transa, int transb, int m, int n, int k, const void *alpha,
                                    const void *a, int atype, int lda, long long stridea, const void *b, int btype,
                                    int ldb, long long strideb, const void *beta, void *c, int ctype, int ldc,
                                    long long stridec, int count, int data_type, int algorithm)
{
    const int compute = compute_type(data_type, atype);
    (void)algorithm;
    if (compute == COMPUTE_UNKNOWN)
        return NOT_SUPPORTED;
    if (can_choose(atype, btype, ctype, data_type) &&
        multiplied(handle, &(product_t){transa, transb, m, n, k, lda, ldb, ldc, ctype, count, stridea, strideb, stridec,
                                          0, 0},
                   &(operands_t){alpha, a, b, beta, c}))
        return SUCCESS;
    FORWARD("cublasGemmStridedBatchedEx",
            (handle_t, int, int, int, int, int, const void *, const void *, int, int, long long, const void *, int, int,
             long long, const void *, void *, int, int, long long, int, int, int),
            (handle, transa, transb, m, n, k, alpha, a, atype, lda, stridea, b, btype, ldb, strideb, beta, c, ctype, ldc,
             stridec, count, compute, DEFAULT_ALGORITHM));
}

/* Calls whose parameters are the same in every version. */
#define DOT(name)                                                                                           \
    status_t name(handle_t handle, int n, const void *x, int incx, const void *y, int incy, void *result)   \
    {                                                                                                       \
        FORWARD(#name, (handle_t, int, const void *, int, const void *, int, void *),                       \
                (handle, n, x, incx, y, incy, result));                                                     \
    }

#define GEMM(name)                                                                                          \
    status_t name(handle_t handle, int transa, int transb, int m, int n, int k, const void *alpha,          \
                  const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc)       \
    {                                                                                                       \
        FORWARD(#name,                                                                                      \
                (handle_t, int, int, int, int, int, const void *, const void *, int, const void *, int,     \
                 const void *, void *, int),                                                                \
                (handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc));                    \
    }

DOT(cublasSdot_v2)
DOT(cublasDdot_v2)
DOT(cublasCdotu_v2)
DOT(cublasCdotc_v2)
DOT(cublasZdotu_v2)
DOT(cublasZdotc_v2)
GEMM(cublasDgemm_v2)
GEMM(cublasCgemm_v2)
GEMM(cublasZgemm_v2)

status_t cublasSgemm_v2(handle_t handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *a,
                        int lda, const void *b, int ldb, const void *beta, void *c, int ldc)
{
    return cublasGemmEx(handle, transa, transb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c, CUDA_R_32F,
                        ldc, CUDA_R_32F, DEFAULT_ALGORITHM);
}

/*
 * What else cuBLAS 10.2 exports that takes a handle. OneFlow calls none of it. Were one called, it would hand a new
 * library's handle to the old library, so it is refused.
 */
#define REFUSE(name)                                                            \
    status_t name(void)                                                         \
    {                                                                           \
        fprintf(stderr, "cublas_forward: " #name " is not forwarded\n");        \
        return NOT_SUPPORTED;                                                   \
    }

REFUSE(cublasCgemmEx)
REFUSE(cublasCgemv_v2)
REFUSE(cublasDgemv_v2)
REFUSE(cublasDotEx)
REFUSE(cublasDotcEx)
REFUSE(cublasGemmBatchedEx)
REFUSE(cublasGetAtomicsMode)
REFUSE(cublasGetPointerMode_v2)
REFUSE(cublasGetStream_v2)
REFUSE(cublasGetVersion_v2)
REFUSE(cublasHgemm)
REFUSE(cublasSetAtomicsMode)
REFUSE(cublasSetPointerMode_v2)
REFUSE(cublasSgemmEx)
REFUSE(cublasSgemv_v2)
REFUSE(cublasZgemv_v2)
