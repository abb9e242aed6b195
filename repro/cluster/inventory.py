"""Reads an inventory with Ansible's own reader, and checks variables that all hosts must share."""

import difflib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from repro.simulation.places import simulated_inventories, simulated_inventory
from repro.utils.errors import ReproError
from repro.utils.paths import ROOT, in_home
from repro.utils.printable import one_line

SHIPPED = {"single-node", "v100x32"}
"""The inventories that come with the project, as examples."""
INVENTORIES = ROOT / "ansible" / "inventories"
INTO_YAML = "write it again as YAML: ansible-inventory --inventory {name} --list --yaml > hosts.yml"
OTHER_FORMS = {"hosts.yaml": "rename it", "hosts": INTO_YAML, "hosts.ini": INTO_YAML, "inventory.ini": INTO_YAML}
"""Names that Ansible's users give the file of hosts, and how each becomes hosts.yml."""
BY_CONFIGURATION = (
    "runs do not see it; put what it does into ~/.ssh/config of the user here, or jump hosts into a group `jump`"
)
IGNORED = {
    **dict.fromkeys(("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args"), BY_CONFIGURATION),
    **dict.fromkeys(("ansible_ssh_executable", "ansible_paramiko_proxy_command"), BY_CONFIGURATION),
    "ansible_connection": "nodes are reached over SSH alone; leave it out",
    "ansible_become_user": "provisioning becomes root, and runs do without; leave it out",
    "ansible_become_method": "provisioning uses sudo without a password; leave it out",
    "ansible_ssh_host": "it is called ansible_host",
    "ansible_ssh_port": "it is called ansible_port",
    "ansible_ssh_user": "it is called ansible_user",
    "ansible_private_key_file": "it is called ansible_ssh_private_key_file",
}
"""Settings of connections that Ansible would heed and a run would not, and the form that works for both."""
SAME = {"ansible_connection": ("ssh", "smart"), "ansible_become_user": ("root",), "ansible_become_method": ("sudo",)}
"""Values with which they change nothing."""
REQUIRED = object()
MOST_BYTES, MOST_VALUES, MOST_HOSTS = 2**20, 100_000, 4096


class ClusterError(ReproError):
    """An inventory that cannot be used; the message names the file, the variable and what to do."""


class VariableError(ClusterError):
    """A variable of an inventory that has a value which it cannot have."""

    def __init__(self, file: Path, name: str, value: Any, should: str) -> None:
        super().__init__(f"{file}: {name} is {value!r}; {should}")
        self.name, self.value, self.should = name, value, should


def is_inventory(name_or_path: str) -> bool:
    """Whether this is the name of an inventory or of simulated nodes, or with a "/" in it an inventory's folder."""
    return os.path.isfile(folder_of(name_or_path) / "hosts.yml")


def inventory_folder(name_or_path: str | Path) -> Path:
    """The folder of an inventory, by its name as `folder_of` has it or its path; ClusterError if there is none."""
    folder = folder_of(str(name_or_path))
    if not os.path.isfile(folder / "hosts.yml"):
        for name, way in OTHER_FORMS.items():
            if os.path.isfile(folder / name):
                raise ClusterError(f"{folder / name}: an inventory's hosts are in hosts.yml; {way.format(name=name)}")
        near = difflib.get_close_matches(str(name_or_path), inventory_names(), 1)
        raise ClusterError(
            f"CLUSTER={one_line(str(name_or_path))}: no inventory {one_line(str(folder / 'hosts.yml'))}{f'; the nearest is {near[0]}' if near else ''} "
            f"(there are: {', '.join(inventory_names()) or 'none'}); write one with: make new-cluster, or bring up "
            "simulated nodes with: make sim"
        )
    return folder


def inventory_names() -> list[str]:
    """The inventories of this checkout, with those of simulated nodes."""
    return sorted({path.parent.name for path in INVENTORIES.glob("*/hosts.yml")} | set(simulated_inventories()))


def own_inventories() -> list[str]:
    """The inventories that were written in this checkout."""
    return sorted({path.parent.name for path in INVENTORIES.glob("*/hosts.yml")} - SHIPPED)


def folder_of(name: str) -> Path:
    """The folder of an inventory by its path, or by its name under ansible/inventories or among simulated nodes.

    It may not exist.
    """
    if "/" in name:
        return in_home(name).resolve()
    return simulated_inventory(name) if name in simulated_inventories() else INVENTORIES / name


def setting_of(name: str, folder: Path) -> str:
    """The value of CLUSTER that selects an inventory: its name, or its folder where that has another."""
    return name if folder_of(name) == folder else str(folder)


def check_size(folder: Path) -> None:
    """ClusterError for a file of an inventory that is larger than any, as written, with aliases or with ranges expanded.

    Ten lines can hold a billion values, and one name 10^9 hosts, with which whoever reads them works for ever.
    """
    import yaml

    variables = [path for name in ("group_vars", "host_vars") for path in sorted((folder / name).rglob("*"))]
    for file in [folder / "hosts.yml", *(path for path in variables if not path.is_dir())]:
        if not file.is_file():
            raise ClusterError(f"{file}: it is no file")
        if file.stat().st_size > MOST_BYTES:
            raise ClusterError(f"{file}: it has more than {MOST_BYTES // 2**20} MiB; an inventory has a few KiB")
        try:
            with open(file, "rb") as opened:
                values = _values(yaml.compose(opened, yaml.SafeLoader), {})
        except (yaml.YAMLError, RecursionError):
            values = 0  # Ansible says what is wrong, with the line
        if values > MOST_VALUES:
            raise ClusterError(f"{file}: with its aliases expanded it has more than {MOST_VALUES} values")
    if _hosts_of_ranges((folder / "hosts.yml").read_text(encoding="utf-8", errors="replace")) > MOST_HOSTS:
        raise ClusterError(f"{folder / 'hosts.yml'}: with its ranges expanded it has more than {MOST_HOSTS} hosts")


def _hosts_of_ranges(text: str) -> int:
    """The most hosts that a name with ranges gives, such as node[1:4]: numbers, or letters, which are 26 at most."""
    most = 1
    for name in re.findall(r"\S*\[\w+:\w+(?::\d+)?\]\S*", text):
        ranges = re.findall(r"\[(\w+):(\w+)(?::\d+)?\]", name)
        sizes = [int(last) - int(first) + 1 if (first + last).isdecimal() else 52 for first, last in ranges]
        most = max(most, math.prod(max(1, size) for size in sizes))
    return most


def _values(node: Any, seen: dict[int, int]) -> int:
    """How many values a node of YAML has with its aliases expanded; one that contains itself has more than any."""
    if node is None or isinstance(node.value, str):
        return 1
    if id(node) not in seen:
        seen[id(node)] = MOST_VALUES + 1
        inner = [child for pair in node.value for child in (pair if isinstance(pair, tuple) else (pair,))]
        seen[id(node)] = 1 + sum(_values(child, seen) for child in inner)
    return seen[id(node)]


def ask_ansible(hosts: Path) -> dict:
    """The output of `ansible-inventory --list` for a hosts file: groups, and `_meta.hostvars` with all variables."""
    tool = Path(sys.executable).parent / "ansible-inventory"
    if not tool.exists():
        raise ClusterError(f"{tool} is missing: `make setup` installs it")
    check_size(hosts.parent)
    environment = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1",
        "ANSIBLE_INVENTORY_ENABLED": "yaml",
        "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error",  # or the last of two nodes of one name would be the only one
        "ANSIBLE_NOCOLOR": "1",
    }
    done = subprocess.run(
        [tool, "-i", hosts, "--list"], capture_output=True, text=True, errors="replace", env=environment
    )
    if done.returncode and re.search(r"(?m)^\[[\w:-]+\]", hosts.read_text(encoding="utf-8", errors="replace")):
        raise ClusterError(f"{hosts}: this is an inventory in INI form; {INTO_YAML.format(name='OLD')}")
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        raise ClusterError(f"{hosts}: Ansible cannot read this inventory:\n" + "\n".join(errors[:8]))
    return json.loads(done.stdout)


def refuse_ignored(file: Path, name: str, variables: dict) -> None:
    """ClusterError if a host has a setting of its connection that a run would ignore."""
    for variable, why in IGNORED.items():
        if variable in variables and variables[variable] not in SAME.get(variable, ()):
            raise ClusterError(f"{file}: {variable} of {name} is {variables[variable]!r}: {why}")


class Variables:
    """The variables of all hosts, which must agree; errors name the file and the variable."""

    def __init__(self, file: Path, hosts: dict[str, dict], known_names: set[str]) -> None:
        """`known` are the variables named `cluster_…`; another one is an error, as it would have no effect."""
        self._file, self._hosts = file, hosts
        for name in {
            name for variables in hosts.values() for name in variables if name.startswith("cluster_")
        } - known_names:
            near = difflib.get_close_matches(name, known_names, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ClusterError(f"{file}: {name}: no such variable{meant}")

    def text(self, name: str, pattern: str, default: Any = REQUIRED) -> str:
        """A string that matches `pattern` as a whole; ClusterError otherwise."""
        value = self.value(name, default)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise self.wrong(name, value, f'it is text of the form {pattern}, in quotes where it is empty: ""')
        return value

    def number(self, name: str, least: float, most: float, default: Any = REQUIRED, whole: bool = True) -> Any:
        """A number from `least` to `most`, an integer if `whole`; ClusterError otherwise."""
        value = self.value(name, default)
        if value is None and default is None:
            return None
        kind = int if whole else int | float
        if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
            raise self.wrong(name, value, f"it is a {'whole ' if whole else ''}number from {least} to {most}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or False; ClusterError otherwise."""
        value = self.value(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "it is true or false")
        return value

    def one_of(self, name: str, choices: tuple[str, ...], default: Any = REQUIRED) -> str:
        """One of `choices`; ClusterError otherwise."""
        value = self.value(name, default)
        if value not in choices:
            raise self.wrong(name, value, f"it is {' or '.join(choices)}")
        return value

    def names(self, name: str) -> frozenset[str]:
        """A list of fields of a fingerprint; ClusterError otherwise."""
        value = self.value(name, [])
        if not isinstance(value, list) or not all(isinstance(field, str) for field in value):
            raise self.wrong(name, value, "it is a list of the fields that `make fingerprint` prints: [gpu.vbios]")
        return frozenset(value)

    def value(self, name: str, default: Any = REQUIRED) -> Any:
        """The value that all hosts share."""
        values = {host: variables.get(name, default) for host, variables in self._hosts.items()}
        first, value = next(iter(values.items()))
        for host, other in values.items():
            if other != value:
                apart = f"{_shown(value)} for {first} and {_shown(other)} for {host}"
                raise ClusterError(f"{self._file}: {name} is {apart}; write it once, in this file: nodes are equal")
        if value is REQUIRED:
            raise ClusterError(f"{self._file}: {name} is missing; the other inventories have examples")
        if "{{" in str(value):
            raise self.wrong(name, value, "write the value itself: templates are not filled in here")
        return value

    def wrong(self, name: str, value: Any, should: str) -> VariableError:
        """The error for a variable with this value, which says what it should be."""
        return VariableError(self._file, name, value, should)


def _shown(value: Any) -> str:
    return "missing" if value is REQUIRED else repr(value)
