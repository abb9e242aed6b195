"""Expected time and memory of a training: work and communication of a job, fitted constants, and errors.

The terms of a model are in the module of its name (`gpt.py`, `bert.py`, `resnet50.py`). Imports `cluster` (for
inventories), `published`, `models`. Start reading at `predict.py`.
"""

from repro.models.extensions import folders_of

__path__.extend(folders_of("perfmodel"))
