"""The performance model's terms of the perceptron: two products per sample."""

from __future__ import annotations

from repro.perfmodel.work import KernelWork, ModelJob, Stage


def stages(job: ModelJob) -> tuple[Stage, ...]:
    """The one stage of a data parallel perceptron."""
    weights, kept = _weights(job), _kept(job)
    forward = KernelWork(2 * weights * job.micro_batch, job.element_bytes * (weights + kept), kernels=5)
    return (
        Stage(
            forward=forward,
            backward=forward * 2,
            recompute=KernelWork(),
            parameters=weights,
            late_parameters=0,
            tensors=4,
            kept_bytes=job.element_bytes * kept,
        ),
    )


def flops(job: ModelJob) -> float:
    """Floating-point operations of an iteration: backward takes twice as many as forward."""
    return 6.0 * _weights(job) * job.global_batch


def memory(job: ModelJob) -> tuple[float, float]:
    """Parameters, and bytes of activations of a rank."""
    return _weights(job), job.element_bytes * _kept(job)


def _weights(job: ModelJob) -> int:
    shape = dict(job.shape)
    return shape["hidden_size"] * (shape["features"] + shape["classes"])


def _kept(job: ModelJob) -> int:
    return job.micro_batch * sum(dict(job.shape).values())
