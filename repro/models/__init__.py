"""The specification of each model, shared by all parts of the project, and the lookup of its other modules.

A specification (`gpt.py`, `bert.py`, `resnet50.py`) holds shape keys, synthetic samples, small shapes for checks,
optimizer, data kinds and log generations. `registry.py` finds specifications and the modules of the same name in
`trainers/models`, `baselines` and `perfmodel`; no other list of models exists. Folders named in REPRO_MODELS add
external models (`extensions.py`). The controller, the trainers and the baselines use this package, also on nodes, so it
needs only Python 3.9 and the standard library, and imports no other package of the project. Start reading at `spec.py`.
"""

from repro.models.extensions import folders_of

__path__.extend(folders_of("models"))
