"""A GPU through CUDA's driver, in the context that OneFlow computes in, and batch normalisation by OneFlow's cuDNN 7."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from repro.models.past import FORWARD
from repro.trainers.libraries import libraries
from repro.trainers.past.forms import BYTES, EPSILON, BatchNorm, Double, Form, Gpu, Launch, Long

CHANNELS_FIRST, PERSISTENT = 0, 2
"""cuDNN's names for the layout of a tensor, and for the batch normalisation that OneFlow asked for."""
TYPES = {"f32": 0, "f16": 2}
ATTRIBUTES = {
    "multiprocessors": 16,
    "threads": 39,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "bus_bits": 37,
    "l2_bytes": 38,
}
ARRAYS = {"f16": np.float16, "f32": np.float32, "i32": np.int32, "i64": np.int64, "i8": np.int8}


class CudaError(RuntimeError):
    """A function of CUDA's driver or of cuDNN failed."""


class Driver:
    """The first visible GPU, and the functions of a compiled `docker/past/kernels.cu`."""

    def __init__(self, code: str) -> None:
        self.library, self.functions = ctypes.CDLL("libcuda.so.1"), {}
        device, context, self.module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        self.attributes = {name: self.attribute(number, device) for name, number in ATTRIBUTES.items()}
        name = ctypes.create_string_buffer(128)
        self("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode()
        self("cuModuleLoadData", ctypes.byref(self.module), Path(code).read_bytes())

    def __call__(self, name: str, *arguments: object) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise CudaError(f"{name} failed with CUDA error {status}")

    @property
    def gpu(self) -> Gpu:
        return Gpu(self.attributes["multiprocessors"], self.attributes["threads"])

    def attribute(self, number: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        self("cuMemFree_v2", ctypes.c_uint64(address))

    def read(self, address: int, array: np.ndarray) -> np.ndarray:
        self(
            "cuMemcpyDtoH_v2",
            array.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_uint64(address),
            ctypes.c_size_t(array.nbytes),
        )
        return array

    def launch(self, kernel: str, blocks: int, threads: int, arguments: tuple, shared: int = 0) -> None:
        """Start a kernel on the default stream; numbers and addresses as `passed` takes them."""
        function = self.functions.get(kernel)
        if function is None:
            function = self.functions[kernel] = ctypes.c_void_p()
            self("cuModuleGetFunction", ctypes.byref(function), self.module, kernel.encode())
        values = [passed(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared, None, pointers, None)

    def wait(self) -> None:
        self("cuCtxSynchronize")


class Address(int):
    """An address on the GPU."""


def passed(value: float) -> ctypes._SimpleCData:
    """A number as a kernel takes it: in 32 bits unless its type says otherwise."""
    if isinstance(value, Address):
        return ctypes.c_uint64(value)
    if isinstance(value, Long):
        return ctypes.c_longlong(value)
    if isinstance(value, int):
        return ctypes.c_int(value)
    return ctypes.c_double(value) if isinstance(value, Double) else ctypes.c_float(value)


class Cudnn:
    """Batch normalisation by the cuDNN that belongs to OneFlow's wheel, whatever its convolutions are forwarded to."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(next(path for path in libraries() if ".so.7" in path and "libcudnn" in path))
        self.handle = ctypes.c_void_p()
        self("cudnnCreate", ctypes.byref(self.handle))

    def __call__(self, name: str, *arguments: object) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise CudaError(f"{name} failed with status {status} of cuDNN")

    def tensor(self, kind: str, rows: int, columns: int) -> ctypes.c_void_p:
        """Describe one sample whose channels are the rows of a matrix."""
        tensor = ctypes.c_void_p()
        self("cudnnCreateTensorDescriptor", ctypes.byref(tensor))
        self("cudnnSetTensor4dDescriptor", tensor, CHANNELS_FIRST, TYPES[kind], 1, rows, 1, columns)
        return tensor

    def run(self, step: BatchNorm, form: Form, at: dict[str, Address]) -> None:
        """A pass of batch normalisation with scale 1 and bias 0; the backward one finds the statistics of the forward one."""
        data, of_rows = self.tensor(form.precision, form.rows, form.columns), self.tensor("f32", form.rows, 1)
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        by = [ctypes.byref(one), ctypes.byref(zero)]
        pointer = {name: ctypes.c_void_p(address) for name, address in at.items()}
        epsilon = ctypes.c_double(EPSILON)
        statistics = (pointer["means"], pointer["inverses"])
        if step.direction == FORWARD:
            x, y = pointer[step.reads[0]], pointer[step.writes[0]]
            scale, none = (of_rows, pointer["ones"], pointer["zeros"]), (ctypes.c_double(1.0), None, None)
            arguments = (*by, data, x, data, y, *scale, *none, epsilon, *statistics)
            self("cudnnBatchNormalizationForwardTraining", self.handle, PERSISTENT, *arguments)
        else:
            x, dy, dx = (pointer[name] for name in (*step.reads, *step.writes))
            scale = (of_rows, pointer["ones"], pointer["row_scale"], pointer["row_bias"])
            arguments = (*by, *by, data, x, data, dy, data, dx, *scale, epsilon, *statistics)
            self("cudnnBatchNormalizationBackward", self.handle, PERSISTENT, *arguments)
        for tensor in (data, of_rows):
            self("cudnnDestroyTensorDescriptor", tensor)


class Operator:
    """A form with its buffers on the GPU, filled with numbers; `close` frees them."""

    def __init__(self, driver: Driver, cudnn: Cudnn | None, form: Form) -> None:
        self.driver, self.cudnn, self.form = driver, cudnn, form
        self.at = {name: Address(driver.allocate(form.size(name))) for name in form.buffers}
        for salt, name in enumerate(form.given):
            self.fill(name, salt)
        driver.wait()

    def fill(self, name: str, salt: int) -> None:
        elements, kind = self.form.buffers[name]
        arguments: tuple = (Long(elements), 7919 * salt + 1, self.at[name])
        if kind == "random":
            self.driver.launch("seed", elements // 128, 128, (self.at[name],))
        elif kind.startswith("i"):
            self.driver.launch(f"make_labels_{kind}", 256, 256, (Long(elements), self.form.columns, self.at[name]))
        else:
            self.driver.launch(f"make_noise_{kind}", 1024, 256, arguments)

    def run(self, step: Launch | BatchNorm) -> None:
        if isinstance(step, BatchNorm):
            self.cudnn.run(step, self.form, self.at)
            return
        arguments = tuple(self.at[argument] if isinstance(argument, str) else argument for argument in step.arguments)
        self.driver.launch(step.kernel, step.blocks, step.threads, arguments, step.shared)

    def values(self, name: str, rows: slice) -> np.ndarray:
        """Rows of a buffer: of a vector per row one value for each, of a vector per column all of it."""
        elements, kind = self.form.buffers[name]
        width = {self.form.rows * self.form.columns: self.form.columns, self.form.rows: 1}.get(elements, elements)
        first, last = (0, 1) if width == elements else (rows.start, rows.stop)
        array = np.empty((last - first, width), ARRAYS[kind])
        return self.driver.read(self.at[name] + first * width * BYTES[kind], array)

    def close(self) -> None:
        for address in self.at.values():
            self.driver.free(address)
