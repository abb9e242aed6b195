/*
 * A stand-in for a newer cuBLAS with cublasLt, and for the driver's events, in one library with a clock of its own.
 *
 * Each product moves the clock on and is printed: cuBLAS's own by 1 ms, proposal i by the i-th of the numbers in COSTS;
 * a negative one fails. What is computed in TF32 is printed as such.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double now;
static int described; /* the type that the product described last is computed in */

static const char *in(int compute) { return compute == 77 ? " in TF32" : ""; }

static double cost(int which)
{
    const char *text = getenv("COSTS");
    for (; which > 0; which--)
        text = strchr(text, ',') + 1;
    return atof(text);
}

int cublasGemmEx(void *handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *a, int atype,
                 int lda, const void *b, int btype, int ldb, const void *beta, void *c, int ctype, int ldc, int compute)
{
    (void)handle, (void)transa, (void)transb, (void)n, (void)k, (void)alpha, (void)a, (void)atype, (void)lda, (void)b;
    (void)btype, (void)ldb, (void)beta, (void)ctype, (void)ldc;
    printf("own %d%s%s\n", m, in(compute), c == (void *)128 ? " elsewhere" : "");
    now += 1.0;
    return 0;
}

int cublasGemmStridedBatchedEx(void *handle, int transa, int transb, int m, int n, int k, const void *alpha,
                               const void *a, int atype, int lda, long long stridea, const void *b, int btype, int ldb,
                               long long strideb, const void *beta, void *c, int ctype, int ldc, long long stridec,
                               int count, int compute)
{
    (void)handle, (void)transa, (void)transb, (void)n, (void)k, (void)alpha, (void)a, (void)atype, (void)lda;
    (void)stridea, (void)b, (void)btype, (void)ldb, (void)strideb, (void)beta, (void)c, (void)ctype, (void)ldc;
    (void)stridec, (void)count;
    printf("own batched %d%s\n", m, in(compute));
    now += 1.0;
    return 0;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *description, void *a, void *b, void *c, void *d, void *preference,
                                   int limit, char *results, int *found)
{
    (void)handle, (void)description, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)limit;
    *found = 1;
    for (const char *text = getenv("COSTS"); (text = strchr(text, ',')); text++)
        ++*found;
    for (int i = 0; i < *found; i++) {
        memset(results + 96 * i, 0, 96);
        *(uint64_t *)(results + 96 * i) = (uint64_t)i;
    }
    return 0;
}

int cublasLtMatmul(void *handle, void *description, const void *alpha, const void *a, void *la, const void *b, void *lb,
                   const float *beta, const void *c, void *lc, void *d, void *ld, const uint64_t *algorithm)
{
    const double ms = cost((int)*algorithm);
    (void)handle, (void)description, (void)alpha, (void)a, (void)la, (void)b, (void)lb, (void)c, (void)lc, (void)ld;
    printf("proposal %d, beta %g%s%s\n", (int)*algorithm, *beta, in(described), d == (void *)64 ? "" : " elsewhere");
    now += ms > 0 ? ms : 0;
    return ms < 0 ? 7 : 0;
}

#define OBJECT(name)         \
    int name(void **made)    \
    {                        \
        *made = (void *)64;  \
        return 0;            \
    }
#define SETS(name)           \
    int name(void)           \
    {                        \
        return 0;            \
    }

int cublasLtMatmulDescCreate(void **made, int compute)
{
    described = compute;
    *made = (void *)64;
    return 0;
}

OBJECT(cublasLtMatrixLayoutCreate)
OBJECT(cublasLtMatmulPreferenceCreate)
SETS(cublasLtMatmulDescSetAttribute)
SETS(cublasLtMatrixLayoutSetAttribute)
SETS(cublasLtMatmulPreferenceSetAttribute)
SETS(cuEventSynchronize)
SETS(cuMemFree_v2)

int cuMemAlloc_v2(void **made, size_t bytes)
{
    (void)bytes;
    *made = (void *)128;
    return 0;
}

int cublasGetStream_v2(void *handle, void **stream)
{
    *stream = handle;
    return 0;
}

int cuEventCreate(void **event)
{
    *event = malloc(sizeof(double));
    return 0;
}

int cuEventRecord(double *event)
{
    *event = now;
    return 0;
}

int cuEventElapsedTime(float *ms, double *from, double *to)
{
    *ms = (float)(*to - *from);
    return 0;
}
