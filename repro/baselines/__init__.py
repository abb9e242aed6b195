"""PyTorch programs that train the published models as the OneFlow trainers do, measured in turn with them; optional.

`python repro/baselines/run.py --config FILE` takes a trainer's configuration, writes its metrics and prints its log
lines. Imports `models` and the parts of `trainers` that do not import OneFlow, and nothing of the controller.
Start reading at `train.py`.
"""
