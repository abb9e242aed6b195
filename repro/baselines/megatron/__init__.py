"""GPT by Megatron-Core, in data, tensor and pipeline parallel layouts, with the trainers' initial weights.

Megatron-Core supplies the model, the schedules, the exchange of gradients and the optimizer; this package only sets
them. `settings` says which of its options each variant takes, `step` trains an iteration.
"""
