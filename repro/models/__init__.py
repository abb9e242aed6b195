"""What all sides must agree on about each model: one specification per model, and where its other modules are.

A specification (`gpt.py`, `bert.py`, `resnet50.py`) holds shape keys, synthetic samples, small shapes for checks,
optimizer, data kinds and log generations. `registry.py` finds specifications and the modules of the same name in
`trainers/models`, `baselines` and `perfmodel`; no other list of models exists. Folders named in REPRO_MODELS add
models from outside (`extensions.py`). Used by the controller, the trainers and the baselines, also on nodes: standard
library only, Python 3.9; imports nothing of the project. Start reading at `spec.py`.
"""

from repro.models.extensions import folders_of

__path__.extend(folders_of("models"))
