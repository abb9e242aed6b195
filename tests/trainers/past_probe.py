"""Measures operators on the CPU: the kernels of 2020 from the library that is named, and OneFlow's own. Prints the events."""

import ctypes
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import oneflow as flow

from repro.models.past import Subject
from repro.trainers.past import measure
from repro.trainers.past.config import Timing
from repro.trainers.past.cuda import CudaError, passed
from repro.trainers.past.forms import Gpu
from repro.trainers.past.present import present

KERNELS = ctypes.CDLL(sys.argv[1])
SUBJECTS = (
    Subject("softmax-kernel", "softmax 2020-08", 64, 128),
    Subject("softmax-kernel", "cross-entropy 2020-08", 8, 300),
    Subject("dropout-kernel", "dropout fp32", 300, 64),
    Subject("layer-norm-kernel", "layer norm 2020-08", 8, 64),
)


class Memory:
    """A GPU's place is taken by this process's memory; buffers are aligned as there."""

    name, gpu = "CPU", Gpu(2, 2048)
    attributes = vars(gpu)

    def __init__(self, code):
        self.buffers = {}

    def allocate(self, size):
        array = np.zeros(size + 64, np.int8)
        address = array.ctypes.data + -array.ctypes.data % 64
        self.buffers[address] = array
        return address

    def free(self, address):
        del self.buffers[address]

    def read(self, address, array):
        ctypes.memmove(array.ctypes.data, int(address), array.nbytes)
        return array

    def launch(self, kernel, blocks, threads, arguments, shared=0):
        if kernel != "flush_cache":
            values = [passed(each) for each in arguments]
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
            getattr(KERNELS, f"run_{kernel}")(blocks, threads, pointers)

    def wait(self):
        pass


class NoCudnn:
    def run(self, step, form, at):
        raise CudaError("there is no cuDNN here")


measure.Driver, measure.Cudnn, measure.FLUSHED_ELEMENTS = Memory, NoCudnn, 64
ON_CPU = {"layer norm 2020-08": "softmax 2020-08"}
"""What stands in for an operator that OneFlow has not on the CPU."""
measure.present = lambda name, rows, columns, device: present(ON_CPU.get(name, name), rows, columns, "cpu")
measure.wait = flow._oneflow_internal.eager.Sync
measure.versions = lambda device: {}
flow.cuda.empty_cache = lambda: None
ones, flow.ones = flow.ones, lambda size, device: ones(size)
measure.measure(Timing("cuda", {"data": 1, "tensor": 1, "pipeline": 1}, "none", 2, SUBJECTS, "out"))
events = [json.loads(line) for line in Path("out/metrics-rank0.jsonl").read_text().splitlines()]
print(json.dumps(events))
