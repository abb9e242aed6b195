/*
 * OneFlow operators that compute self-attention with cuDNN's fused kernels, which OneFlow 0.8.0 has none of.
 *
 * Compiled against the headers of its wheel and loaded by oneflow.utils.load_library. The tuned program puts them into
 * a compiled job (repro/trainers/tuning/attention.py), so nothing here is differentiated by OneFlow.
 *
 * repro_attention       in (b, s, n, 3d) -> out (b, s, n, d), stats (b, n, s), fp32: the logarithms of the rows' sums.
 * repro_attention_grad  dy (b, s, n, d), in, out, stats -> dx (b, s, n, 3d)
 *
 * Each call of an operator draws random numbers of its own for dropout. A gradient draws the same as the forward pass
 * of the same seed, since every operator counts its calls, and both run once per micro-batch.
 */
#include "cudnn_attention.h"
#include "plain_attention.h"

#include "oneflow/core/framework/framework.h"

/* The one function of OneFlow's CUDA classes that is needed; their headers would ask for those of CUDA. */
extern "C" void *cuda_stream_of(const void *stream) __asm__("_ZNK7oneflow2ep10CudaStream11cuda_streamEv");

namespace oneflow {
namespace {

const int64_t RANKS_APART = 0x9E3779B97F4A7C15;

class Calls final : public user_op::OpKernelState {
  public:
    explicit Calls(int64_t seed) : seed(seed) {}
    const int64_t seed;
    /* Each thread of a call takes less than 2^32 random numbers. */
    int64_t next() { return count++ << 32; }

  private:
    int64_t count = 0;
};

attention::Shape shape_of(user_op::KernelComputeContext *ctx)
{
    const auto x = ctx->Tensor4ArgNameAndIndex("in", 0)->shape_view();
    return {x.At(0), x.At(1), x.At(2), x.At(3) / 3, ctx->Attr<float>("dropout"), true};
}

const void *read(user_op::KernelComputeContext *ctx, const char *name)
{
    return ctx->Tensor4ArgNameAndIndex(name, 0)->raw_dptr();
}

void *written(user_op::KernelComputeContext *ctx, const char *name)
{
    return ctx->Tensor4ArgNameAndIndex(name, 0)->mut_raw_dptr();
}

/* What computes for one type of device, with a call's random numbers. */
struct OnGpu {
    static void forward(user_op::KernelComputeContext *ctx, int64_t seed, int64_t offset)
    {
        stream(ctx).forward(shape_of(ctx), read(ctx, "in"), written(ctx, "out"),
                            static_cast<float *>(written(ctx, "stats")), seed, offset);
    }
    static void backward(user_op::KernelComputeContext *ctx, int64_t seed, int64_t offset)
    {
        stream(ctx).backward(shape_of(ctx), read(ctx, "in"), read(ctx, "out"),
                             static_cast<const float *>(read(ctx, "stats")), read(ctx, "dy"), written(ctx, "dx"), seed,
                             offset);
    }

  private:
    static attention::Stream &stream(user_op::KernelComputeContext *ctx)
    {
        return attention::on(cuda_stream_of(ctx->stream()));
    }
};

struct OnCpu {
    static void forward(user_op::KernelComputeContext *ctx, int64_t seed, int64_t offset)
    {
        plain(ctx, seed, offset)
            .forward(static_cast<float *>(written(ctx, "out")), static_cast<float *>(written(ctx, "stats")));
    }
    static void backward(user_op::KernelComputeContext *ctx, int64_t seed, int64_t offset)
    {
        plain(ctx, seed, offset)
            .backward(static_cast<const float *>(read(ctx, "out")), static_cast<const float *>(read(ctx, "stats")),
                      static_cast<const float *>(read(ctx, "dy")), static_cast<float *>(written(ctx, "dx")));
    }

  private:
    static attention::Plain plain(user_op::KernelComputeContext *ctx, int64_t seed, int64_t offset)
    {
        return {shape_of(ctx), static_cast<const float *>(read(ctx, "in")), seed, offset};
    }
};

template <void (*call)(user_op::KernelComputeContext *, int64_t, int64_t)>
class Kernel final : public user_op::OpKernel {
  public:
    std::shared_ptr<user_op::OpKernelState> CreateOpKernelState(user_op::KernelInitContext *ctx) const override
    {
        const int64_t rank = ctx->parallel_ctx().parallel_id();
        return std::make_shared<Calls>(ctx->Attr<int64_t>("seed") + rank * RANKS_APART);
    }

  private:
    using user_op::OpKernel::Compute;
    void Compute(user_op::KernelComputeContext *ctx, user_op::OpKernelState *state,
                 const user_op::OpKernelCache *) const override
    {
        auto *calls = dynamic_cast<Calls *>(state);
        try {
            call(ctx, calls->seed, calls->next());
        } catch (const std::exception &error) {
            fprintf(stderr, "%s: %s\n", ctx->op_name().c_str(), error.what());
            std::_Exit(1);
        }
    }
    bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};

REGISTER_USER_OP("repro_attention")
    .Input("in")
    .Output("out")
    .Output("stats")
    .Attr<float>("dropout", 0.0)
    .Attr<int64_t>("seed", 0)
    .SetTensorDescInferFn([](user_op::InferContext *ctx) -> Maybe<void> {
        const Shape &in = ctx->InputShape("in", 0);
        *ctx->OutputShape("out", 0) = Shape({in.At(0), in.At(1), in.At(2), in.At(3) / 3});
        *ctx->OutputShape("stats", 0) = Shape({in.At(0), in.At(2), in.At(1)});
        return Maybe<void>::Ok();
    })
    .SetGetSbpFn([](user_op::SbpContext *ctx) -> Maybe<void> {
        const user_op::OpArg in("in", 0), out("out", 0), stats("stats", 0);
        ctx->NewBuilder().Split(in, 0).Split(out, 0).Split(stats, 0).Build();
        ctx->NewBuilder().Split(in, 2).Split(out, 2).Split(stats, 1).Build();
        return Maybe<void>::Ok();
    })
    .SetDataTypeInferFn([](user_op::InferContext *ctx) -> Maybe<void> {
        *ctx->OutputDType("out", 0) = ctx->InputDType("in", 0);
        *ctx->OutputDType("stats", 0) = DataType::kFloat;
        return Maybe<void>::Ok();
    });

REGISTER_USER_OP("repro_attention_grad")
    .Input("dy")
    .Input("in")
    .Input("out")
    .Input("stats")
    .Output("dx")
    .Attr<float>("dropout", 0.0)
    .Attr<int64_t>("seed", 0)
    .SetTensorDescInferFn([](user_op::InferContext *ctx) -> Maybe<void> {
        *ctx->OutputShape("dx", 0) = ctx->InputShape("in", 0);
        return Maybe<void>::Ok();
    })
    .SetGetSbpFn([](user_op::SbpContext *ctx) -> Maybe<void> {
        const user_op::OpArg dy("dy", 0), in("in", 0), out("out", 0), stats("stats", 0), dx("dx", 0);
        ctx->NewBuilder().Split(dy, 0).Split(in, 0).Split(out, 0).Split(stats, 0).Split(dx, 0).Build();
        ctx->NewBuilder().Split(dy, 2).Split(in, 2).Split(out, 2).Split(stats, 1).Split(dx, 2).Build();
        return Maybe<void>::Ok();
    })
    .SetDataTypeInferFn([](user_op::InferContext *ctx) -> Maybe<void> {
        *ctx->OutputDType("dx", 0) = ctx->InputDType("in", 0);
        return Maybe<void>::Ok();
    });

const auto runs_on = [](DeviceType device, DataType type) {
    return user_op::HobDeviceType() == device && user_op::HobDataType("in", 0) == type;
};
REGISTER_USER_KERNEL("repro_attention")
    .SetCreateFn<Kernel<OnGpu::forward>>()
    .SetIsMatchedHob(runs_on(DeviceType::kCUDA, DataType::kFloat16));
REGISTER_USER_KERNEL("repro_attention_grad")
    .SetCreateFn<Kernel<OnGpu::backward>>()
    .SetIsMatchedHob(runs_on(DeviceType::kCUDA, DataType::kFloat16));
REGISTER_USER_KERNEL("repro_attention")
    .SetCreateFn<Kernel<OnCpu::forward>>()
    .SetIsMatchedHob(runs_on(DeviceType::kCPU, DataType::kFloat));
REGISTER_USER_KERNEL("repro_attention_grad")
    .SetCreateFn<Kernel<OnCpu::backward>>()
    .SetIsMatchedHob(runs_on(DeviceType::kCPU, DataType::kFloat));

} // namespace
} // namespace oneflow
