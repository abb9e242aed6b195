"""The published programs: one module per model, and the layers, operators and initial values they share.

They are ports to nn.Graph, operator by operator; whatever would make them faster belongs to `trainers/tuning`.

The module of a model has `MODEL` (a class made from the configuration and `Parameters`), `READERS` by kind of data, and
`operators`, what the kernel check compares with the CPU; the last two only where the model has them.
"""

from repro.models.extensions import folders_of

__path__.extend(folders_of("trainers/models"))
