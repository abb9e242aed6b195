"""The tasks of this project for Fabric: `fab --list`, `fab bench --help`, `fab bench --model gpt --repeats 3`.

They are in `repro/cli`; `make TARGET NAME=value` runs the same ones.
"""

from repro.cli.fab import namespace
from repro.utils.closed_output import end_without_reader

__all__ = ["namespace"]

end_without_reader()
