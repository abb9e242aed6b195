"""Changes to what the backward pass recomputes.

OneFlow recomputes only under activation checkpointing, where it duplicates all operators of a layer.
"""

from __future__ import annotations

from collections.abc import Iterator

from repro.trainers.graph.job_proto import add, maker, operators_of, remove, signature, signatures_of, take, taken_by

RECOMPUTED = "OneFlow-System-Checkpointing-Fake-Fw-Op_"
"""How the names of operators begin that activation checkpointing adds."""
MASK = "random_mask_like"


def skip_transfers(job) -> None:
    """Remove transfers from recomputed layers whose source and target signatures are equal; they only copy."""
    shared, replaced = {}, {}
    for op in operators_of(job, "hierarchical_parallel_cast"):
        source, result = op.user_conf.input["in"].s[0], op.user_conf.output["out"].s[0]
        if op.name.startswith(RECOMPUTED) and signature(job, source) == signature(job, result):
            shared[result], replaced[op.name] = source, maker(source)
    take(job, shared, replaced)


def spare_recomputation(job) -> None:
    """Skip recomputing a layer's end, which no gradient needs except for the dropout mask.

    A mask takes its shape from the value that it is applied to. If nothing else needs this value, the mask takes its
    shape from an earlier one.
    """
    again = {op.name: op for op in job.net.op if op.name.startswith(RECOMPUTED)}
    needed = needed_again(job, again, shapes=False)
    for mask in [again[name] for name in needed if again[name].user_conf.op_type_name == MASK]:
        like = mask.user_conf.input["like"].s
        if maker(like[0]) in again.keys() - needed:
            others = (value for value in before(like[0], again) if maker(value) in needed)
            like[0] = next((value for value in others if is_alike(job, value, like[0])), like[0])
    needed = needed_again(job, again, shapes=True)
    remove(job, {name: "" for name in again.keys() - needed})


def needed_again(job, again: dict, shapes: bool) -> set:
    """Names of the operators in `again` that others need; those needed only for a mask's shape count with `shapes`."""
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
    """The values from operators in `again` that a value is computed from, nearest first."""
    values = [name]
    for value in values:
        given = taken_by(again[maker(value)]) if maker(value) in again else []
        values += [earlier for earlier in given if earlier not in values]
    return iter(values[1:])


def is_alike(job, one: str, other: str) -> bool:
    """Whether two values have the same shape, type and signature."""
    shapes = job.helper.lbn2logical_blob_desc
    return shapes[one] == shapes[other] and signature(job, one) == signature(job, other)


def find_maxima_again(job) -> None:
    """Recompute the indices of max pooling for its gradient.

    OneFlow stores these indices, 8 bytes per maximum, in the forward pass. The input, a result of batch normalisation,
    is kept anyway for its own gradient.
    """
    named, shapes = {op.name: op for op in job.net.op}, job.helper.lbn2logical_blob_desc
    for gradient in operators_of(job, "max_pool_2d_grad"):
        places = gradient.user_conf.input["indice"].s
        first = named[maker(places[0])]
        name = f"{first.name}-Again"
        again = add(job, name, first)
        again.user_conf.CopyFrom(first.user_conf)
        again.ctrl_in_op_name.append(maker(gradient.user_conf.input["dy"].s[0]))
        for key, made in again.user_conf.output.items():
            old, made.s[:] = made.s[0], [f"{name}/{key}_0"]
            shapes[made.s[0]].CopyFrom(shapes[old])
        for signatures, originals in zip(signatures_of(job, name, first.name), signatures_of(job, first.name)):
            for place in originals:
                signatures[place].CopyFrom(originals[place])
        places[:] = [f"{name}/indice_0"]
