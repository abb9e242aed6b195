"""A job: a graph's operators in a protocol buffer, as OneFlow compiles them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable


def operators_of(job, kind: str) -> list:
    """The operators of a type, by OneFlow's name for it, in a job's protocol buffer."""
    return [op for op in job.net.op if op.user_conf.op_type_name == kind]


def parameters_of(job) -> set:
    """Names of the parameters, which are operators too, and of all else that stays from one iteration to the next."""
    return {op.name for op in job.net.op if op.HasField("variable_conf")}


def users_of(job) -> dict:
    """The operators that take a value, by its name, each as often as it takes it."""
    users = defaultdict(list)
    for op in job.net.op:
        for name in taken_by(op):
            users[name].append(op)
    return users


def taken_by(op) -> list:
    """Names of the values that an operator takes."""
    return [name for given in op.user_conf.input.values() for name in given.s]


def made_by(op) -> list:
    """Names of the values that an operator makes."""
    return [name for made in op.user_conf.output.values() for name in made.s]


def nearest(op, neighbours: Callable, matches: Callable) -> list:
    """The operators that match and are reached from another by neighbours of neighbours, none behind them."""
    found, seen, waiting = [], {op.name}, [op]
    while waiting:
        for other in neighbours(waiting.pop()):
            if other.name not in seen:
                seen.add(other.name)
                (found if matches(other) else waiting).append(other)
    return found


def maker(name: str) -> str:
    """The operator that makes a value, which is named after it."""
    return name.split("/")[0]


def taken_as(op, name: str) -> str:
    """The input of an operator that takes a value, by name: it may be spread otherwise there than where it is made."""
    place = next(f"{key}_{list(given.s).index(name)}" for key, given in op.user_conf.input.items() if name in given.s)
    return f"{op.name}/{place}"


def signature(job, name: str):
    """The signature by which a value is spread over the ranks where it is made, or where it is `taken_as` an input."""
    operator, place = name.split("/")
    return job.job_parallel_view_conf.op_name2nd_sbp_signature_conf[operator].bn_in_op2nd_sbp[place]


def tables_of(job) -> tuple:
    """The two tables of signatures, each with the field that has an operator's: by one dimension of ranks, by all."""
    view = job.job_parallel_view_conf
    return (
        (view.op_name2sbp_signature_conf, "bn_in_op2sbp_parallel"),
        (view.op_name2nd_sbp_signature_conf, "bn_in_op2nd_sbp"),
    )


def signatures_of(job, name: str, like: str = "") -> list:
    """An operator's signatures by place, one mapping for each table that has those of it, or of the operator `like`.

    Operators on a mesh of ranks may be in the second table only.
    """
    return [getattr(table[name], places) for table, places in tables_of(job) if (like or name) in table]


def add(job, name: str, like):
    """Add an operator to a job, where another is and in its scope; the caller says what it does."""
    for group in job.placement.placement_group:
        if like.name in group.op_set.op_name:
            group.op_set.op_name.append(name)
    return job.net.op.add(name=name, device_tag=like.device_tag, scope_symbol_id=like.scope_symbol_id)


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
    for table, _ in tables_of(job):
        for name in replaced:
            table.pop(name, None)
