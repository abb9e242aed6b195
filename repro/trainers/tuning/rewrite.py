"""Changes to the tuned program's job before compilation: the same results in less time or memory."""

from __future__ import annotations

from collections import defaultdict

from repro.trainers.graph.changes import hide_future, tie_tables
from repro.trainers.graph.job_proto import (
    made_by,
    maker,
    nearest,
    operators_of,
    parameters_of,
    remove,
    signature,
    signatures_of,
    take,
    taken_as,
    taken_by,
    users_of,
)
from repro.trainers.tuning.recomputation import RECOMPUTED, find_maxima_again, skip_transfers, spare_recomputation

GRADIENT = "System-AutoGrad-"
"""How the names of operators begin that take a gradient to where its parameter is."""
ENTROPY = ("sparse_softmax_cross_entropy", "sparse_softmax_cross_entropy_ms")
"""The operators that take a loss, of classes that are whole and that are split over ranks."""
NORM = "System-ClipGradient-GlobalNorm-GlobalPow"
"""How the name of the operator begins that takes the root of the sum of all gradients' squares."""


def join_gradients(job) -> None:
    """Concatenate the gradients of a tensor's slices in one copy.

    OneFlow pads each slice's gradient with zeros to the whole tensor and sums these: 4.5 times the bytes for 3 slices.
    """
    named = {op.name: op for op in job.net.op}
    users = users_of(job)
    replaced = {}
    for addition in operators_of(job, "add_n"):
        inputs = addition.user_conf.input["in"]
        parts = [named[maker(name)] for name in inputs.s]
        kinds = {part.user_conf.op_type_name for part in parts}
        if kinds != {"narrow_grad"} or any(len(users[name]) > 1 for name in inputs.s):
            continue
        parts.sort(key=start)
        if covers(job, parts):
            inputs.s[:] = [part.user_conf.input["dy"].s[0] for part in parts]
            addition.user_conf.op_type_name = "concat"
            addition.user_conf.attr["axis"].at_int64 = parts[0].user_conf.attr["dim"].at_int64
            addition.user_conf.attr["max_dim_size"].at_int64 = end(parts[-1])
            replaced |= {part.name: maker(part.user_conf.input["dy"].s[0]) for part in parts}
    remove(job, replaced)


def start(part) -> int:
    return part.user_conf.attr["start"].at_int64


def end(part) -> int:
    return start(part) + part.user_conf.attr["length"].at_int64


def covers(job, parts: list) -> bool:
    """Whether parts, in order of their starts, cover a whole tensor along an axis that is not split over ranks."""
    wholes = {(part.user_conf.input["like"].s[0], part.user_conf.attr["dim"].at_int64) for part in parts}
    if len(wholes) > 1:
        return False
    like, axis = wholes.pop()
    size = job.helper.lbn2logical_blob_desc[like].shape.dim[axis]
    edges = [0, *map(end, parts)]
    return edges == [*map(start, parts), size] and all(stays_apart(job, part, axis) for part in parts)


def stays_apart(job, part, axis: int) -> bool:
    """Whether every rank has the complete gradient along the axis: not split along it, and no partial sum."""
    table = job.job_parallel_view_conf.op_name2nd_sbp_signature_conf
    if part.name not in table:
        return False
    signatures = table[part.name].bn_in_op2nd_sbp
    spread = [sbp for signature in signatures.values() for sbp in signature.sbp_parallel]
    return not any(
        sbp.HasField("partial_sum_parallel") or (sbp.HasField("split_parallel") and sbp.split_parallel.axis == axis)
        for sbp in spread
    )


def cast_once(job) -> None:
    """Cast a parameter once per iteration, neither per accumulation step nor when layers are recomputed.

    On an H200, not casting again for recomputation saves 1% of an iteration of the published GPT under AMP and uses 5%
    more memory.
    """
    parameters, users, casts_of = parameters_of(job), users_of(job), defaultdict(list)
    repeats = {op.name: op for op in operators_of(job, "repeat") if maker(op.user_conf.input["in"].s[0]) in parameters}
    for op in sorted(operators_of(job, "cast"), key=lambda op: op.name.startswith(RECOMPUTED)):
        casts_of[op.user_conf.input["in"].s[0], op.user_conf.attr["dtype"].at_data_type].append(op)
    shared, replaced = {}, {}
    for (source, _), (first, *others) in casts_of.items():
        if maker(source) in repeats and len(users[source]) == 1 + len(others):
            swap(job, repeats[maker(source)], first)
        elif maker(source) not in parameters:
            continue
        shared |= {op.user_conf.output["out"].s[0]: first.user_conf.output["out"].s[0] for op in others}
        replaced |= {op.name: first.name for op in others}
    take(job, shared, replaced)


def swap(job, repeat, cast) -> None:
    """Swap a cast with the repeat operator before it."""
    first, second = repeat.user_conf, type(cast.user_conf)()
    second.CopyFrom(cast.user_conf)
    for one, other in ((cast.user_conf, first), (first, second)):
        one.op_type_name = other.op_type_name
        one.attr.clear()
        for name in other.attr:
            one.attr[name].CopyFrom(other.attr[name])
    shapes = job.helper.lbn2logical_blob_desc
    shapes[first.output["out"].s[0]].CopyFrom(shapes[second.output["out"].s[0]])


def check_the_norm(job) -> None:
    """Detect overflow from the sum of squared gradients, computed for clipping, instead of from each gradient.

    A gradient that is not finite makes the sum not finite. The job is unchanged if several stages count separately.
    """
    checks = operators_of(job, "multi_count_not_finite")
    roots = [op for op in operators_of(job, "scalar_pow") if op.name.startswith(NORM)]
    if len(checks) == len(roots) == 1:
        check, root = checks[0], roots[0]
        check.user_conf.input["x"].s[:] = root.user_conf.input["in"].s
        for signatures, originals in zip(signatures_of(job, check.name), signatures_of(job, root.name)):
            for place in [place for place in signatures if place.startswith("x_")]:
                del signatures[place]
            signatures["x_0"].CopyFrom(originals["in_0"])


def skip_copies(job) -> None:
    """Connect the consumer of a reduced gradient directly to the gradient, without the copy after its transfer.

    The transfer's operator only copies: OneFlow reduces the gradient at its input, whose signature equals that of its
    output. The copy is removed if its only consumer requires this signature too, as the cast of gradients does in AMP.
    """
    users, groups = users_of(job), [set(group.op_set.op_name) for group in job.placement.placement_group]
    shared, replaced = {}, {}
    for op in operators_of(job, "hierarchical_parallel_cast"):
        source, result = op.user_conf.input["in"].s[0], op.user_conf.output["out"].s[0]
        if op.name.startswith(GRADIENT) and len(users[result]) == 1:
            user = users[result][0]
            together = any({op.name, user.name} <= group for group in groups)
            if together and signature(job, taken_as(user, result)) == signature(job, result):
                shared[result], replaced[op.name] = source, maker(source)
    take(job, shared, replaced)


def take_turns(job) -> None:
    """Make each part of the head wait until no gradient needs the logits of the part before it.

    OneFlow would compute the logits of all parts first. Parts with the same table belong to one head.
    """
    named, users, parts = {op.name: op for op in job.net.op}, users_of(job), defaultdict(list)
    for loss in [op for kind in ENTROPY for op in operators_of(job, kind)]:
        for product in nearest(loss, lambda op: [named[maker(name)] for name in taken_by(op)], is_product):
            parts[product.user_conf.input["b"].s[0]].append((product, loss))
    for chain in parts.values():
        for (_, loss), (product, _) in zip(chain, chain[1:]):
            last = nearest(loss, lambda op: [user for name in made_by(op) for user in users[name]], is_product)
            product.ctrl_in_op_name.extend(sorted(op.name for op in last))


def is_product(op) -> bool:
    return "matmul" in op.user_conf.op_type_name


REWRITES = (
    join_gradients,
    hide_future,
    skip_transfers,
    cast_once,
    spare_recomputation,
    find_maxima_again,
    check_the_norm,
    tie_tables,
    skip_copies,
    take_turns,
)
"""All changes to the job of a tuned program, in their order: two of them the published programs need too."""
