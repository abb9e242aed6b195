"""What the published programs ask of OneFlow 0.8.0 and its Python functions cannot: changes to a job before it is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable

from repro.trainers.graph.job_proto import add, maker, operators_of, signatures_of

CAUSAL_SOFTMAX = "fused_tril_scale_softmax_mask_scale"
TABLES = ("model.tokens.weight", "model.twin.weight")
"""Parameters that are one, on the first stage and on the last."""
POOLING = "max_pool_2d"
SAME = "same_lower"
"""Padding that keeps the size at stride 1, the odd row and column of it before the others."""
SUM_OF_SQUARES = "multi_reduce_sum_pow_abs"
"""0.8.0's operator for clipping: absolute values to the power of 2, summed over one gradient or several."""


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
        for signatures, known in zip(signatures_of(job, op.name), signatures_of(job, forward)):
            del signatures["indice_0"]
            signatures["y_0"].CopyFrom(known["y_0"])


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
    for signatures, known in zip(signatures_of(job, name, update.name), signatures_of(job, update.name)):
        for place in ("in_0", "in_1", "out_0"):
            signatures[place].CopyFrom(known["model_diff_0"])
    job.helper.lbn2logical_blob_desc[f"{name}/out_0"].CopyFrom(job.helper.lbn2logical_blob_desc[terms[0]])
    return f"{name}/out_0"


def sum_squares(job) -> None:
    """Sum up the squares of gradients with the published operators, which 0.8.0 still has but no longer clips by.

    0.8.0's own kernel aborts for a gradient of 4,097 to 5,375 blocks of 512 elements on a GPU with 132 multiprocessors
    (multi_reduce_kernels.cu:108); BERT's 768 x 3072 matrices have 4,608.
    """
    norms = operators_of(job, SUM_OF_SQUARES)
    together = any(len(norm.user_conf.input["x"].s) > 1 for norm in norms)
    for norm in norms:
        norm.user_conf.op_type_name = "multi_square_sum" if together else "square_sum"
        del norm.user_conf.attr["p"]


Change = Callable[..., None]
CHANGES: tuple[Change, ...] = (hide_future, pool_without_places, tie_tables, sum_squares)
"""What is changed in the job of every published program."""
