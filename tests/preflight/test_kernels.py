"""The finding of a comparison of operators with the CPU."""

from dataclasses import replace

from repro.launch.kernels import KernelComparison, Kernels
from repro.preflight.framework import FAILED, OK
from repro.preflight.kernels import judge


def test_preflight_names_the_worst_and_what_helps():
    results = [
        KernelComparison("convolution 3 to 64, 7x7", ("resnet50",), "fp32", "forward", 1.0, 1e-4),
        KernelComparison("convolution 64 to 64, 1x1", ("resnet50",), "fp32", "forward", 2.7, 1e-4),
        KernelComparison("product", ("gpt",), "fp32", "forward", 3e-7, 1e-4),
    ]
    kernels = Kernels("cuda", tuple(results), {}, (), 20.0)
    finding = judge(kernels)
    assert finding.result == FAILED
    assert finding.facts.startswith("2 of 3 operators compute wrongly: convolution 64 to 64, 1x1, forward")
    assert "CUDNN=<folder>" in finding.fix
    assert judge(replace(kernels, results=kernels.results[-1:])).result == OK
