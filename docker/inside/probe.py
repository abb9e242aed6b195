"""What a running trainer environment consists of, read from the libraries that OneFlow's own calls reach.

Prints one JSON object: `libraries` maps a name to its version and to the file it was read from, `called` maps a file
to the functions OneFlow calls in it, `unknown` names what only a machine with a GPU can tell. It runs in the image,
and in a local environment, with the standard library and OneFlow alone.
"""

import ctypes
import json
import os
import platform
import stat
import struct
import sys
import time

RTLD_DI_LINKMAP = 2
DT_NULL, DT_PLTRELSZ, DT_STRTAB, DT_SYMTAB, DT_JMPREL = 0, 2, 5, 6, 23
RELOCATION, SYMBOL_SIZE = struct.Struct("<QQq"), 24
PREFIXES = ("nccl", "cublas", "cudnn")


class LinkMap(ctypes.Structure):
    """The head of glibc's link_map: where a library was loaded, its file, and its dynamic section."""

    _fields_ = [("base", ctypes.c_size_t), ("file", ctypes.c_char_p), ("dynamic", ctypes.POINTER(ctypes.c_uint64))]


class Place(ctypes.Structure):
    """glibc's Dl_info: the file that holds an address."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


system = ctypes.CDLL(None)


def file_of(address):
    """The library that holds an address."""
    place = Place()
    if not system.dladdr(ctypes.c_void_p(address), ctypes.byref(place)):
        return None
    return os.path.realpath(place.file.decode())


def slots(library):
    """Function name -> address, for each function that a loaded library calls through its table of calls.

    Python opens extension modules with RTLD_NOW, so the loader has filled the table; what stands in it is what a
    call reaches, whatever was preloaded.
    """
    link = ctypes.POINTER(LinkMap)()
    if system.dlinfo(ctypes.c_void_p(library._handle), RTLD_DI_LINKMAP, ctypes.byref(link)):
        raise OSError(f"dlinfo tells nothing about {library._name}")
    section = {}
    for i in range(0, 1000, 2):
        tag, value = link.contents.dynamic[i], link.contents.dynamic[i + 1]
        if tag == DT_NULL:
            break
        section[tag] = value
    found = {}
    for offset, info, _ in RELOCATION.iter_unpack(ctypes.string_at(section[DT_JMPREL], section[DT_PLTRELSZ])):
        name_at = ctypes.c_uint32.from_address(section[DT_SYMTAB] + (info >> 32) * SYMBOL_SIZE).value
        name = ctypes.string_at(section[DT_STRTAB] + name_at)
        if name.startswith(tuple(prefix.encode() for prefix in PREFIXES)):
            found[name.decode()] = ctypes.c_size_t.from_address(link.contents.base + offset).value
    return found


def loaded(pattern):
    """The file of this process whose name starts with a pattern."""
    with open("/proc/self/maps") as maps:
        files = {line.split(None, 5)[5].strip() for line in maps if line.count("/")}
    return next(file for file in sorted(files) if os.path.basename(file).startswith(pattern))


def nccl_version(function):
    """The text of ncclGetVersion's number, whose digits changed their places in 2.9."""
    number = ctypes.c_int()
    function(ctypes.byref(number))
    large = 10000 if number.value >= 10000 else 1000
    return f"{number.value // large}.{number.value % large // 100}.{number.value % 100}"


def cublas_version(library):
    """major.minor.patch of a cuBLAS, which it tells without a GPU."""
    parts = []
    for which in range(3):
        value = ctypes.c_int()
        library.cublasGetProperty(which, ctypes.byref(value))
        parts.append(str(value.value))
    return ".".join(parts)


def cuda_version(number):
    """10020 -> 10.2."""
    return f"{number // 1000}.{number % 1000 // 10}"


def cudnn_version(number):
    """7605 -> 7.6.5; the scale changed with cuDNN 9: 90600 -> 9.6.0."""
    large = 10000 if number >= 90000 else 1000
    return f"{number // large}.{number % large // 100}.{number % 100}"


def cudnn_called(table):
    """The cuDNN that a convolution reaches, as `cublas_called`."""
    file = file_of(table["cudnnConvolutionForward"])
    library = ctypes.CDLL(file)
    library.cudnnGetVersion.restype = ctypes.c_size_t
    if os.path.basename(file).startswith("libcudnn_forward"):
        library.cudnn_forward_library.restype = ctypes.c_char_p
        target = library.cudnn_forward_library()
        if target is None:
            return entry(None, f"{file}, which finds no newer cuDNN")
        file = target.decode()
    return entry(cudnn_version(library.cudnnGetVersion()), file)


def cublas_called(table, wheel):
    """The cuBLAS that a product reaches, through the forwarding library if that is in between."""
    file = file_of(table["cublasGemmEx"])
    if not os.path.basename(file).startswith("libcublas_forward"):
        return entry(cublas_version(wheel), file)
    forward = ctypes.CDLL(file)
    forward.cublas_forward_library.restype = ctypes.c_char_p
    target = forward.cublas_forward_library()
    if target is None:
        return entry(None, f"{file}, which finds no newer cuBLAS")
    return entry(cublas_version(ctypes.CDLL(target.decode())), target.decode())


def entry(version, source):
    """One library as it is reported."""
    return {"version": version, "source": source}


def libraries():
    """Name -> version and source of everything that a GPU is not needed for, and what OneFlow calls where."""
    import numpy
    import oneflow
    from oneflow import sysconfig

    wheel_file = loaded("liboneflow-")
    wheel = ctypes.CDLL(wheel_file)
    table = slots(wheel)
    called = {}
    for name, address in sorted(table.items()):
        called.setdefault(file_of(address), []).append(name)
    cudnn_file = loaded("libcudnn-")
    cudnn = ctypes.CDLL(cudnn_file)
    cudnn.cudnnGetVersion.restype = cudnn.cudnnGetCudartVersion.restype = ctypes.c_size_t
    nccl = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))(table["ncclGetVersion"])
    found = {
        "OneFlow": entry(oneflow.__version__, oneflow.__file__),
        "OneFlow's commit": entry(oneflow.__git_commit__, oneflow.__file__),
        "CUDA that OneFlow was built with": entry(cuda_version(sysconfig.get_cuda_version()), oneflow.__file__),
        "cuDNN in the wheel": entry(cudnn_version(cudnn.cudnnGetVersion()), cudnn_file),
        "cuDNN called": cudnn_called(table),
        "CUDA runtime of cuDNN in the wheel": entry(cuda_version(cudnn.cudnnGetCudartVersion()), cudnn_file),
        "CUDA runtime of cuBLAS in the wheel": entry(cuda_version(wheel.cublasGetCudartVersion()), wheel_file),
        "NCCL in the wheel": entry(nccl_version(wheel.ncclGetVersion), wheel_file),
        "NCCL called": entry(nccl_version(nccl), file_of(table["ncclAllReduce"])),
        "cuBLAS called": cublas_called(table, wheel),
        "NumPy": entry(numpy.__version__, numpy.__file__),
        "Python": entry(platform.python_version(), os.path.realpath(sys.executable)),
        "C library": entry(platform.libc_ver()[1], "glibc"),
    }
    return found, called


def driver():
    """What the NVIDIA driver tells, and the names of what only it could."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}, ["NVIDIA driver", "GPUs"]
    number, count = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(number))
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return {"NVIDIA driver": entry(cuda_version(number.value), "libcuda.so.1")}, ["GPUs"]
    return {
        "NVIDIA driver": entry(cuda_version(number.value), "libcuda.so.1"),
        "GPUs": entry(str(count.value), "libcuda.so.1"),
    }, []


def privileged_files():
    """The setuid and setgid files of the root file system."""
    found = []
    device = os.stat("/").st_dev
    for folder, folders, files in os.walk("/"):
        folders[:] = [name for name in folders if os.lstat(os.path.join(folder, name)).st_dev == device]
        for name in files:
            status = os.lstat(os.path.join(folder, name))
            if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                found.append(os.path.join(folder, name))
    return found


def can_load(name):
    """Whether the loader finds a library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def main(of_environment=libraries):
    """Print the report on an environment; `--image` adds what only holds inside a container."""
    started = time.monotonic()
    found, called = of_environment()
    of_driver, unknown = driver()
    report = {
        "libraries": {**found, **of_driver},
        "called": called,
        "unknown": unknown,
        "import_s": time.monotonic() - started,
        "libibverbs": can_load("libibverbs.so.1"),
    }
    if "--image" in sys.argv[1:]:
        report["user"] = os.getuid()
        report["root_writable"] = os.access("/", os.W_OK)
        report["privileged_files"] = privileged_files()
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
