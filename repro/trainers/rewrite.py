"""Changes to a graph's operators that OneFlow's Python functions cannot ask for, made before it is compiled."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from oneflow import nn

from repro.trainers.ops import MASKED

CAUSAL_SOFTMAX = "fused_tril_scale_softmax_mask_scale"
RECOMPUTED = "OneFlow-System-Checkpointing-Fake-Fw-Op_"
"""How the names of operators begin that activation checkpointing adds."""
MASK = "random_mask_like"
NORM = "System-ClipGradient-GlobalNorm-GlobalPow"
"""How the name of the operator begins that takes the root of the sum of all gradients' squares."""


class RewrittenGraph(nn.Graph):
    """A graph whose operators are rewritten before it is compiled, at its first call."""

    def _compile(self, *batch):
        job, outputs = self.build_graph(*batch)
        join_gradients(job)
        hide_future(job)
        skip_transfers(job)
        share_casts(job)
        spare_recomputation(job)
        check_the_norm(job)
        self._full_graph_proto = job
        self.finish_complie_and_init_runtime()
        return outputs


def hide_future(job) -> None:
    """Have the kernel of causal attention fill in for hidden scores what its Python function cannot set (0)."""
    for op in operators_of(job, CAUSAL_SOFTMAX):
        op.user_conf.attr["tril_fill_value"].at_float = MASKED


def skip_transfers(job) -> None:
    """Where layers are computed again, leave out transfers between ranks of what is where it should be: copies."""
    shared, replaced = {}, {}
    for op in operators_of(job, "hierarchical_parallel_cast"):
        source, result = op.user_conf.input["in"].s[0], op.user_conf.output["out"].s[0]
        if op.name.startswith(RECOMPUTED) and signature(job, source) == signature(job, result):
            shared[result], replaced[op.name] = source, maker(source)
    take(job, shared, replaced)


def share_casts(job) -> None:
    """Where layers are computed again, take a parameter's cast that the forward pass has made already.

    On an H200 that saves 1 % of an iteration of the published GPT under AMP and keeps 5 % more memory.
    """
    parameters = {op.name for op in job.net.op if op.HasField("variable_conf")}
    made, shared, replaced = {}, {}, {}
    for op in sorted(operators_of(job, "cast"), key=lambda op: op.name.startswith(RECOMPUTED)):
        source, result = op.user_conf.input["in"].s[0], op.user_conf.output["out"].s[0]
        if maker(source) in parameters:
            first = made.setdefault((source, op.user_conf.attr["dtype"].at_data_type), result)
            if first != result:
                shared[result] = first
                replaced[op.name] = maker(first)
    take(job, shared, replaced)


def spare_recomputation(job) -> None:
    """Leave out what is computed again for nothing: a layer's end, of which no gradient needs but the dropout mask.

    A mask is told its shape by what it will be laid on. Where nothing else needs that, something before it tells.
    """
    again = {op.name: op for op in job.net.op if op.name.startswith(RECOMPUTED)}
    needed = needed_again(job, again, shapes=False)
    for name in needed:
        like = again[name].user_conf.input["like"].s if again[name].user_conf.op_type_name == MASK else []
        if like and maker(like[0]) in again.keys() - needed:
            like[:] = [next((value for value in before(like[0], again)
                             if maker(value) in needed and is_alike(job, value, like[0])), like[0])]  # fmt: skip
    needed = needed_again(job, again, shapes=True)
    remove(job, {name: "" for name in again.keys() - needed})


def needed_again(job, again: dict, shapes: bool) -> set:
    """Names of the operators in `again` that others need; where masks need no more than a shape only with `shapes`."""
    needed, users = set(), [op for op in job.net.op if op.name not in again]
    while users:
        op = users.pop()
        for key, given in op.user_conf.input.items():
            if shapes or (op.user_conf.op_type_name, key) != (MASK, "like"):
                new = {maker(name) for name in given.s} & again.keys() - needed
                needed |= new
                users += [again[name] for name in new]
    return needed


def before(name: str, again: dict) -> Iterator[str]:
    """The values that a value is computed from, those of the operators in `again`, the nearest first."""
    values = [name]
    for value in values:
        given = again[maker(value)].user_conf.input.values() if maker(value) in again else []
        values += [each for names in given for each in names.s if each not in values]
    return iter(values[1:])


def is_alike(job, one: str, other: str) -> bool:
    """Whether two values have one shape and type, and are spread over the ranks in the same way."""
    shapes = job.helper.lbn2logical_blob_desc
    return shapes[one] == shapes[other] and signature(job, one) == signature(job, other)


def signature(job, name: str):
    """The signature by which a value is spread over the ranks."""
    operator, place = name.split("/")
    return job.job_parallel_view_conf.op_name2nd_sbp_signature_conf[operator].bn_in_op2nd_sbp[place]


def check_the_norm(job) -> None:
    """Tell whether gradients overflowed by the sum of their squares, taken to clip them, and not by each once more.

    A gradient that is not finite makes the sum so too. Where several stages count by themselves that is left as it is.
    """
    checks = operators_of(job, "multi_count_not_finite")
    roots = [op for op in operators_of(job, "scalar_pow") if op.name.startswith(NORM)]
    if len(checks) == len(roots) == 1:
        check, root, view = checks[0], roots[0], job.job_parallel_view_conf
        check.user_conf.input["x"].s[:] = root.user_conf.input["in"].s
        for table, field in ((view.op_name2sbp_signature_conf, "bn_in_op2sbp_parallel"),
                             (view.op_name2nd_sbp_signature_conf, "bn_in_op2nd_sbp")):  # fmt: skip
            signatures = getattr(table[check.name], field)
            for name in [name for name in signatures if name.startswith("x_")]:
                del signatures[name]
            signatures["x_0"].CopyFrom(getattr(table[root.name], field)["in_0"])


def operators_of(job, kind: str) -> list:
    """The operators of a type, by OneFlow's name for it, in a job's protocol buffer."""
    return [op for op in job.net.op if op.user_conf.op_type_name == kind]


def join_gradients(job) -> bool:
    """Put the gradients of a tensor's parts beside each other in one copy; whether there were any.

    OneFlow puts each part among zeros as large as the whole, and adds these: for three parts 4.5 times the bytes.
    """
    named = {op.name: op for op in job.net.op}
    uses = Counter(name for op in job.net.op for given in op.user_conf.input.values() for name in given.s)
    replaced = {}
    for addition in operators_of(job, "add_n"):
        inputs = addition.user_conf.input["in"]
        parts = [named[maker(name)] for name in inputs.s]
        kinds = {part.user_conf.op_type_name for part in parts}
        if kinds != {"narrow_grad"} or any(uses[name] > 1 for name in inputs.s):
            continue
        parts.sort(key=start)
        if covers(job, parts):
            inputs.s[:] = [part.user_conf.input["dy"].s[0] for part in parts]
            addition.user_conf.op_type_name = "concat"
            addition.user_conf.attr["axis"].at_int64 = parts[0].user_conf.attr["dim"].at_int64
            addition.user_conf.attr["max_dim_size"].at_int64 = end(parts[-1])
            replaced |= {part.name: maker(part.user_conf.input["dy"].s[0]) for part in parts}
    remove(job, replaced)
    return bool(replaced)


def maker(name: str) -> str:
    """The operator that makes a value, which is named after it."""
    return name.split("/")[0]


def start(part) -> int:
    return part.user_conf.attr["start"].at_int64


def end(part) -> int:
    return start(part) + part.user_conf.attr["length"].at_int64


def covers(job, parts: list) -> bool:
    """Whether parts, by their starts, make up a whole of one shape, side by side along an axis that no ranks split."""
    wholes = {(part.user_conf.input["like"].s[0], part.user_conf.attr["dim"].at_int64) for part in parts}
    if len(wholes) > 1:
        return False
    like, axis = wholes.pop()
    size = job.helper.lbn2logical_blob_desc[like].shape.dim[axis]
    edges = [0, *map(end, parts)]
    return edges == [*map(start, parts), size] and all(stays_apart(job, part, axis) for part in parts)


def stays_apart(job, part, axis: int) -> bool:
    """Whether every rank has all of its samples' gradient along the axis, and not a summand of it."""
    table = job.job_parallel_view_conf.op_name2nd_sbp_signature_conf
    if part.name not in table:
        return False
    signatures = table[part.name].bn_in_op2nd_sbp
    spread = [each for signature in signatures.values() for each in signature.sbp_parallel]
    return not any(each.HasField("partial_sum_parallel") or
                   (each.HasField("split_parallel") and each.split_parallel.axis == axis) for each in spread)


def take(job, shared: dict, replaced: dict) -> None:
    """Have operators take other values, which `shared` names by those they took, and `remove` what made these."""
    for op in job.net.op if shared else []:
        for given in op.user_conf.input.values():
            given.s[:] = [shared.get(name, name) for name in given.s]
    remove(job, replaced)


def remove(job, replaced: dict) -> None:
    """Take operators out of a job; `replaced` names for each the one that others have to wait for instead, if any."""

    def awaited(name: str) -> str:
        return awaited(replaced[name]) if name in replaced else name

    if not replaced:
        return
    for place in reversed([place for place, op in enumerate(job.net.op) if op.name in replaced]):
        del job.net.op[place]
    for op in job.net.op:
        op.ctrl_in_op_name[:] = sorted({awaited(name) for name in op.ctrl_in_op_name} - {""})
    for group in job.placement.placement_group:
        group.op_set.op_name[:] = [name for name in group.op_set.op_name if name not in replaced]
    view = job.job_parallel_view_conf
    for table in (view.op_name2sbp_signature_conf, view.op_name2nd_sbp_signature_conf):
        for name in replaced:
            table.pop(name, None)
