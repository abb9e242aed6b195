"""PyTorch programs that train the published models as the OneFlow trainers do, interleaved with them; optional.

`python repro/baselines/run.py --config FILE` takes a trainer's configuration, writes its metrics and prints its log
lines. The module of a model (`gpt.py`, `bert.py`, `resnet50.py`) has `MODEL`, a class made from the configuration and
`Parameters`. Imports `models` and the parts of `trainers` that do not import OneFlow, and nothing of the controller.
Start reading at `train.py`.
"""

from repro.models.extensions import folders_of

__path__.extend(folders_of("baselines"))
