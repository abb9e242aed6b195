/* What docker/past/kernels.cu takes of CUDA, for the CPU: blocks run one after the other, their threads as coroutines. */
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define DYNAMIC_SHARED(type, name) type *name = (type *)dynamic_shared

typedef unsigned short half;
struct Place { unsigned x; };
static Place threadIdx, blockIdx, blockDim, gridDim;
static char dynamic_shared[1 << 16];

static float wide(half x) { _Float16 y; memcpy(&y, &x, 2); return y; }
static half narrow(float x) { _Float16 y = x; half bits; memcpy(&bits, &y, 2); return bits; }
static half add(half a, half b) { return narrow(wide(a) + wide(b)); }
static half multiply(half a, half b) { return narrow(wide(a) * wide(b)); }
static unsigned multiply_pairs(unsigned a, unsigned b)
{
    return (unsigned)multiply((half)(a >> 16), (half)(b >> 16)) << 16 | multiply((half)a, (half)b);
}
static float __int_as_float(int bits) { float x; memcpy(&x, &bits, 4); return x; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static void atomicAdd(float *sum, float x) { *sum += x; }

struct Thread { ucontext_t context; std::vector<char> stack; bool ended; };
struct Barrier { unsigned arrived, passed; };
static ucontext_t scheduler;
static std::vector<Thread> threads;
static Barrier of_all;
static std::vector<Barrier> of_warp;
static uint32_t exchanged[1024];
static void (*body)(void *);
static void *given;

static void pause_thread() { const unsigned own = threadIdx.x; swapcontext(&threads[own].context, &scheduler); threadIdx.x = own; }
static void wait_at(Barrier &barrier, unsigned number)
{
    const unsigned before = barrier.passed;
    if (++barrier.arrived == number) {
        barrier.arrived = 0;
        barrier.passed++;
    }
    while (barrier.passed == before)
        pause_thread();
}
static void __syncthreads() { wait_at(of_all, blockDim.x); }
template <typename T> static T __shfl_down_sync(unsigned, T value, int by)
{
    const unsigned own = threadIdx.x;
    memcpy(&exchanged[own], &value, 4);
    wait_at(of_warp[own / 32], 32);
    if (own % 32 + by < 32)
        memcpy(&value, &exchanged[own + by], 4);
    wait_at(of_warp[own / 32], 32);
    return value;
}

static void thread_begins(int own) { threadIdx.x = own; body(given); threads[own].ended = true; swapcontext(&threads[own].context, &scheduler); }

template <typename... A> struct Call { void (*kernel)(A...); void **arguments; };
template <typename... A, size_t... I> static void call(const Call<A...> &it, std::index_sequence<I...>)
{
    it.kernel(*(A *)it.arguments[I]...);
}
template <typename... A> static void launch(void (*kernel)(A...), unsigned blocks, unsigned of_block, void **arguments)
{
    Call<A...> it = {kernel, arguments};
    given = &it;
    body = [](void *it) { call(*(Call<A...> *)it, std::index_sequence_for<A...>()); };
    gridDim.x = blocks;
    blockDim.x = of_block;
    threads.resize(of_block);
    of_warp.assign(of_block / 32, {0, 0});
    of_all = {0, 0};
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        for (unsigned i = 0; i < of_block; i++) {
            threads[i].stack.resize(1 << 14);
            threads[i].ended = false;
            getcontext(&threads[i].context);
            threads[i].context.uc_stack.ss_sp = threads[i].stack.data();
            threads[i].context.uc_stack.ss_size = threads[i].stack.size();
            makecontext(&threads[i].context, (void (*)())thread_begins, 1, (int)i);
        }
        for (bool going = true; going;) {
            going = false;
            for (unsigned i = 0; i < of_block; i++)
                if (!threads[i].ended) {
                    going = true;
                    threadIdx.x = i;
                    swapcontext(&scheduler, &threads[i].context);
                }
        }
    }
}
