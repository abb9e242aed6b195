/* Stands in for a newer cuDNN: says how it is called. */
#include <stdio.h>

size_t cudnnGetVersion(void) { return 91002; }
int cudnnCreate(void **handle) { *handle = (void *)16; return 0; }
int cudnnSetConvolutionMathType(void *descriptor, int mode) { printf("math %p %d\n", descriptor, mode); return 0; }

int cudnnSetConvolution2dDescriptor(void *d, int a, int b, int c, int e, int f, int g, int mode, int type)
{
    printf("2d %p %d %d %d %d %d %d %d %d\n", d, a, b, c, e, f, g, mode, type);
    return 0;
}

int cudnnSetConvolutionNdDescriptor(void *d, int rank, const int *p, const int *s, const int *l, int mode, int type)
{
    printf("nd %p %d %d %d %d %d %d\n", d, rank, p[0], s[0], l[0], mode, type);
    return 3000;
}

int cudnnPoolingForward(void *handle, void *pooling, const void *alpha, void *xd, const void *x, const void *beta,
                        void *yd, void *y)
{
    printf("pool %p %p %p %p %p %p %p %p\n", handle, pooling, alpha, xd, x, beta, yd, y);
    return 42;
}
