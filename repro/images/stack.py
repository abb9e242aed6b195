"""The libraries that trainers need on this machine's GPUs, and the environment variables that select them."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from repro.utils.dry_run import only_said
from repro.utils.errors import ReproError
from repro.utils.paths import CACHE, ROOT, sha256_of

KIT = ROOT / ".kit"
"""What the offline kit brings beside the checkout: its interpreters, and a newer cuBLAS and cuDNN."""
COMPAT = ROOT / "docker" / "compat"
ImageStack = Literal["cu102", "cu102-modern"]
IMAGE_STACKS = get_args(ImageStack)
"""The stacks of the trainers that have an image; `repro.images.recipes` also has that of the baselines."""
AnyStack = Literal[ImageStack, "cpu"]
STACKS = get_args(AnyStack)
IMAGE_NAME = "oneflow-reproduction"
TURING = 7.5
DRIVER_OF_AMPERE = 450
UP_TO_TURING = re.compile(r"\b(K80|M40|M60|P4|P40|P100|V100S?|T4|TITAN (V|RTX)|RTX 20\d\d|Quadro RTX|GTX)\b")
"""Names of GPUs that the wheel holds code for; newer ones need newer libraries and compile its PTX."""
FORWARDERS = ("cublas_forward", "cudnn_forward")
TRACER = "kernel_trace"
"""The source of docker/compat that writes down when kernels ran."""
TF32 = {"CUBLAS_FORWARD_TF32": "1", "CUDNN_FORWARD_TF32": "1"}
"""What these forwarders read: fp32 products and convolutions may then be computed in TF32."""
CACHE_BYTES = 4_000_000_000
OLDEST = {"libcublas.so": 11, "libcudnn.so": 8, "libcupti.so": 11}
CUDNN_OF_ATTENTION = 9
PINNED = {"cuBLAS": "libcublas.so.12", "cuDNN": "libcudnn.so.9"}


class StackError(ReproError):
    """Libraries that this machine's GPUs need are not available; the message says which and what to do."""


@dataclass(frozen=True)
class Libraries:
    """Newer libraries that the user named, each a file or a folder containing it.

    The PyTorch of the interpreter `baseline_python` may provide some of them too.
    """

    cublas: str | None = None
    cudnn: str | None = None
    cupti: str | None = None
    baseline_python: str | None = None

    def of_baseline(self, pattern: str, name: str) -> Path | None:
        """The newest library of this name that came with the baselines' PyTorch."""
        site = Path(self.baseline_python or "/").parent.parent
        return _newest(site.glob(f"lib/python3*/site-packages/nvidia/{pattern}"), name)


@dataclass(frozen=True)
class Stack:
    """`environment` is added to the controller's own for trainer processes; `notes` say how it was chosen."""

    name: str
    environment: dict
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict:
        return {"name": self.name, "environment": self.environment, "notes": list(self.notes)}


def tag_of(stack: str) -> str:
    """The name of a stack's image in an engine."""
    return f"{IMAGE_NAME}:{stack}"


def sif_path(stack: str) -> Path:
    """Where `make image FORMAT=sif` writes the image of a stack for Apptainer."""
    return CACHE / "sif" / f"{IMAGE_NAME}-{stack}.sif"


def stack_of(
    gpus: list[dict],
    name: str | None = None,
    libraries: Libraries = Libraries(),
    given: Mapping[str, str] = os.environ,
    in_image: bool = False,
) -> Stack:
    """The stack for these GPUs, as `repro.launch.host_environment.gpus` lists them; what it needs is built or unpacked into .cache.

    Parameters
    ----------
    gpus : none, or those of one machine; the first one decides.
    name : one of STACKS, in place of the one that the GPU's generation calls for.
    libraries : a newer cuBLAS and cuDNN in place of those that are found.
    given : the user's own environment: a variable that is set there stays as it is.
    in_image : whether trainers run in an image, which has all but the newer cuBLAS and cuDNN.

    Raises
    ------
    StackError
        The name is unknown, or the C compiler or a newer library is missing.
    """
    if name not in (None, *STACKS):
        raise StackError(f"STACK={name}: it is {', '.join(STACKS)}, or left out to go by the GPU")
    chosen = name or _by_generation(gpus)
    if chosen == "cpu" or not gpus:
        return Stack(chosen, {})
    notes = [f"{gpus[0]['name']}, driver {gpus[0]['driver_version']}" + (": chosen by STACK" if name else "")]
    overlay = _overlay(gpus, given, notes)
    own = _modern(libraries, given, notes) if chosen == "cu102-modern" else {} if in_image else _published(notes)
    variables = _cache(gpus[0]) | own | ({} if in_image else _forwarders(chosen, own, notes))
    for variable in sorted(variables.keys() & given.keys()):
        if given[variable] and given[variable] != variables[variable]:
            notes.append(f"{variable} was set before and stays")
            variables[variable] = given[variable]
    return Stack(chosen, variables | overlay, tuple(notes))


def _overlay(gpus: list[dict], given: Mapping[str, str], notes: list[str]) -> dict:
    """OneFlow with GPU code compiled ahead, if there is any for these GPUs; OverlayError if it is not right."""
    from repro.images.kernel_overlay import overlay_for

    capabilities = {gpu.get("compute_cap") for gpu in gpus}
    if len(capabilities) > 1 or not after_turing(gpus[0]):
        return {}
    if kit := kit_description().get("overlay"):
        notes.append(kit["text"])
        return {}
    capability = capabilities.pop()
    overlay = overlay_for(round(float(capability) * 10)) if capability else None
    if overlay is None:
        return {}
    notes.append(overlay.text())
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(overlay.folder), given.get("PYTHONPATH"))))}


def kit_description() -> dict:
    """What the offline kit says of itself if this checkout was set up from one: its libraries lack some GPU code."""
    try:
        return json.loads((KIT / "kit.json").read_text())
    except (OSError, ValueError):
        return {}


def _by_generation(gpus: list[dict]) -> str:
    if not gpus:
        return "cpu"
    return "cu102-modern" if after_turing(gpus[0]) else "cu102"


def after_turing(gpu: dict) -> bool:
    """Whether a GPU is newer than the wheel's cuBLAS and cuDNN know, which compute wrongly there without an error.

    By its compute capability. Drivers that do not report that either support nothing newer than Turing, before 450, or
    the name decides.
    """
    try:
        return float(gpu.get("compute_cap") or "") > TURING
    except ValueError:
        series = gpu["driver_version"].partition(".")[0]
        old = series.isdigit() and int(series) < DRIVER_OF_AMPERE
        return not old and not UP_TO_TURING.search(gpu["name"])


def tf32_refusal(gpus: list[dict], name: str | None) -> str | None:
    """Why these GPUs cannot compute in TF32 with the stack `name`, by default that of their generation; None if they can."""
    chosen = name or _by_generation(gpus)
    if chosen == "cu102-modern" and gpus and all(map(after_turing, gpus)):
        return None
    gpu_names = ", ".join(dict.fromkeys(gpu["name"] for gpu in gpus)) or "no GPU"
    return (
        f"PRECISION=tf32 needs GPUs newer than Turing and stack cu102-modern, whose cuBLAS and cuDNN know TF32; here are "
        f"{gpu_names} and stack {chosen}. PRECISION=fp32 runs the same in fp32 without TF32"
    )


def needs_newer_libraries(architectures: Iterable[int]) -> bool:
    """Whether calls are forwarded to a newer cuBLAS and cuDNN on GPUs of these architectures, such as 90."""
    return any(architecture / 10 > TURING for architecture in architectures)


def _cache(gpu: dict) -> dict:
    """A cache of compiled code for this driver and GPU only, large enough for all of OneFlow's."""
    label = re.sub(r"[^a-z0-9.]+", "-", f"{gpu['driver_version']}-{gpu['name']}".lower())
    return {"CUDA_CACHE_PATH": str(CACHE / f"cuda-{label}"), "CUDA_CACHE_MAXSIZE": str(CACHE_BYTES)}


def _modern(libraries: Libraries, given: Mapping[str, str], notes: list[str]) -> dict:
    """cuBLAS and cuDNN calls go to newer libraries; NCCL uses no multicast over NVLink, as in 2020."""
    cublas = Path(given["CUBLAS_FORWARD_LIBRARY"]) if given.get("CUBLAS_FORWARD_LIBRARY") else find_cublas(libraries)
    cudnn = Path(given["CUDNN_FORWARD_LIBRARY"]) if given.get("CUDNN_FORWARD_LIBRARY") else find_cudnn(libraries)
    notes += [f"cuBLAS {cublas}", f"cuDNN {cudnn}"]
    return {
        "CUBLAS_FORWARD_LIBRARY": str(cublas),
        "CUDNN_FORWARD_LIBRARY": str(cudnn),
        "NCCL_NVLS_ENABLE": "0",
    }


def _forwarders(stack: str, own: Mapping[str, str], notes: list[str]) -> dict:
    """What hands OneFlow's calls to the libraries in `own`, and the operators of our own, compiled here."""
    from repro.images.attention_operator import MISSING, attention_environment

    if stack != "cu102-modern":
        return {}
    preload = {"LD_PRELOAD": preloaded(map(build_forward, FORWARDERS))}
    if _version(Path(own["CUDNN_FORWARD_LIBRARY"]))[0] < CUDNN_OF_ATTENTION:
        notes.append(MISSING.format(f"it needs cuDNN {CUDNN_OF_ATTENTION} or later"))
        return preload
    return preload | attention_environment(notes)


def _published(notes: list[str]) -> dict:
    """NCCL 2.7.8 instead of the wheel's 2.12, if the pinned wheel with it was downloaded."""
    from repro.images.pins import load_pins
    from repro.images.wheels import FOLDERS, WHEELS, unpack

    pins = load_pins()
    if not (WHEELS / FOLDERS["NCCL 2.7.8"] / pins.artefact("NCCL 2.7.8").file).exists():
        notes.append("NCCL is the wheel's 2.12.10; `make image` fetches the published generation's 2.7.8")
        return {}
    library = unpack(pins, "NCCL 2.7.8") / "libnccl.so.2"
    notes.append(f"NCCL {library}")
    return {"LD_PRELOAD": preloaded([library])}


def preloaded(libraries: Iterable[Path]) -> str:
    """LD_PRELOAD for these libraries; blanks and colons part its entries, so a path with one is reached by a link."""
    return ":".join(str(_linked(library) if re.search(r"[\s:]", str(library)) else library) for library in libraries)


def _linked(library: Path) -> Path:
    """A link without blanks in its path, the same at each start: comparisons of operators are kept by such paths."""
    folder = Path("/tmp") / f"oneflow-reproduction-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise StackError(
            f"{library} cannot be loaded, since its path has a blank or a colon, and {folder}, where a link to it would "
            "be, belongs to somebody else: move the checkout, or have that removed"
        )
    link = folder / f"{sha256_of(bytes(library.parent))[:12]}-{library.name}"
    with contextlib.suppress(FileExistsError):
        link.symlink_to(library)
    return link


def build_forward(name: str, folder: Path = CACHE / "compat") -> Path:
    """A compiled source of docker/compat, such as "cublas_forward"; compiled once per state of that folder.

    In a dry run it need not be there.
    """
    source = COMPAT / f"{name}.c"
    library = folder / library_name(name)
    if library.exists():
        return library
    compiler = shutil.which("gcc")
    if compiler is None:
        raise StackError(
            f"{source.relative_to(ROOT)} must be compiled for this GPU, and there is no gcc: install it, "
            "or name a compiled one in LD_PRELOAD"
        )
    if only_said(f"compile {source} into {library}"):
        return library
    folder.mkdir(parents=True, exist_ok=True)
    partial = library.with_suffix(f".{os.getpid()}")
    done = subprocess.run(compile_command(str(source), str(partial), compiler), capture_output=True, text=True)
    if done.returncode:
        raise StackError(f"{source.relative_to(ROOT)} cannot be compiled:\n{done.stderr.strip()}")
    partial.replace(library)
    return library


def library_name(name: str) -> str:
    """What a source of docker/compat is compiled to, by the state of that folder."""
    texts = b"\0".join(path.read_bytes() for path in compat_sources())
    return f"lib{name}-{hashlib.sha256(texts).hexdigest()[:12]}.so"


def compat_sources() -> list[Path]:
    """The files of docker/compat that are compiled."""
    return sorted(COMPAT.glob("*.[ch]"))


def compile_command(source: str, target: str, compiler: str = "gcc") -> list[str]:
    """What compiles a source of docker/compat into a library."""
    return [compiler, "-std=c11", "-O2", "-fPIC", "-shared", "-o", target, source, "-ldl", "-lpthread"]


def find_cublas(libraries: Libraries = Libraries(), toolkits: Path = Path("/usr/local")) -> Path:
    """A cuBLAS of version 11 or later: the one asked for, the kit's, the pinned, the newest CUDA toolkit's, or the loader's."""
    if libraries.cublas:
        return _users("CUBLAS", "libcublas.so", libraries.cublas)
    toolkit = _newest(toolkits.glob("cuda*/targets/*/lib/libcublas.so.*"))
    return _of_kit("cuBLAS") or _pinned("cuBLAS") or toolkit or _loaders("libcublas.so") or _fetched("cuBLAS")


def find_cudnn(libraries: Libraries = Libraries()) -> Path:
    """A cuDNN of version 8 or later: the one asked for, the kit's, the pinned, the loader's, or that of the baselines' PyTorch."""
    name = "libcudnn.so"
    if libraries.cudnn:
        return _users("CUDNN", name, libraries.cudnn)
    of_baseline = libraries.of_baseline(f"cudnn/lib/{name}.*", name)
    return _of_kit("cuDNN") or _pinned("cuDNN") or _loaders(name) or of_baseline or _fetched("cuDNN")


def find_cupti(libraries: Libraries = Libraries(), toolkits: Path = Path("/usr/local")) -> Path:
    """A CUPTI of version 11 or later: the one asked for, the newest CUDA toolkit's, the baselines' or the loader's.

    StackError if there is none.
    """
    name = "libcupti.so"
    if libraries.cupti:
        return _users("CUPTI", name, libraries.cupti)
    places = ("targets/*/lib", "extras/CUPTI/lib64")
    by_version = f"{name}.1*"  # others of its names hold a year
    toolkit = _newest((path for place in places for path in toolkits.glob(f"cuda*/{place}/{by_version}")), name)
    library = toolkit or libraries.of_baseline(f"*/lib/{by_version}", name) or _loaders(name)
    if library is None:
        raise StackError(
            "a GPU's kernels are traced with CUPTI, a part of the CUDA toolkit, and none was found here; "
            f"CUPTI=<folder> names one that holds {name}.11 or later"
        )
    return library.absolute()


def _users(setting: str, name: str, given: str) -> Path:
    path = Path(given)
    library = path if path.is_file() else _newest(path.glob(f"{name}.*"), name)
    if library is None:
        oldest = OLDEST[name]
        raise StackError(f"{setting}={path}: it is a {name} of version {oldest} or later, or a folder that holds one")
    return library.absolute()


def _newest(paths: Iterable[Path], name: str = "libcublas.so") -> Path | None:
    versions = {path: _version(path) for path in paths}
    new = (path for path in versions if versions[path][0] >= OLDEST[name])
    return max(new, key=lambda path: versions[path], default=None)


def _version(path: Path) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in path.name.partition(".so.")[2].split(".") if part.isdigit())
    return numbers or (0,)


def _of_kit(name: str) -> Path | None:
    """The copy of a library that the offline kit brought."""
    return _newest((KIT / "lib").glob(f"lib{name.lower()}.so.*"), f"lib{name.lower()}.so")


def _pinned(name: str) -> Path | None:
    """The pinned copy of a library, if it was downloaded before."""
    from repro.images.pins import load_pins
    from repro.images.wheels import FOLDERS, WHEELS

    pin, folder = load_pins().artefact(name), FOLDERS[name]
    here = [WHEELS / folder / pin.file, CACHE / folder / pin.version / PINNED[name]]
    return _fetched(name) if any(path.exists() for path in here) else None


def _fetched(name: str) -> Path:
    from repro.images.pins import PinError, load_pins
    from repro.images.wheels import unpack

    try:
        return unpack(load_pins(), name) / PINNED[name]
    except PinError as error:
        raise StackError(
            f"these GPUs need a {name} newer than OneFlow's. None was found here, and the pinned one "
            f"cannot be fetched ({error}). {name.upper()}=<folder> names another."
        ) from error


def _loaders(name: str) -> Path | None:
    """The newest version that the dynamic loader knows by name."""
    ldconfig = shutil.which("ldconfig", path="/usr/sbin:/sbin")
    listing = subprocess.run([ldconfig, "-p"], capture_output=True, text=True).stdout if ldconfig else ""
    return _newest((Path(line.rpartition(" => ")[2]) for line in listing.splitlines() if f"{name}." in line), name)
