"""Reads and edits a job: the protocol buffer with a graph's operators that OneFlow compiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable


def operators_of(job, kind: str) -> list:
    """A job's operators of one type, given by OneFlow's type name."""
    return [op for op in job.net.op if op.user_conf.op_type_name == kind]


def parameters_of(job) -> set:
    """Names of the operators whose state persists between iterations: parameters and other variables."""
    return {op.name for op in job.net.op if op.HasField("variable_conf")}


def users_of(job) -> dict:
    """Consumers of each value by its name; an operator appears once per input that takes the value."""
    users = defaultdict(list)
    for op in job.net.op:
        for name in taken_by(op):
            users[name].append(op)
    return users


def taken_by(op) -> list:
    """Names of an operator's inputs."""
    return [name for given in op.user_conf.input.values() for name in given.s]


def made_by(op) -> list:
    """Names of an operator's outputs."""
    return [name for made in op.user_conf.output.values() for name in made.s]


def nearest(op, neighbours: Callable, matches: Callable) -> list:
    """The matching operators reachable from `op` through `neighbours`; the search stops at each match."""
    reached, seen, waiting = [], {op.name}, [op]
    while waiting:
        for other in neighbours(waiting.pop()):
            if other.name not in seen:
                seen.add(other.name)
                (reached if matches(other) else waiting).append(other)
    return reached


def maker(name: str) -> str:
    """Name of the operator that produces a value, taken from the value's name."""
    return name.split("/")[0]


def taken_as(op, name: str) -> str:
    """Name of an operator's input; its signature may differ from that of the value where it is produced."""
    place = next(f"{key}_{list(given.s).index(name)}" for key, given in op.user_conf.input.items() if name in given.s)
    return f"{op.name}/{place}"


def signature(job, name: str):
    """SBP signature of a value where it is produced, or of an operator's input named by `taken_as`."""
    operator, place = name.split("/")
    return job.job_parallel_view_conf.op_name2nd_sbp_signature_conf[operator].bn_in_op2nd_sbp[place]


def tables_of(job) -> tuple:
    """The tables of one-dimensional and n-dimensional signatures, each with the field that has an operator's entry."""
    view = job.job_parallel_view_conf
    return (
        (view.op_name2sbp_signature_conf, "bn_in_op2sbp_parallel"),
        (view.op_name2nd_sbp_signature_conf, "bn_in_op2nd_sbp"),
    )


def signatures_of(job, name: str, like: str = "") -> list:
    """An operator's signatures by input and output, one mapping per table that lists it or the operator `like`.

    Operators on a mesh may be in the n-dimensional table only.
    """
    return [getattr(table[name], places) for table, places in tables_of(job) if (like or name) in table]


def add(job, name: str, like):
    """Add an operator to a job, with the placement and scope of `like`; the caller sets its type and inputs."""
    for group in job.placement.placement_group:
        if like.name in group.op_set.op_name:
            group.op_set.op_name.append(name)
    return job.net.op.add(name=name, device_tag=like.device_tag, scope_symbol_id=like.scope_symbol_id)


def take(job, shared: dict, replaced: dict) -> None:
    """Replace inputs by the values that `shared` maps them to, and `remove` the operators in `replaced`."""
    for op in job.net.op if shared else []:
        for given in op.user_conf.input.values():
            given.s[:] = [shared.get(name, name) for name in given.s]
    remove(job, replaced)


def remove(job, replaced: dict) -> None:
    """Remove operators from a job; `replaced` maps each to the operator that others must wait for instead, if any."""

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
    for table, _ in tables_of(job):
        for name in replaced:
            table.pop(name, None)
