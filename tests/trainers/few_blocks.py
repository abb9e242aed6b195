"""The trainer with ResNet50 cut down to 5 of its 16 blocks, 4 with a projection shortcut; compiling takes a third as long.

For tests of what does not depend on the depth; census_probe.py and test_run.py have all blocks.
"""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from repro.trainers.models import resnet_blocks  # noqa: E402

resnet_blocks.BLOCKS = (1, 2, 1, 1)
runpy.run_path(str(ROOT / "repro" / "trainers" / "run.py"), run_name="__main__")
