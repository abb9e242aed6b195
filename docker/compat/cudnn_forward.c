/*
 * Hands OneFlow's cuDNN calls to a newer cuDNN.
 *
 * OneFlow 0.8.0 comes with cuDNN 7.6.5, which was made for GPUs up to Turing. On Hopper the driver compiles its code,
 * which then computes wrongly without a word: a ResNet50's losses stay at the logarithm of the number of classes. The
 * functions of this library, once preloaded, are called in the place of the wheel's. The newer library is the one that
 * CUDNN_FORWARD_LIBRARY names, or else the first that the loader finds of libcudnn.so.9 and .8. It is opened with
 * RTLD_DEEPBIND, so that it calls its own functions and not these.
 *
 * fp32 convolutions stay true fp32, unless CUDNN_FORWARD_TF32=1 lets them be computed in TF32.
 *
 * What OneFlow calls has kept its parameters since 7.6.5, so a call is a jump, whatever its parameters are. Only the
 * meaning of the default mathematics has changed, which functions at the end deal with, and convolutions have got new
 * and faster ways, among which cudnn_search.h chooses. Nothing here aborts: a function that cannot be forwarded returns
 * a status that is no success, with which OneFlow ends the run.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int status_t;
typedef void *handle_t;
typedef void *descriptor_t;

enum { SUCCESS = 0, NOT_INITIALIZED = 1 };

/* cudnnMathType_t. Until 7 the default took no tensor cores for fp32; from 8 on it may (TF32), and FMA_MATH may not. */
enum { DEFAULT_MATH = 0, TENSOR_MATH = 1, CONVERTING_MATH = 2, FMA_MATH = 3 };

static const char *const libraries[] = {"libcudnn.so.9", "libcudnn.so.8"};
static void *library;
static char path[4096];
static bool takes_tf32;

__attribute__((constructor(101))) static void open_library(void)
{
    const char *given = getenv("CUDNN_FORWARD_LIBRARY"), *tf32 = getenv("CUDNN_FORWARD_TF32");
    const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
    struct link_map *map;

    takes_tf32 = tf32 && *tf32 && strcmp(tf32, "0") != 0;
    if (given && *given)
        library = dlopen(given, flags);
    else
        for (size_t i = 0; !library && i < sizeof libraries / sizeof *libraries; i++)
            library = dlopen(libraries[i], flags);
    if (library && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
        snprintf(path, sizeof path, "%s", map->l_name);
}

/* The newer library's path, NULL without one. */
const char *cudnn_forward_library(void)
{
    return library ? path : NULL;
}

static status_t unavailable(void)
{
    fprintf(stderr, "cudnn_forward: a call of cuDNN finds no library of version 8 or 9 to go to; mount the folder that "
                    "holds one at /opt/cudnn, or name the file in CUDNN_FORWARD_LIBRARY\n");
    return NOT_INITIALIZED;
}

static void *find(const char *name)
{
    void *function = library ? dlsym(library, name) : NULL;
    if (library && !function)
        fprintf(stderr, "cudnn_forward: %s has no %s\n", path, name);
    return function ? function : (void *)unavailable;
}

/* A function that is one jump to its namesake. */
#define JUMP(name)                                                                                        \
    __attribute__((visibility("hidden"))) void *to_##name;                                                \
    __attribute__((constructor(102))) static void find_##name(void) { to_##name = find(#name); }          \
    __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ": jmp *to_" #name "(%rip)\n" \
            ".size " #name ", .-" #name "\n");

JUMP(cudnnGetVersion)
JUMP(cudnnAddTensor)
JUMP(cudnnBatchNormalizationBackward)
JUMP(cudnnBatchNormalizationBackwardEx)
JUMP(cudnnBatchNormalizationForwardInference)
JUMP(cudnnBatchNormalizationForwardTraining)
JUMP(cudnnBatchNormalizationForwardTrainingEx)
JUMP(cudnnConvolutionBackwardBias)
JUMP(cudnnCreateActivationDescriptor)
JUMP(cudnnCreateConvolutionDescriptor)
JUMP(cudnnCreateFilterDescriptor)
JUMP(cudnnCreatePoolingDescriptor)
JUMP(cudnnCreateSpatialTransformerDescriptor)
JUMP(cudnnCreateTensorDescriptor)
JUMP(cudnnDeriveBNTensorDescriptor)
JUMP(cudnnDestroyActivationDescriptor)
JUMP(cudnnDestroyConvolutionDescriptor)
JUMP(cudnnDestroyFilterDescriptor)
JUMP(cudnnDestroyPoolingDescriptor)
JUMP(cudnnDestroySpatialTransformerDescriptor)
JUMP(cudnnDestroyTensorDescriptor)
JUMP(cudnnFindConvolutionBackwardDataAlgorithmEx)
JUMP(cudnnFindConvolutionBackwardFilterAlgorithmEx)
JUMP(cudnnFindConvolutionForwardAlgorithmEx)
JUMP(cudnnGetBatchNormalizationBackwardExWorkspaceSize)
JUMP(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize)
JUMP(cudnnGetBatchNormalizationTrainingExReserveSpaceSize)
JUMP(cudnnGetConvolutionBackwardDataAlgorithmMaxCount)
JUMP(cudnnGetConvolutionBackwardDataAlgorithm_v7)
JUMP(cudnnGetConvolutionBackwardDataWorkspaceSize)
JUMP(cudnnGetConvolutionBackwardFilterAlgorithmMaxCount)
JUMP(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
JUMP(cudnnGetConvolutionBackwardFilterWorkspaceSize)
JUMP(cudnnGetConvolutionForwardAlgorithmMaxCount)
JUMP(cudnnGetConvolutionForwardAlgorithm_v7)
JUMP(cudnnGetConvolutionForwardWorkspaceSize)
JUMP(cudnnGetConvolutionGroupCount)
JUMP(cudnnGetConvolutionNdDescriptor)
JUMP(cudnnGetErrorString)
JUMP(cudnnGetFilterNdDescriptor)
JUMP(cudnnGetProperty)
JUMP(cudnnGetTensor4dDescriptor)
JUMP(cudnnGetTensorNdDescriptor)
JUMP(cudnnPoolingBackward)
JUMP(cudnnPoolingForward)
JUMP(cudnnSetActivationDescriptor)
JUMP(cudnnSetConvolutionGroupCount)
JUMP(cudnnSetFilter4dDescriptor)
JUMP(cudnnSetFilterNdDescriptor)
JUMP(cudnnSetPoolingNdDescriptor)
JUMP(cudnnSetSpatialTransformerNdDescriptor)
JUMP(cudnnSetStream)
JUMP(cudnnSetTensor4dDescriptor)
JUMP(cudnnSetTensorNdDescriptor)
JUMP(cudnnSpatialTfSamplerBackward)
JUMP(cudnnSpatialTfSamplerForward)

/* The rest of a function: call the namesake, whose parameters have these types, with these arguments. */
#define FORWARD(symbol, types, arguments) ((status_t(*) types)find(symbol))arguments

#include "cudnn_search.h"

/* The first call of a process that trains, and of each of its streams; it says once where calls go. */
status_t cudnnCreate(handle_t *handle)
{
    static int said;
    if (library && !__sync_lock_test_and_set(&said, 1))
        fprintf(stderr, "cudnn_forward: cuDNN calls go to %s (%zu)%s\n", path,
                ((size_t(*)(void))find("cudnnGetVersion"))(), takes_tf32 ? ", fp32 convolutions in TF32" : "");
    return FORWARD("cudnnCreate", (handle_t *), (handle));
}

/*
 * fp32 stays fp32, as in 2020: no descriptor is left with the newer default. That default is what takes TF32, so with it
 * descriptors stay as the newer cuDNN makes them.
 */
status_t cudnnSetConvolutionMathType(descriptor_t convolution, int mode)
{
    return FORWARD("cudnnSetConvolutionMathType", (descriptor_t, int),
                   (convolution, mode == DEFAULT_MATH && !takes_tf32 ? FMA_MATH : mode));
}

static status_t in_default_math(descriptor_t convolution, status_t status)
{
    return status == SUCCESS ? cudnnSetConvolutionMathType(convolution, DEFAULT_MATH) : status;
}

status_t cudnnSetConvolution2dDescriptor(descriptor_t convolution, int pad_h, int pad_w, int stride_h, int stride_w,
                                         int dilation_h, int dilation_w, int mode, int type)
{
    return in_default_math(
        convolution, FORWARD("cudnnSetConvolution2dDescriptor", (descriptor_t, int, int, int, int, int, int, int, int),
                             (convolution, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, mode, type)));
}

status_t cudnnSetConvolutionNdDescriptor(descriptor_t convolution, int rank, const int *pads, const int *strides,
                                         const int *dilations, int mode, int type)
{
    return in_default_math(
        convolution,
        FORWARD("cudnnSetConvolutionNdDescriptor", (descriptor_t, int, const int *, const int *, const int *, int, int),
                (convolution, rank, pads, strides, dilations, mode, type)));
}

status_t cudnnConvolutionForward(handle_t handle, const void *alpha, descriptor_t x_is, void *x, descriptor_t w_is,
                                 void *w, descriptor_t convolution, int algorithm, void *workspace, size_t size,
                                 const void *beta, descriptor_t y_is, void *y)
{
    return convolve(&(struct call){FORWARD_PASS, handle, alpha, beta, x_is, w_is, y_is, convolution, x, w, y,
                                   algorithm, workspace, size});
}

status_t cudnnConvolutionBackwardData(handle_t handle, const void *alpha, descriptor_t w_is, void *w, descriptor_t y_is,
                                      void *y, descriptor_t convolution, int algorithm, void *workspace, size_t size,
                                      const void *beta, descriptor_t x_is, void *x)
{
    return convolve(&(struct call){DATA_GRADIENT, handle, alpha, beta, x_is, w_is, y_is, convolution, x, w, y,
                                   algorithm, workspace, size});
}

status_t cudnnConvolutionBackwardFilter(handle_t handle, const void *alpha, descriptor_t x_is, void *x,
                                        descriptor_t y_is, void *y, descriptor_t convolution, int algorithm,
                                        void *workspace, size_t size, const void *beta, descriptor_t w_is, void *w)
{
    return convolve(&(struct call){FILTER_GRADIENT, handle, alpha, beta, x_is, w_is, y_is, convolution, x, w, y,
                                   algorithm, workspace, size});
}

status_t cudnnDestroy(handle_t handle)
{
    forget(handle);
    return FORWARD("cudnnDestroy", (handle_t), (handle));
}
