// Kernels with the passes, data types and launch shapes of those that OneFlow had in 2020, for `make effects` alone.
//
// Of 0.1.9 (ec8df10e), which trained BERT, and of 05fdee7d, which trained GPT-2: oneflow/user/kernels/softmax_kernel.cu,
// softmax_kernel_util.cu, sparse_cross_entropy_kernel_util.cu, random_mask_generator.cu, dropout_kernel.cu and
// layer_norm_gpu_kernel.cu, and oneflow/core/ndarray. repro/trainers/past/forms.py launches them. NVRTC compiles this file
// without headers; tests compile it for the CPU, where tests/support/on_cpu.h stands in for CUDA.

#ifdef __CUDACC__
typedef unsigned short half;

__device__ inline float wide(half x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
__device__ inline half narrow(float x) { half y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
__device__ inline half add(half a, half b) { half c; asm("add.f16 %0, %1, %2;" : "=h"(c) : "h"(a), "h"(b)); return c; }
__device__ inline half multiply(half a, half b) { half c; asm("mul.f16 %0, %1, %2;" : "=h"(c) : "h"(a), "h"(b)); return c; }
__device__ inline unsigned multiply_pairs(unsigned a, unsigned b)
{
    unsigned c;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

typedef long long int64;

__device__ inline float wide(float x) { return x; }
__device__ inline float add(float a, float b) { return a + b; }
template <typename T> __device__ inline T narrowed(float x);
template <> __device__ inline float narrowed<float>(float x) { return x; }
template <> __device__ inline half narrowed<half>(float x) { return narrow(x); }

struct Sum {
    __device__ static float unit() { return 0.0f; }
    __device__ static float of(float a, float b) { return a + b; }
};
struct Largest {
    __device__ static float unit() { return -__int_as_float(0x7f800000); }
    __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

enum { WARP = 32, ROW_THREADS = 256, SOFTMAX_THREADS = 128, VECTOR = 4, ITEMS = 16 };

// The values of a block reduced to one, in all of its threads.
template <typename Op, int THREADS> __device__ float of_block(float value)
{
    __shared__ float parts[THREADS / WARP];
    __shared__ float whole;

    for (int by = WARP / 2; by; by /= 2)
        value = Op::of(value, __shfl_down_sync(0xffffffffu, value, by));
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / WARP; warp++)
            value = Op::of(value, parts[warp]);
        whole = value;
    }
    __syncthreads();
    value = whole;
    __syncthreads();
    return value;
}

struct alignas(16) Vector { float each[VECTOR]; };

// A block per row: whole tiles of it in vectors where it is aligned, the rest element by element.
template <typename Op> __device__ void reduce_row(int columns, const float *x, float *y)
{
    const int tile = ITEMS * ROW_THREADS;
    const float *row = x + (int64)blockIdx.x * columns;
    const bool aligned = (unsigned long long)row % sizeof(Vector) == 0;
    float value = Op::unit();
    int begin = 0;

    for (; begin + tile <= columns; begin += tile) {
        if (aligned) {
            const Vector *vectors = (const Vector *)(row + begin);
#pragma unroll
            for (int k = 0; k < ITEMS / VECTOR; k++) {
                const Vector vector = vectors[k * ROW_THREADS + threadIdx.x];
#pragma unroll
                for (int j = 0; j < VECTOR; j++)
                    value = Op::of(value, vector.each[j]);
            }
        } else {
#pragma unroll
            for (int k = 0; k < ITEMS; k++)
                value = Op::of(value, row[begin + k * ROW_THREADS + threadIdx.x]);
        }
    }
    for (int column = begin + threadIdx.x; column < columns; column += ROW_THREADS)
        value = Op::of(value, row[column]);
    value = of_block<Op, ROW_THREADS>(value);
    if (threadIdx.x == 0)
        y[blockIdx.x] = value;
}

// Softmax of a row that fits shared memory, by a block per row.
template <typename T, int THREADS> __device__ float exp_of_row(int row, int columns, const T *x, float *values)
{
    float largest = Largest::unit(), sum = 0;

    for (int column = threadIdx.x; column < columns; column += THREADS) {
        values[column] = wide(x[row * columns + column]);
        largest = fmaxf(largest, values[column]);
    }
    largest = of_block<Largest, THREADS>(largest);
    for (int column = threadIdx.x; column < columns; column += THREADS) {
        values[column] = expf(values[column] - largest);
        sum += values[column];
    }
    return of_block<Sum, THREADS>(sum);
}

template <typename T, int THREADS>
__device__ void softmax_back(int rows, int columns, const T *dy, const T *y, T *dx, float *values)
{
    float *slopes = values + columns;

    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        float sum = 0;
        for (int column = threadIdx.x; column < columns; column += THREADS) {
            slopes[column] = wide(dy[row * columns + column]);
            values[column] = wide(y[row * columns + column]);
            sum += slopes[column] * values[column];
        }
        sum = of_block<Sum, THREADS>(sum);
        for (int column = threadIdx.x; column < columns; column += THREADS)
            dx[row * columns + column] = narrowed<T>((slopes[column] - sum) * values[column]);
    }
}

#define EACH(type, i, n) for (type i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)

// Column sums by a thread per column, and by blocks of 32 columns and 32 rows of threads.
template <typename T> __device__ void sum_columns_by_threads(int elements, int columns, const T *x, T *y)
{
    EACH(int, column, columns) {
        T sum = x[column];
        for (int i = column + columns; i < elements; i += columns)
            sum = add(sum, x[i]);
        y[column] = sum;
    }
}

template <typename T> __device__ void sum_columns_by_blocks(int elements, int columns, const T *x, T *y)
{
    struct alignas(4) Padded { T value; };
    __shared__ Padded parts[WARP * WARP];
    const int row = threadIdx.x / WARP, column = blockIdx.x * WARP + threadIdx.x % WARP;
    const int step = blockDim.x / WARP * columns;

    if (column < columns) {
        int i = row * columns + column;
        T sum = x[i];
        for (i += step; i < elements; i += step)
            sum = add(sum, x[i]);
        parts[threadIdx.x].value = sum;
    }
    __syncthreads();
    if (column < columns && row == 0) {
        T sum = parts[threadIdx.x].value;
        for (int i = threadIdx.x + WARP; i < blockDim.x; i += WARP)
            sum = add(sum, parts[i].value);
        y[column] = sum;
    }
}

template <typename Label> __device__ void log_of_label(int rows, int64 columns, const float *p, const Label *labels, float *y)
{
    EACH(int, row, rows) y[row] = -logf(fmaxf(p[row * columns + labels[row]], 1e-20f));
}

// The row is found by a division in 64 bits, as then.
template <typename Label>
__device__ void cross_entropy_back(int64 n, int64 columns, const float *p, const Label *labels, const float *dy, float *dx)
{
    EACH(int, i, n) {
        const int row = i / columns, column = i - row * columns;
        dx[i] = dy[row] * (column == labels[row] ? p[i] - 1 : p[i]);
    }
}

#define COLUMNS(type, suffix)                                                                                          \
    __global__ void sum_columns_by_threads_##suffix(int elements, int columns, const type *x, type *y)                 \
    { sum_columns_by_threads(elements, columns, x, y); }                                                               \
    __global__ void sum_columns_by_blocks_##suffix(int elements, int columns, const type *x, type *y)                  \
    { sum_columns_by_blocks(elements, columns, x, y); }

#define LABELS(type, suffix)                                                                                           \
    __global__ void log_of_label_##suffix(int rows, int64 columns, const float *p, const type *labels, float *y)       \
    { log_of_label(rows, columns, p, labels, y); }                                                                     \
    __global__ void cross_entropy_back_##suffix(int64 n, int64 columns, const float *p, const type *labels,            \
                                                const float *dy, float *dx)                                            \
    { cross_entropy_back(n, columns, p, labels, dy, dx); }

extern "C" {

COLUMNS(half, f16)
COLUMNS(float, f32)
LABELS(int, i32)
LABELS(int64, i64)

// Softmax: in 0.1.9 of 32 to 4096 columns in fp32 by 256 threads, in 05fdee7d of what fits shared memory by 128.
__global__ void softmax_forward_f32(int rows, int columns, const float *x, float *y)
{
    DYNAMIC_SHARED(float, values);

    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const float sum = exp_of_row<float, ROW_THREADS>(row, columns, x, values);
        for (int column = threadIdx.x; column < columns; column += ROW_THREADS)
            y[row * columns + column] = values[column] / sum;
    }
}

__global__ void softmax_forward_f16(int rows, int columns, const half *x, half *y)
{
    DYNAMIC_SHARED(float, values);

    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const float inverse = 1.0f / exp_of_row<half, SOFTMAX_THREADS>(row, columns, x, values);
        for (int column = threadIdx.x; column < columns; column += SOFTMAX_THREADS)
            y[row * columns + column] = narrow(values[column] * inverse);
    }
}

__global__ void softmax_backward_f32(int rows, int columns, const float *dy, const float *y, float *dx)
{
    DYNAMIC_SHARED(float, values);
    softmax_back<float, ROW_THREADS>(rows, columns, dy, y, dx, values);
}

__global__ void softmax_backward_f16(int rows, int columns, const half *dy, const half *y, half *dx)
{
    DYNAMIC_SHARED(float, values);
    softmax_back<half, SOFTMAX_THREADS>(rows, columns, dy, y, dx, values);
}

// The softmax of cross-entropy: a kernel for the largest value of each row, one for the sum, and between them in 05fdee7d
// a block of 128 threads per row.
__global__ void reduce_max(int columns, const float *x, float *y) { reduce_row<Largest>(columns, x, y); }
__global__ void reduce_sum(int columns, const float *x, float *y) { reduce_row<Sum>(columns, x, y); }

__global__ void subtract_and_exp(int64 rows, int64 columns, const float *x, const float *row_values, float *y)
{
    __shared__ float shared;

    for (int64 row = blockIdx.x; row < rows; row += gridDim.x) {
        if (threadIdx.x == 0)
            shared = row_values[row];
        __syncthreads();
        const float largest = shared;
        for (int64 column = threadIdx.x; column < columns; column += SOFTMAX_THREADS)
            y[row * columns + column] = expf(x[row * columns + column] - largest);
        __syncthreads();
    }
}

__global__ void divide_rows(int64 rows, int64 columns, const float *x, const float *row_values, float *y)
{
    __shared__ float shared;

    for (int64 row = blockIdx.x; row < rows; row += gridDim.x) {
        if (threadIdx.x == 0)
            shared = 1.0f / row_values[row];
        __syncthreads();
        const float inverse = shared;
        for (int64 column = threadIdx.x; column < columns; column += SOFTMAX_THREADS)
            y[row * columns + column] = x[row * columns + column] * inverse;
        __syncthreads();
    }
}

// In 0.1.9 subtraction, exponential and division were kernels of their own, with a thread per element.
__global__ void subtract_rows(int n, int columns, const float *x, const float *row_values, float *y)
{
    EACH(int, i, n) y[i] = x[i] - row_values[i / columns];
}
__global__ void exp_in_place(int n, float *y) { EACH(int, i, n) y[i] = expf(y[i]); }
__global__ void divide_by_rows(int n, int columns, const float *row_values, float *y)
{
    EACH(int, i, n) y[i] = y[i] / row_values[i / columns];
}

// Masks are drawn by one small block per multiprocessor, 16 bytes of mask at a time, with cuRAND's default generator
// (Marsaglia's xorwow).
struct Random { unsigned weyl, v[5]; };

__device__ inline unsigned next(Random *state)
{
    const unsigned t = state->v[0] ^ (state->v[0] >> 2);

    for (int i = 0; i < 4; i++)
        state->v[i] = state->v[i + 1];
    state->v[4] = (state->v[4] ^ (state->v[4] << 4)) ^ (t ^ (t << 1));
    state->weyl += 362437;
    return state->v[4] + state->weyl;
}

__global__ void seed(Random *states)
{
    const unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = id * 0x9e3779b9u + 0x85ebca6bu;

    for (int i = 0; i < 5; i++) {
        x = (x ^ (x >> 16)) * 0x7feb352du;
        x = (x ^ (x >> 15)) * 0x846ca68bu;
        x ^= x >> 16;
        states[id].v[i] = x + i + 1;
    }
    states[id].weyl = x;
}

union alignas(16) Mask16 { signed char each[16]; struct { unsigned long long low, high; } whole; };

__global__ void draw_mask(Random *states, int64 n, float rate, signed char *mask)
{
    const int id = blockIdx.x * blockDim.x + threadIdx.x;
    Random state = states[id];
    Mask16 some;

    EACH(int, i, n / 16) {
#pragma unroll
        for (int j = 0; j < 16; j++)
            some.each[j] = next(&state) * 2.3283064e-10f + 1.1641532e-10f >= rate;
        ((Mask16 *)mask)[i] = some;
    }
    states[id] = state;
}

__global__ void drop_f32(int64 n, float scale, const float *x, const signed char *mask, float *y)
{
    EACH(int, i, n) y[i] = x[i] * (float)mask[i] * scale;
}

__global__ void drop_f16(int64 n, float scale, const half *x, const signed char *mask, half *y)
{
    const unsigned scale_bits = narrow(scale), scales = scale_bits << 16 | scale_bits;
    struct alignas(2) Pair { signed char low, high; };

    EACH(int, i, n / 2) {
        const Pair pair = ((const Pair *)mask)[i];
        const unsigned kept = (unsigned)narrow(pair.high) << 16 | narrow(pair.low);
        ((unsigned *)y)[i] = multiply_pairs(multiply_pairs(((const unsigned *)x)[i], kept), scales);
    }
}

// Of 05fdee7d: LayerNorm forward in one kernel, which also stores the normalised values; sums of the gradients of gamma
// and beta by atomic additions in shared memory, a row of partial sums per block.
__global__ void layer_norm_forward(int rows, int columns, double epsilon, const half *x, const half *gamma, const half *beta,
                                   float *means, float *inverses, half *normalized, half *y)
{
    DYNAMIC_SHARED(float, values);
    const float share = 1.0f / columns;

    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        float sum = 0, squares = 0;
        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            values[column] = wide(x[row * columns + column]);
            sum += values[column];
            squares += values[column] * values[column];
        }
        sum = of_block<Sum, ROW_THREADS>(sum);
        squares = of_block<Sum, ROW_THREADS>(squares);
        const float mean = sum * share;
        const float inverse = rsqrtf(fmaxf(squares * share - mean * mean, 0.0f) + (float)epsilon);
        if (threadIdx.x == 0) {
            means[row] = mean;
            inverses[row] = inverse;
        }
        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            const float value = (values[column] - mean) * inverse;
            normalized[row * columns + column] = narrow(value);
            y[row * columns + column] = narrow(value * wide(gamma[column]) + wide(beta[column]));
        }
    }
}

__global__ void layer_norm_sums(int n, int columns, const half *dy, const half *normalized, const half *gamma,
                                half *gamma_parts, half *beta_parts, half *dnormalized)
{
    DYNAMIC_SHARED(float, gamma_sums);
    float *beta_sums = gamma_sums + columns;

    for (int column = threadIdx.x; column < 2 * columns; column += blockDim.x)
        gamma_sums[column] = 0;
    __syncthreads();
    EACH(int, i, n) {
        const int column = i % columns;
        const half slope = dy[i];
        atomicAdd(&gamma_sums[column], wide(slope) * wide(normalized[i]));
        atomicAdd(&beta_sums[column], wide(slope));
        dnormalized[i] = multiply(gamma[column], slope);
    }
    __syncthreads();
    for (int column = threadIdx.x; column < columns; column += blockDim.x) {
        gamma_parts[blockIdx.x * columns + column] = narrow(gamma_sums[column]);
        beta_parts[blockIdx.x * columns + column] = narrow(beta_sums[column]);
    }
}

// Of 0.1.9: gamma and beta were applied by a kernel each; what lies between them and the sums is cuDNN's.
__global__ void multiply_f32(int n, const float *a, const float *b, float *y) { EACH(int, i, n) y[i] = a[i] * b[i]; }
__global__ void multiply_columns(int n, int columns, const float *x, const float *column_values, float *y)
{
    EACH(int, i, n) y[i] = x[i] * column_values[i % columns];
}
__global__ void add_columns(int n, int columns, const float *column_values, float *y)
{
    EACH(int, i, n) y[i] = y[i] + column_values[i % columns];
}
__global__ void fill(int n, float value, float *y) { EACH(int, i, n) y[i] = value; }

// Not of 2020: numbers to compute with, and what displaces a cache's content between two measurements.
__device__ inline float noise(unsigned i)
{
    i = (i ^ 61u ^ (i >> 16)) * 9u;
    i = (i ^ (i >> 4)) * 0x27d4eb2du;
    i ^= i >> 15;
    return (i & 0xffffu) / 16384.0f - 2.0f;
}
__global__ void make_noise_f16(int64 n, unsigned salt, half *y) { EACH(int64, i, n) y[i] = narrow(noise((unsigned)i * 2654435761u + salt)); }
__global__ void make_noise_f32(int64 n, unsigned salt, float *y) { EACH(int64, i, n) y[i] = noise((unsigned)i * 2654435761u + salt); }
__global__ void make_labels_i32(int64 n, int classes, int *y) { EACH(int64, i, n) y[i] = (int)(i * 7919 % classes); }
__global__ void make_labels_i64(int64 n, int classes, int64 *y) { EACH(int64, i, n) y[i] = i * 7919 % classes; }
__global__ void flush_cache(int64 n, float *y) { EACH(int64, i, n) y[i] = y[i] + 1.0f; }
}
