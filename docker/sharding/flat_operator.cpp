/*
 * OneFlow operators between a flat tensor and the parameters in it, for an optimizer that is sharded over ranks.
 *
 * repro_parts       in (ranks * chunk) -> out_0, out_1, ...: parameters of the shapes `out_shapes`
 * repro_parts_grad  dy_0, dy_1, ... -> dx (ranks * chunk)
 *
 * A flat tensor is `ranks` rows of `chunk` elements. Row r has the r-th part of each parameter, one after the other, so
 * a rank that has the row can update these parts; the ranks' parts of a parameter are equally large.
 * An operator copies all of them: OneFlow takes longer to begin an operator than a GPU takes to copy a small parameter.
 */
#include "oneflow/core/ep/include/primitive/copy_nd.h"
#include "oneflow/core/framework/framework.h"

namespace oneflow {

/* What automatic mixed precision does with an operator; its header is not in the wheel. */
class AutoMixedPrecisionLists final {
  public:
    static const HashSet<std::string> &ClearList();
};

namespace {

/* The shape of the flat tensor with parameters of these shapes. */
Maybe<Shape> flat(user_op::InferContext *ctx)
{
    const int64_t ranks = ctx->Attr<int64_t>("ranks");
    int64_t count = 0;
    for (const Shape &shape : ctx->Attr<std::vector<Shape>>("out_shapes")) {
        CHECK_EQ_OR_RETURN(shape.elem_cnt() % ranks, 0) << ranks << " ranks cannot have equally much of each parameter";
        count += shape.elem_cnt();
    }
    return std::make_shared<Shape>(DimVector{count});
}

const int64_t START[] = {0, 0};

/* Copies the parameters, in their order, between their places in the rows and tensors of their own. */
class Rows {
  public:
    Rows(user_op::KernelComputeContext *ctx, const user_op::Tensor *flat)
        : stream(ctx->stream()), type(flat->data_type()), ranks(ctx->Attr<int64_t>("ranks")),
          rows{ranks, flat->shape_view().elem_cnt() / ranks},
          copy(ep::primitive::NewPrimitive<ep::primitive::CopyNdFactory>(ctx->device_type(), 2))
    {
        CHECK(copy);
    }
    void take(const void *flat, user_op::Tensor *parameter)
    {
        const Part part = next(parameter);
        copy->Launch(stream, type, 2, parameter->mut_raw_dptr(), part.sizes, START, flat, rows, part.at, part.sizes);
    }
    void put(void *flat, const user_op::Tensor *parameter)
    {
        const Part part = next(parameter);
        copy->Launch(stream, type, 2, flat, rows, part.at, parameter->raw_dptr(), part.sizes, START, part.sizes);
    }

  private:
    struct Part {
        int64_t sizes[2], at[2];
    };
    Part next(const user_op::Tensor *parameter)
    {
        const Part part = {{ranks, parameter->shape_view().elem_cnt() / ranks}, {0, column}};
        column += part.sizes[1];
        return part;
    }
    ep::Stream *stream;
    const DataType type;
    const int64_t ranks, rows[2];
    std::unique_ptr<ep::primitive::CopyNd> copy;
    int64_t column = 0;
};

class Parts final : public user_op::OpKernel {
    using user_op::OpKernel::Compute;
    void Compute(user_op::KernelComputeContext *ctx) const override
    {
        const user_op::Tensor *in = ctx->Tensor4ArgNameAndIndex("in", 0);
        Rows rows(ctx, in);
        for (size_t index = 0; index < ctx->outputs().size(); ++index)
            rows.take(in->raw_dptr(), ctx->Tensor4ArgNameAndIndex("out", index));
    }
    bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};

class PartsGrad final : public user_op::OpKernel {
    using user_op::OpKernel::Compute;
    void Compute(user_op::KernelComputeContext *ctx) const override
    {
        user_op::Tensor *dx = ctx->Tensor4ArgNameAndIndex("dx", 0);
        Rows rows(ctx, dx);
        for (size_t index = 0; index < ctx->inputs().size(); ++index)
            rows.put(dx->mut_raw_dptr(), ctx->Tensor4ArgNameAndIndex("dy", index));
    }
    bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};

/* Ranks have the whole of all tensors, or a term of the sum of each. */
Maybe<void> alike(user_op::SbpContext *ctx)
{
    ctx->NewBuilder().PartialSum(ctx->inputs()).PartialSum(ctx->outputs()).Build();
    return Maybe<void>::Ok();
}

/* `out_dtypes` and `dynamic_out` are what the Python function that dispatches the operator has; neither is read. */
REGISTER_USER_OP("repro_parts")
    .Input("in")
    .Output("out")
    .Attr<std::vector<Shape>>("out_shapes")
    .Attr<std::vector<DataType>>("out_dtypes")
    .Attr<bool>("dynamic_out", false)
    .Attr<int64_t>("ranks", 1)
    .SetTensorDescInferFn([](user_op::InferContext *ctx) -> Maybe<void> {
        const auto &shapes = ctx->Attr<std::vector<Shape>>("out_shapes");
        CHECK_EQ_OR_RETURN(ctx->InputShape("in", 0), *JUST(flat(ctx)));
        for (size_t index = 0; index < shapes.size(); ++index) *ctx->OutputShape("out", index) = shapes[index];
        return Maybe<void>::Ok();
    })
    .SetGetSbpFn(alike)
    .SetDataTypeInferFn([](user_op::InferContext *ctx) -> Maybe<void> {
        for (const auto &out : ctx->outputs()) *ctx->OutputDType("out", out.second) = ctx->InputDType("in", 0);
        return Maybe<void>::Ok();
    });

REGISTER_USER_OP("repro_parts_grad")
    .Input("dy")
    .Output("dx")
    .Attr<std::vector<Shape>>("out_shapes")
    .Attr<int64_t>("ranks", 1)
    .SetTensorDescInferFn([](user_op::InferContext *ctx) -> Maybe<void> {
        *ctx->OutputShape("dx", 0) = *JUST(flat(ctx));
        return Maybe<void>::Ok();
    })
    .SetGetSbpFn(alike)
    .SetDataTypeInferFn([](user_op::InferContext *ctx) -> Maybe<void> {
        *ctx->OutputDType("dx", 0) = ctx->InputDType("dy", 0);
        return Maybe<void>::Ok();
    });

REGISTER_USER_OP_GRAD("repro_parts").SetBackwardOpConfGenFn([](user_op::BackwardOpConfContext *ctx) -> Maybe<void> {
    const auto &forward = ctx->FwOp();
    const std::string name = forward.op_name() + "_grad";
    ctx->DefineOp(name, [&](user_op::BackwardOpBuilder &builder) {
        builder.OpTypeName("repro_parts_grad");
        for (int32_t index = 0; index < forward.output_size("out"); ++index)
            builder.InputBind("dy", ctx->FwOp().output_grad("out", index));
        return builder.Output("dx")
            .Attr("out_shapes", forward.attr<std::vector<Shape>>("out_shapes"))
            .Attr("ranks", forward.attr<int64_t>("ranks"))
            .Build();
    });
    ctx->FwOp().InputGradBind(user_op::OpArg("in", 0),
                              [ctx, name]() -> const std::string & { return ctx->GetOp(name).output("dx", 0); });
    return Maybe<void>::Ok();
});

REGISTER_USER_KERNEL("repro_parts").SetCreateFn<Parts>().SetIsMatchedHob(user_op::HobTrue());
REGISTER_USER_KERNEL("repro_parts_grad").SetCreateFn<PartsGrad>().SetIsMatchedHob(user_op::HobTrue());

/* Under mixed precision it has the precision of what is around it, as those of OneFlow's operators do that only copy. */
const bool listed = const_cast<HashSet<std::string> &>(AutoMixedPrecisionLists::ClearList()).insert("repro_parts").second;

} // namespace
} // namespace oneflow
