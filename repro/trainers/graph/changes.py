"""What the published programs ask of OneFlow 0.8.0 and its Python functions cannot: changes to a job before it is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable

from repro.trainers.graph.job_proto import add, made_by, maker, operators_of, signatures_of, take, taken_by

CAUSAL_SOFTMAX = "fused_tril_scale_softmax_mask_scale"
TABLES = ("model.tokens.weight", "model.twin.weight")
"""Parameters that are one, on the first stage and on the last."""
POOLING = "max_pool_2d"
SAME = "same_lower"
"""Padding that keeps the size at stride 1, the odd row and column of it before the others."""
SUM_OF_SQUARES = "multi_reduce_sum_pow_abs"
"""0.8.0's operator for clipping: absolute values to the power of 2, summed over one gradient or several."""
CLIP_FACTOR = ("scalar_pow", "scalar_add", "reciprocal_no_nan", "scalar_mul", "clip_by_scalar_max")
"""0.8.0's operators from the sum of squares to the factor of all gradients, min(1, clip / (norm + 1e-6))."""
MOST_ADDED = 8
"""Terms of an addition in the published clipping."""


def hide_future(job) -> None:
    """Have the kernel of causal attention hide scores as published, by minus infinity; its Python function hides by 0."""
    for op in operators_of(job, CAUSAL_SOFTMAX):
        op.user_conf.attr["tril_fill_value"].at_float = -math.inf


def pool_without_places(job) -> None:
    """Have max pooling find the maxima again for its gradient, as cuDNN's does, and not keep where they are."""
    pooled = {}
    for op in operators_of(job, POOLING):
        take_pool_settings(op)
        pooled[op.name] = op.user_conf.output["y"].s[0]
        del job.helper.lbn2logical_blob_desc[op.user_conf.output["indice"].s[0]]
        del op.user_conf.output["indice"]
        op.user_conf.output_order.remove("indice")
        for signatures in signatures_of(job, op.name):
            del signatures["indice_0"]
    for op in operators_of(job, f"{POOLING}_grad"):
        take_pool_settings(op)
        forward = maker(op.user_conf.input["indice"].s[0])
        op.user_conf.input["y"].s[:] = [pooled[forward]]
        del op.user_conf.input["indice"]
        order = op.user_conf.input_order
        order[:] = ["y" if name == "indice" else name for name in order]
        for signatures, originals in zip(signatures_of(job, op.name), signatures_of(job, forward)):
            del signatures["indice_0"]
            signatures["y_0"].CopyFrom(originals["y_0"])


def take_pool_settings(op) -> None:
    """Make a max pooling, or its gradient, the one of cuDNN."""
    given = op.user_conf.attr
    sizes = {
        "pool_size": list(given["kernel_size"].at_list_int32.val),
        "strides": list(given["stride"].at_list_int32.val),
    }
    sizes |= {"padding_before": [1, 1], "padding_after": [0, 0]}
    op.user_conf.op_type_name = f"tf_{op.user_conf.op_type_name}"
    for name in ("kernel_size", "stride", "dilation", "return_indices"):
        del given[name]
    given["padding"].Clear()
    given["padding"].at_string = SAME
    for name, values in sizes.items():
        given[name].at_list_int32.val[:] = values


def tie_tables(job) -> None:
    """Have two parameters that begin alike stay so: both are updated by the sum of their gradients.

    These cross over once in an iteration, after accumulation. The norm of all gradients counts the sum once.
    """
    updates = {maker(op.user_conf.input["model"].s[0]): op for op in job.net.op if "model_diff" in op.user_conf.input}
    pair = [updates[name] for name in TABLES if name in updates]
    if len(pair) < len(TABLES):
        return
    own, other = (update.user_conf.input["model_diff"].s[0] for update in pair)
    for update in pair:
        update.user_conf.input["model_diff"].s[:] = [add_sum(job, update, [own, other])]
    total = pair[0].user_conf.input["model_diff"].s[0]
    for norm in operators_of(job, SUM_OF_SQUARES):
        given = norm.user_conf.input["x"].s
        if other in given:
            for signatures in signatures_of(job, norm.name):
                del signatures[f"x_{len(given) - 1}"]
        given[:] = [total if name == own else name for name in given if name != other]


def add_sum(job, update, terms: list) -> str:
    """Add an operator that sums values where an update takes place, spread as its gradient is; the sum's name."""
    name = f"{update.name}-Sum"
    op = add(job, name, update)
    op.user_conf.op_type_name = "add_n"
    op.user_conf.input["in"].s[:] = terms
    op.user_conf.output["out"].s[:] = [f"{name}/out_0"]
    op.user_conf.input_order.append("in")
    op.user_conf.output_order.append("out")
    for signatures, originals in zip(signatures_of(job, name, update.name), signatures_of(job, update.name)):
        for place in ("in_0", "in_1", "out_0"):
            signatures[place].CopyFrom(originals["model_diff_0"])
    job.helper.lbn2logical_blob_desc[f"{name}/out_0"].CopyFrom(job.helper.lbn2logical_blob_desc[terms[0]])
    return f"{name}/out_0"


def sum_squares(job) -> None:
    """Clip by the norm of gradients with the published operators, which 0.8.0 still has but no longer clips by.

    0.8.0's own kernel aborts for a gradient of 4,097 to 5,375 blocks of 512 elements on a GPU with 132 multiprocessors
    (multi_reduce_kernels.cu:108); BERT's 768 x 3072 matrices have 4,608.
    """
    norms = operators_of(job, SUM_OF_SQUARES)
    together = any(len(norm.user_conf.input["x"].s) > 1 for norm in norms)
    for norm in norms:
        norm.user_conf.op_type_name = "multi_square_sum" if together else "square_sum"
        del norm.user_conf.attr["p"]
    makers = {op.name: op for op in job.net.op}
    for last in operators_of(job, CLIP_FACTOR[-1]):
        chain = [last]
        while len(chain) < len(CLIP_FACTOR):
            chain.insert(0, makers[maker(taken_by(chain[0])[0])])
        if chain[-2].user_conf.attr["float_operand"].at_double == 1.0:
            add_in_groups(job, makers.get(maker(taken_by(chain[0])[0])))
            invert_norm(job, chain)


def add_in_groups(job, addition) -> None:
    """Split an addition of many values, if it is one, into a tree of additions of at most `MOST_ADDED`."""
    if addition is None or addition.user_conf.op_type_name != "add_n":
        return
    terms = list(addition.user_conf.input["in"].s)
    place = 0
    while len(terms) > MOST_ADDED:
        group, terms = terms[-MOST_ADDED:], terms[:-MOST_ADDED]
        terms.append(add_scalars(job, f"{addition.name}-{place}", addition, group))
        place += 1
    for signatures in signatures_of(job, addition.name):
        for number in range(len(terms), len(addition.user_conf.input["in"].s)):
            del signatures[f"in_{number}"]
    addition.user_conf.input["in"].s[:] = terms


def add_scalars(job, name: str, like, terms: list) -> str:
    """Add an operator that sums some of the values that the addition `like` sums; the sum's name."""
    op = add(job, name, like)
    op.user_conf.CopyFrom(like.user_conf)
    op.user_conf.input["in"].s[:] = terms
    op.user_conf.output["out"].s[:] = [f"{name}/out_0"]
    for signatures, originals in zip(signatures_of(job, name, like.name), signatures_of(job, like.name)):
        for place in (*(f"in_{number}" for number in range(len(terms))), "out_0"):
            signatures[place].CopyFrom(originals["out_0"])
    job.helper.lbn2logical_blob_desc[f"{name}/out_0"].CopyFrom(job.helper.lbn2logical_blob_desc[terms[0]])
    return f"{name}/out_0"


def invert_norm(job, chain: list) -> None:
    """Replace the operators of `CLIP_FACTOR` by the published ones, whose factor is min(1 / norm, 1 / clip).

    That clips to a norm of 1 only, which is what every published run did. Source:
    oneflow@05fdee7d:oneflow/core/job_rewriter/autograd.cpp#L558-L584, the same in 0.1.9.
    """
    power, *between, last = chain
    (before,) = made_by(last)
    inverse, factor = become(job, power, "rsqrt", "x", "y"), become(job, last, "broadcast_minimum", "x", "z")
    limit = add(job, f"{last.name}-Limit", last)
    limit.constant_like_conf.like = inverse
    limit.constant_like_conf.out = "out"
    limit.constant_like_conf.float_operand = 1.0
    last.user_conf.input["x"].s[:] = [inverse]
    last.user_conf.input["y"].s[:] = [f"{limit.name}/out"]
    last.user_conf.input_order[:] = ["x", "y"]
    for signatures in signatures_of(job, last.name):
        signatures["y_0"].CopyFrom(signatures["x_0"])
    for signatures, originals in zip(signatures_of(job, limit.name, last.name), signatures_of(job, last.name)):
        for place in ("like", "out"):
            signatures[place].CopyFrom(originals["x_0"])
    blobs = job.helper.lbn2logical_blob_desc
    blobs[f"{limit.name}/out"].CopyFrom(blobs[inverse])
    take(job, {before: factor}, {op.name: "" for op in between})


def become(job, op, kind: str, source: str, target: str) -> str:
    """Make an operator another `kind`, with an input `source` and an output `target`; returns the output's new name."""
    ((taken, values),) = op.user_conf.input.items()
    ((given, made),) = op.user_conf.output.items()
    value, before, after = values.s[0], made.s[0], f"{op.name}/{target}_0"
    blob, signatures = job.helper.lbn2logical_blob_desc, signatures_of(job, op.name)
    blob[after].CopyFrom(blob[before])
    for name, new in ((f"{taken}_0", f"{source}_0"), (f"{given}_0", f"{target}_0")):
        for places in signatures:
            if name != new:
                places[new].CopyFrom(places[name])
                del places[name]
    conf = op.user_conf
    conf.Clear()
    conf.op_type_name = kind
    conf.input[source].s[:] = [value]
    conf.output[target].s[:] = [after]
    conf.input_order[:], conf.output_order[:] = [source], [target]
    if before != after:
        del blob[before]
    return after


Change = Callable[..., None]
CHANGES: tuple[Change, ...] = (hide_future, pool_without_places, tie_tables, sum_squares)
"""What is changed in the job of every published program."""
