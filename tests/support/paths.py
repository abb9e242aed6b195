"""Where the checkout, the recorded data of the tests and the stand-ins are."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "data"
HARDWARE = RECORDED / "hardware"
LOGS = RECORDED / "logs"
EARLIER_RUN = RECORDED / "records" / "20261122-080603-resnet50-published.json"
"""The description of a run of an earlier release, kept until 30 November 2026, with one of the operators that it compared."""
STANDIN = ROOT / "tests" / "support" / "standin" / "trainer.py"
TRAINER_PYTHON = Path(os.environ.get("REPRO_TRAINER_PYTHON", ROOT / ".venv-trainer" / "bin" / "python"))
