/* A stand-in for a newer cuBLAS: it prints each call with its arguments, and returns a status of its own. */
#include <stdio.h>

enum { MARK = 42 };

int cublasGetProperty(int which, int *value)
{
    *value = 12 + which;
    return 0;
}

int cublasCreate_v2(void **handle)
{
    printf("cublasCreate_v2\n");
    *handle = (void *)0x1234;
    return MARK;
}

int cublasDestroy_v2(void *handle)
{
    printf("cublasDestroy_v2 %p\n", handle);
    return MARK;
}

int cublasSetStream_v2(void *handle, void *stream)
{
    printf("cublasSetStream_v2 %p %p\n", handle, stream);
    return MARK;
}

#ifndef WITHOUT_GEMM_EX
int cublasGemmEx(void *handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *a, int atype,
                 int lda, const void *b, int btype, int ldb, const void *beta, void *c, int ctype, int ldc, int compute,
                 int algorithm)
{
    printf("cublasGemmEx %p %d %d %d %d %d %p %p %d %d %p %d %d %p %p %d %d compute=%d algorithm=%d\n", handle, transa,
           transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc, compute, algorithm);
    return MARK;
}
#endif

int cublasGemmStridedBatchedEx(void *handle, int transa, int transb, int m, int n, int k, const void *alpha,
                               const void *a, int atype, int lda, long long stridea, const void *b, int btype, int ldb,
                               long long strideb, const void *beta, void *c, int ctype, int ldc, long long stridec,
                               int count, int compute, int algorithm)
{
    printf("cublasGemmStridedBatchedEx %p %d %d %d %d %d %p %p %d %d %lld %p %d %d %lld %p %p %d %d %lld %d compute=%d "
           "algorithm=%d\n",
           handle, transa, transb, m, n, k, alpha, a, atype, lda, stridea, b, btype, ldb, strideb, beta, c, ctype, ldc,
           stridec, count, compute, algorithm);
    return MARK;
}

#define DOT(name)                                                                                          \
    int name(void *handle, int n, const void *x, int incx, const void *y, int incy, void *result)          \
    {                                                                                                      \
        printf(#name " %p %d %p %d %p %d %p\n", handle, n, x, incx, y, incy, result);                      \
        return MARK;                                                                                       \
    }

#define GEMM(name)                                                                                         \
    int name(void *handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *a,  \
             int lda, const void *b, int ldb, const void *beta, void *c, int ldc)                          \
    {                                                                                                      \
        printf(#name " %p %d %d %d %d %d %p %p %d %p %d %p %p %d\n", handle, transa, transb, m, n, k,      \
               alpha, a, lda, b, ldb, beta, c, ldc);                                                       \
        return MARK;                                                                                       \
    }

DOT(cublasSdot_v2)
DOT(cublasDdot_v2)
DOT(cublasCdotu_v2)
DOT(cublasCdotc_v2)
DOT(cublasZdotu_v2)
DOT(cublasZdotc_v2)
GEMM(cublasSgemm_v2)
GEMM(cublasDgemm_v2)
GEMM(cublasCgemm_v2)
GEMM(cublasZgemm_v2)
