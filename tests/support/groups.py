"""The locked packages of dependency groups, and what a controller with certain groups alone would not have."""

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import metadata

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT


@cache
def lock() -> dict[str, list]:
    """What uv.lock says of each package, by name; it is a megabyte of TOML, which takes half a second."""
    packages = {}
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]:
        packages.setdefault(package["name"], []).append(package)
    return packages


def locked(groups: Iterable[str]) -> list[tuple[str, int]]:
    """Name and size of every file that uv would download for these groups, on Linux x86-64 for Python 3.11."""
    packages = lock()
    (project,) = packages["repro"]
    needs = list(project["dependencies"])
    for group in groups:
        needs += project["dev-dependencies"][group]
    environment = {"python_full_version": "3.11.7", "python_version": "3.11", "extra": ""}
    found = {}
    while needs:
        need = needs.pop()
        if "marker" in need and not Marker(need["marker"]).evaluate(environment):
            continue
        for package in packages[need["name"]]:
            fits = "resolution-markers" not in package or any(
                Marker(marker).evaluate(environment) for marker in package["resolution-markers"]
            )
            if (fits and "version" not in need) or package.get("version") == need.get("version"):
                extras = package.get("optional-dependencies", {})
                more = [each for extra in need.get("extra", ()) for each in extras.get(extra, ())]
                new = package["name"] not in found
                found[package["name"]] = download_size(package)
                needs += (package.get("dependencies", []) if new else []) + (more if new else [])
    return sorted(found.items())


def download_size(package) -> int:
    """Of the wheel for this platform in bytes, or of the source where there is none."""
    fitting = [
        wheel["size"]
        for wheel in package.get("wheels", ())
        if re.search(
            r"-(cp311-cp311|cp3\d+-abi3|py2\.py3-none|py3-none)-(any|(manylinux\S*)_x86_64\S*)\.whl$", wheel["url"]
        )
    ]
    return max(fitting) if fitting else package["sdist"]["size"]


@cache
def left_out(groups: frozenset[str]) -> tuple[str, ...]:
    """The installed packages that a controller with these groups alone has not, their modules, and their programs as `bin/NAME`."""
    names = {canonicalize_name(name) for name, _ in locked(groups)} | {"pip", "setuptools"}
    modules = {
        module
        for module, packages in metadata.packages_distributions().items()
        if not names & {canonicalize_name(package) for package in packages}
    }
    others = [each for each in metadata.distributions() if canonicalize_name(each.name) not in names]
    programs = {f"bin/{file.name}" for each in others for file in each.files or () if file.parts[-2:-1] == ("bin",)}
    return tuple(sorted({*modules, *programs, *(canonicalize_name(each.name) for each in others)}))
