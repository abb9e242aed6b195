"""Makes the real data that models learn: a text of bytes, and pictures of handwritten digits."""

import base64
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from repro.models.registry import specs
from repro.published.trainer_config import TrainingData
from repro.runs.record import write_json
from repro.utils.errors import PlanError
from repro.utils.paths import CACHE, TRAINER_PYTHON, TRAINERS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

FOLDER = CACHE / "datasets"
WRITER = TRAINERS / "samples.py"
FACTS = "facts.json"
PACKAGE = "ansible-core"
"""Its wheel is the same on every platform, and uv.lock pins it: 6.8 MB of Python source with English documentation."""
ORDERS = 4
DIGITS_PIN = "handwritten digits"
DIGITS_TABLE = "sklearn/datasets/data/digits.csv.gz"
DIGIT_SIDE, DIGIT_INK = 8, 16
PICTURE_SIDE = 40
JPEG_QUALITY = 95
PARTS = 4


class DatasetError(PlanError):
    """A data set cannot be created, or has changed since; the message says what to do."""


@dataclass(frozen=True)
class Dataset:
    """A folder of data in a format that the trainers read, and the facts about it that `facts.json` keeps there."""

    folder: Path
    facts: dict

    @property
    def data(self) -> TrainingData:
        """What a trainer reads of it."""
        if self.facts["kind"] == "text":
            return TrainingData("tokens", prefix=str(self.folder / "text"))
        return TrainingData("ofrecord", str(self.folder), parts=PARTS)

    @property
    def digest(self) -> str:
        """SHA-256 over the names and contents of its files."""
        return hashlib.sha256(json.dumps(self.facts["sha256"], sort_keys=True).encode()).hexdigest()


def text_dataset(folder: Path = FOLDER / "text", limit: int | None = None) -> Dataset:
    """Python source as Megatron tokens, one per byte and 256 after each file; an intact copy that is there is kept.

    limit : how many files to take, the first by name; without it all of the package.

    Raises
    ------
    DatasetError
        The package is missing or altered, the writer fails, or a file here is not what it was when it was made.
    """
    return _made(folder, lambda target: _write_text(target, limit))


def digit_dataset(folder: Path = FOLDER / "digits") -> Dataset:
    """The 1,797 handwritten digits of UCI's test set as OFRecord JPEG pictures; errors as for `text_dataset`.

    They are 8 x 8 grey pictures in scikit-learn's wheel, which docker/pins.toml pins, enlarged to 40 x 40.
    """
    return _made(folder, _write_digits)


def datasets_for(model: str | None) -> dict[str, Dataset]:
    """The data set of each model that learns one, or of this model alone; PlanError if it has none."""
    return {name: MAKERS[dataset]() for name, dataset in learned_by(model).items()}


def learned_by(model: str | None) -> dict[str, str]:
    """The same as the data sets' names, before anything is made."""
    learned = {spec.name: spec.convergence.dataset for spec in specs() if spec.convergence}
    if model not in (None, *learned):
        raise PlanError(f"MODEL={model}: it is {' or '.join(learned)}, or all")
    return {name: dataset for name, dataset in learned.items() if model in (None, name)}


MAKERS: dict[str, Callable[[], Dataset]] = {"text": text_dataset, "digits": digit_dataset}
"""What makes each data set that a specification can name."""


def text_entropies(tokens: "ArrayLike") -> list[float]:
    """Conditional entropy, in bits per token, of a token given the k before it, for k from 0.

    It is computed from the text's own counts, so no model that sees only k tokens of this text can have a lower mean
    loss on it.
    """
    import numpy as np

    wide, entropies, before = np.asarray(tokens, np.int64), [], 0.0
    for order in range(ORDERS):
        count = len(wide) - order
        key = np.zeros(count, np.int64)
        for place in range(order + 1):
            key = key * 257 + wide[place : place + count]
        whole = entropy(np.unique(key, return_counts=True)[1])
        entropies.append(whole - before)
        before = whole
    return entropies


def entropy(counts: "ArrayLike") -> float:
    """Entropy, in bits, of values that occur as often as `counts` says."""
    import numpy as np

    shares = np.asarray(counts, float) / np.sum(counts)
    return float(-(shares * np.log2(shares)).sum())


def _made(folder: Path, write: Callable[[Path], dict]) -> Dataset:
    """The data set in a folder, made there if there is none; `write` fills a folder and returns its facts."""
    if not (folder / FACTS).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        facts = write(partial)
        sums = {path.name: _sha256(path) for path in sorted(partial.iterdir())}
        write_json(partial / FACTS, {**facts, "sha256": sums})
        partial.rename(folder)
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    for name, expected in facts["sha256"].items():
        if not (folder / name).is_file() or _sha256(folder / name) != expected:
            raise DatasetError(
                f"{folder / name} is not what it was when it was made; remove {folder} to have it made again"
            )
    return Dataset(folder, facts)


def _write_text(folder: Path, limit: int | None) -> dict:
    import numpy as np

    files = package_sources(PACKAGE)[:limit]
    _run_writer("tokens", folder / "text", "--text", *files)
    tokens = np.fromfile(folder / "text.bin", np.uint16)
    source = f"{PACKAGE} {distribution(PACKAGE).version}"
    return {
        "kind": "text",
        "source": source,
        "files": len(files),
        "tokens": len(tokens),
        "entropies_bits": text_entropies(tokens),
    }


def package_sources(package: str) -> list[str]:
    """Python files of an installed package in order, each verified against the hash in its wheel."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError as error:
        raise DatasetError(f"{package} is not installed: make setup") from error
    hashes = {Path(file.locate()): file.hash.value for file in files if file.suffix == ".py" and file.hash}
    for path, expected in hashes.items():
        digest = hashlib.sha256(path.read_bytes()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != expected:
            raise DatasetError(f"{path} is not as {package} ships it: make clean setup")
    return [str(path.resolve()) for path in sorted(hashes, key=str)]


def _write_digits(folder: Path) -> dict:
    import numpy as np

    from repro.images.pins import PinError, load_pins
    from repro.images.wheels import artefact_wheel

    pins = load_pins()
    pin = pins.artefact(DIGITS_PIN)
    try:
        wheel = artefact_wheel(pins, DIGITS_PIN)
    except PinError as error:
        raise DatasetError(str(error)) from error
    with zipfile.ZipFile(wheel) as content:
        packed = content.read(DIGITS_TABLE)
    if hashlib.sha256(packed).hexdigest() != pin.members[DIGITS_TABLE]:
        raise DatasetError(f"{DIGITS_TABLE} in {wheel} is not the pinned one")
    rows = np.loadtxt(io.BytesIO(gzip.decompress(packed)), delimiter=",").astype(int)
    with tempfile.TemporaryDirectory() as scratch:
        write_pictures(rows, Path(scratch))
        _run_writer("images", folder, "--photographs", scratch, "--parts", str(PARTS))
    return {
        "kind": "digits",
        "source": pin.file,
        "pictures": len(rows),
        "label_entropy_bits": entropy(np.bincount(rows[:, -1])),
    }


def write_pictures(rows: Iterable, folder: Path) -> None:
    """Write rows of 64 shades from 0 to 16 and a label as JPEG pictures, a folder per label."""
    import numpy as np
    from PIL import Image

    for number, row in enumerate(rows):
        shades = (np.asarray(row[:-1]).reshape(DIGIT_SIDE, DIGIT_SIDE) * 255 / DIGIT_INK).round().astype(np.uint8)
        picture = Image.fromarray(shades).resize((PICTURE_SIDE, PICTURE_SIDE), Image.Resampling.BICUBIC)
        target = folder / str(row[-1]) / f"{number:04d}.jpg"
        target.parent.mkdir(exist_ok=True)
        picture.convert("RGB").save(target, quality=JPEG_QUALITY)


def _run_writer(*arguments: str | Path) -> None:
    """Let samples.py write; it needs the trainers' environment."""
    command = [str(TRAINER_PYTHON), str(WRITER), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
    if done.returncode:
        message = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DatasetError(f"{WRITER.name} failed with status {done.returncode}: {message}")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
