"""Writes small samples of real data in the formats that the trainers read.

    samples.py tokens PREFIX        PREFIX.idx and PREFIX.bin: Megatron tokens, one per byte of a text
    samples.py masked FOLDER        FOLDER/part-00000 ...: OFRecord features of masked text for BERT, and vocab.txt
    samples.py images FOLDER        FOLDER/part-00000 ...: OFRecord JPEG images with labels

The text is real: the descriptions and licences of the packages installed with the trainers, or the files given by
--text. Images are photographs if --photographs names a folder with one sub-folder of JPEG files per class. Otherwise
they are generated: coloured noise with the spectrum of natural scenes, whose hue and direction follow the label.
Generated images only test reading and decoding.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
from PIL import Image

sys.path[0] = str(Path(__file__).resolve().parents[2])

from repro.trainers.data.masking import CLASSIFY, SEPARATE, SPECIAL, UNKNOWN, feature_record  # noqa: E402
from repro.trainers.data.megatron import write_tokens  # noqa: E402
from repro.trainers.data.ofrecord import encode, part_name, write_part  # noqa: E402
from repro.trainers.data.standin.images import jpeg, noise  # noqa: E402

END_OF_TEXT = 256
"""Token after each document; those before it are bytes."""
DIGITS = 5
"""Of the numbers in the names of parts."""
JPEG_QUALITY = 90


def main() -> None:
    options = read_options()
    if options.kind == "tokens":
        print(f"{write_text(options.out, texts(options.text))} tokens")
        return
    Path(options.out).mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(options.seed)
    if options.kind == "masked":
        records = masked_records(texts(options.text), options, generator)
    else:
        records = image_records(options, generator)
    print(f"{write_parts(options.out, records, options.parts)} records")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write a small sample of real data.")
    parser.add_argument("kind", choices=("tokens", "masked", "images"))
    parser.add_argument("out", help="folder of the parts, or prefix of the token files")
    parser.add_argument("--text", nargs="+", default=[], metavar="FILE", help="texts to take instead")
    parser.add_argument("--photographs", metavar="FOLDER", help="JPEG files, one sub-folder per class")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--samples", type=int, default=64, help="records to write, of masked text or of drawn images")
    parser.add_argument("--seq-length", type=int, default=128)
    parser.add_argument("--max-predictions", type=int, default=20)
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--image-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def texts(files: list) -> list:
    """Contents of the files, or the installed packages' descriptions and licences, in a fixed order."""
    if files:
        return [Path(name).read_text(encoding="utf-8", errors="replace") for name in files]
    packages = sorted(distributions(), key=lambda package: package.metadata["Name"].lower())
    files = [file for package in packages for file in package.files or ()]
    licences = [Path(file.locate()) for file in files if "license" in file.name.lower() and file.suffix != ".py"]
    contents = [package.read_text("METADATA") for package in packages]
    contents += [path.read_text(encoding="utf-8", errors="replace") for path in licences if path.is_file()]
    return [text for text in contents if text]


def write_text(prefix: str, documents: list) -> int:
    """Write texts as a Megatron token file, one token per byte; returns the number of tokens."""
    encoded = [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) for text in documents]
    return write_tokens(prefix, [np.append(document, np.uint16(END_OF_TEXT)) for document in encoded])


def write_parts(folder: str, records: list, parts: int) -> int:
    """Distribute encoded records over part files; returns their number."""
    return sum(write_part(Path(folder) / part_name(part, DIGITS), records[part::parts]) for part in range(parts))


def masked_records(documents: list, options: argparse.Namespace, generator: np.random.Generator) -> list:
    """Encoded pairs of consecutive or unrelated passages with masked words, in the format of Google's BERT."""
    words = re.findall(r"[a-z0-9]+|[^\sa-z0-9]", "\n".join(documents).lower())
    vocabulary = [word for word, _ in Counter(words).most_common(options.vocab_size - len(SPECIAL))]
    (Path(options.out) / "vocab.txt").write_text("\n".join([*SPECIAL, *vocabulary]) + "\n", encoding="utf-8")
    numbers = {word: len(SPECIAL) + place for place, word in enumerate(vocabulary)}
    ids = np.array([numbers.get(word, UNKNOWN) for word in words])
    size = len(SPECIAL) + len(vocabulary)
    return [masked_record(ids, size, options, generator) for _ in range(options.samples)]


def masked_record(ids: np.ndarray, size: int, options: argparse.Namespace, generator: np.random.Generator) -> bytes:
    length, half = options.seq_length, (options.seq_length - 3) // 2
    first, second = generator.integers(2, half + 1, 2)
    start, elsewhere = generator.integers(0, len(ids) - 2 * half, 2)
    unrelated = int(generator.integers(0, 2))
    follow = elsewhere if unrelated else start + first
    passages = [CLASSIFY, *ids[start : start + first], SEPARATE, *ids[follow : follow + second], SEPARATE]
    tokens = np.array(passages)
    return feature_record(tokens, first + 2, unrelated, length, options.max_predictions, size, generator)


def image_records(options: argparse.Namespace, generator: np.random.Generator) -> list:
    if options.photographs:
        classes = sorted(path for path in Path(options.photographs).iterdir() if path.is_dir())
        files = [(path, label) for label, folder in enumerate(classes) for path in sorted(folder.glob("*.jp*g"))]
        images = [(path.read_bytes(), label) for path, label in files]
    else:
        labels = [number % options.classes for number in range(options.samples)]
        images = [(drawn(label / options.classes, options.image_size, generator), label) for label in labels]
    images = [images[place] for place in generator.permutation(len(images))]
    return [encode({"encoded": content, "class/label": [label]}) for content, label in images]


def drawn(kind: float, size: int, generator: np.random.Generator) -> bytes:
    """JPEG bytes of noise with the 1/f spectrum of natural scenes; `kind` determines its hue and direction."""
    height, width = (int(size * factor) for factor in generator.uniform(0.75, 1.25, 2))
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    angle = np.pi * kind
    along = np.cos(angle) * columns + np.sin(angle) * rows
    amplitude = 1.0 / np.sqrt(columns**2 + rows**2 + 8.0 * along**2 + 1.0 / size**2)
    tints = (128 + 64 * np.cos(2 * np.pi * (kind + channel / 3)) for channel in range(3))
    planes = [tint + 40 * noise(generator, amplitude, (height, width)) for tint in tints]
    pixels = np.clip(np.stack(planes, axis=-1), 0, 255).astype(np.uint8)
    return jpeg(Image.fromarray(pixels), JPEG_QUALITY)


if __name__ == "__main__":
    sys.exit(main())
