"""The published programs: one module per model, and the layers, operators and initial values they share.

They are ports to nn.Graph, operator by operator. Code that makes them faster belongs in `trainers/tuning`.

A model's module defines `MODEL`, a class constructed from the configuration and `Parameters`. It may also define
`READERS`, by kind of data, and `operators`, which the kernel check compares with the CPU.
"""

from repro.models.extensions import folders_of

__path__.extend(folders_of("trainers/models"))
