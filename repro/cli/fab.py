"""The tasks as Fabric and Invoke have them: what `fab --list` shows and `fab bench --help` tells.

Nothing else imports these two: make's targets run the same tasks, and a short run would take a tenth longer.
"""

from __future__ import annotations

import os
from typing import Any

import invoke

from repro.cli.settings import Exit, Option, OptionTask
from repro.cli.tasks import every
from repro.targets import OF_OTHER_PYTHONS


class FabTask(invoke.Task):
    """A task whose options Invoke takes from its command line as texts; the task parses them."""

    def __init__(self, task: OptionTask) -> None:
        super().__init__(task.body, positional=[], auto_shortflags=False)
        self._task = task

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[invoke.Argument]:
        return [_argument(option) for option in self._task.options.values()]

    def __call__(self, context: invoke.Context, **given: Any) -> Any:
        try:
            return self._task(**given)
        except Exit as end:
            raise invoke.Exit(end.message, end.status) from end


class _Raw(invoke.Argument):
    """Keeps the text as given: the task parses it, with a message that names the option."""

    def set_value(self, value: Any, cast: bool = True) -> None:
        super().set_value(value, cast=False)


def _argument(option: Option) -> invoke.Argument:
    shown = "" if option.default in (None, False, (), "") else f" (default: {option.show(option.default)})"
    kind = {bool: bool, int: int}.get(option.kind, str)
    name = option.flag.removeprefix("--")
    attribute = option.name if name != option.name else None
    return _Raw(name=name, attr_name=attribute, kind=kind, default=option.default, help=option.help + shown)


for _name in OF_OTHER_PYTHONS:
    os.environ.pop(_name, None)
namespace = invoke.Collection(*map(FabTask, every().values()))
