"""A stand-in for ImageNet: JPEG noise images with ImageNet's sizes in pixels and bytes; every label is 0.

The cost of decoding depends on pixels and bytes, so both follow ImageNet's distribution:

- The training set has 1,281,167 JPEG files in a tar file of 138 GB (ILSVRC2012_img_train.tar): 108 to 116 kB per file,
  depending on the definition of GB. MEAN_BYTES lies between.
- Most images come from Flickr, whose medium size has 500 pixels on the longer side; 500 x 375 is the most frequent.
  Some are smaller, and a few are much larger.

The noise has the 1/f amplitude spectrum of natural scenes. The JPEG quality is chosen per image to reach its target
size. All labels are equal because those of the published runs were: their logs reach a loss of 1.05 and an accuracy of
1 after 80 to 120 iterations with a learning rate below 2e-4; with label smoothing of 0.1 the minimum loss is 1.015.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from repro.trainers.data.ofrecord import encode, part_name, write_part

if TYPE_CHECKING:
    from repro.trainers.data.standin.sets import StandIn

DIGITS = 5
PER_PART = {"published": 32, "small": 4}
SHRINK = {"published": 1, "small": 5}
"""By how much the sides are divided; bytes follow the area."""
LONG_SIDE = 500
ASPECTS = ((4 / 3, 0.6), (3 / 2, 0.3), (1.0, 0.1))
UPRIGHT = 0.25
SMALLER, LARGER = 0.12, 0.04
MEAN_BYTES = 110_000
SPREAD = 0.45
"""Standard deviation of the logarithm of the bytes a pixel."""
CANVAS = 2048
QUALITIES = (20, 98)
LABEL = 0


def write(folder: Path, standin: StandIn) -> dict:
    """Write the parts on all CPU cores; returns the facts."""
    jobs = [(folder / part_name(part, DIGITS), standin.scale, standin.seed, part) for part in range(standin.parts)]
    canvas(standin.seed, CANVAS // SHRINK[standin.scale])  # computed once and inherited by the forked processes
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("fork")) as pool:
        written = [image for part in pool.map(write_images, jobs) for image in part]
    sizes = np.array(written)
    return {
        "records": len(sizes),
        "mean_bytes": float(sizes[:, 2].mean()),
        "mean_width": float(sizes[:, 0].mean()),
        "mean_height": float(sizes[:, 1].mean()),
        "labels": 1,
    }


def write_images(job: tuple[Path, str, int, int]) -> list[tuple[int, int, int]]:
    """Write one part; returns the width, height and file size in bytes of each image."""
    path, scale, seed, part = job
    generator = np.random.default_rng([seed, part])
    scene = canvas(seed, CANVAS // SHRINK[scale])
    images = list(drawn(generator, scene, PER_PART[scale], SHRINK[scale]))
    write_part(path, (encode({"encoded": content, "class/label": [LABEL]}) for _, _, content in images))
    return [(width, height, len(content)) for width, height, content in images]


def drawn(
    generator: np.random.Generator, scene: np.ndarray, count: int, shrink: int
) -> Iterator[tuple[int, int, bytes]]:
    """Width, height and JPEG bytes of images cropped from a scene."""
    area = mean_area() / shrink**2
    for _ in range(count):
        width, height = (max(16, side // shrink) for side in sides(generator))
        wanted = MEAN_BYTES / shrink**2 * width * height / area * float(generator.lognormal(-(SPREAD**2) / 2, SPREAD))
        top, left = generator.integers(0, (scene.shape[0] - height + 1, scene.shape[1] - width + 1))
        yield width, height, sized_jpeg(scene[top : top + height, left : left + width], wanted)


def sides(generator: np.random.Generator) -> tuple[int, int]:
    """Random width and height of an image, in pixels."""
    kind = generator.random()
    longer = LONG_SIDE
    if kind < SMALLER:
        longer = int(generator.integers(150, LONG_SIDE))
    elif kind > 1 - LARGER:
        longer = int(generator.integers(LONG_SIDE, 1601))
    ratios, shares = zip(*ASPECTS)
    shorter = round(longer / float(generator.choice(ratios, p=shares)))
    return (shorter, longer) if generator.random() < UPRIGHT else (longer, shorter)


def mean_area() -> float:
    """Mean number of pixels per image drawn by `sides`."""
    shape = sum(share / ratio for ratio, share in ASPECTS)
    squares = [(SMALLER, 150, LONG_SIDE), (LARGER, LONG_SIDE, 1601), (1 - SMALLER - LARGER, LONG_SIDE, LONG_SIDE)]
    return shape * sum(share * (low * low + low * high + high * high) / 3 for share, low, high in squares)


@lru_cache(1)
def canvas(seed: int, size: int) -> np.ndarray:
    """Noise (size, size, 3) in bytes with the amplitude spectrum of natural scenes."""
    generator = np.random.default_rng(seed)
    rows, columns = np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None, :]
    amplitude = 1.0 / np.sqrt(rows**2 + columns**2 + 1.0 / size**2)
    grey = noise(generator, amplitude, (size, size))
    planes = [128 + 45 * grey + 12 * noise(generator, amplitude, (size, size)) for _ in range(3)]
    grain = generator.normal(0.0, 6.0, (size, size, 1))
    return np.clip(np.stack(planes, axis=-1) + grain, 0, 255).astype(np.uint8)


def noise(generator: np.random.Generator, amplitude: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Noise with this amplitude spectrum and a standard deviation of 1."""
    phase = np.exp(2j * np.pi * generator.random(amplitude.shape))
    plane = np.fft.irfft2(amplitude * phase, s=shape)
    return plane / plane.std()


def sized_jpeg(pixels: np.ndarray, wanted: float) -> bytes:
    """JPEG bytes at the highest quality that does not exceed `wanted` bytes, or else at the lowest quality."""
    from PIL import Image

    image = Image.fromarray(pixels)
    low, high = QUALITIES
    content = jpeg(image, low)
    while low < high:
        middle = (low + high + 1) // 2
        tried = jpeg(image, middle)
        if len(tried) <= wanted:
            low, content = middle, tried
        else:
            high = middle - 1
    return content


def jpeg(image, quality: int) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()
