"""The trainer with ResNet50 cut down to 3 of its 16 blocks, one of each kind, as compiling takes most of the time.

Kinds are by the shortcut: a projection of the same size, one that halves the image, and none. For tests of what does not
depend on the depth; census_probe.py and test_run.py have all blocks.
"""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from repro.trainers.models import resnet_blocks  # noqa: E402


def bottlenecks(width: int) -> list:
    """Name, input channels, width and stride of each block, up to the width of the last stage."""
    last = width << 3
    return [
        ("stage0.block0", width, width, 1),
        ("stage3.block0", width * resnet_blocks.EXPANSION, last, 2),
        ("stage3.block1", last * resnet_blocks.EXPANSION, last, 1),
    ]


resnet_blocks.bottlenecks = bottlenecks
runpy.run_path(str(ROOT / "repro" / "trainers" / "run.py"), run_name="__main__")
