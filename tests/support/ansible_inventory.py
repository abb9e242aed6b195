"""Reads inventories as `ansible-inventory` does, in forks of one process that has imported Ansible: that takes it a second."""

import json
import os
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path


class Imported:
    """A process that answers in the place of `ansible-inventory`; it starts with the first inventory."""

    def __init__(self, folder: Path) -> None:
        self._outputs = [folder / "stdout", folder / "stderr"]
        self._process: subprocess.Popen | None = None

    def run(self, command, *, env, errors, **options) -> subprocess.CompletedProcess:
        """In the place of `subprocess.run` with the output captured as text."""
        assert Path(command[0]).name == "ansible-inventory" and options == {"capture_output": True, "text": True}
        if self._process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._process = subprocess.Popen([sys.executable, __file__], env=env, text=True, **pipes)
        texts = [*map(str, command)], dict(env), [*map(str, self._outputs)]
        print(json.dumps(texts), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(command, status, *(path.read_text(errors=errors) for path in self._outputs))

    def end(self) -> None:
        if self._process:
            self._process.communicate()


def serve() -> None:
    """Read a command, its environment and the files for its output from each line, and print its exit status."""
    from ansible.cli.inventory import InventoryCLI
    from ansible.plugins.loader import init_plugin_loader, inventory_loader, vars_loader

    warnings.filterwarnings("ignore", "AnsibleCollectionFinder has already been configured")
    init_plugin_loader()
    inventory_loader.get("yaml")
    vars_loader.get("host_group_vars")
    import_module("ansible_collections.ansible.builtin")  # reads a long list, which takes longer than all else
    for line in sys.stdin:
        command, environment, outputs = json.loads(line)
        if not (child := os.fork()):
            os.environ.clear()
            os.environ.update(environment)
            for number, path in enumerate(outputs, 1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            InventoryCLI.cli_executor(command)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
