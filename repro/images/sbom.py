"""The content of an image for audits: bill of materials, licences, known vulnerabilities."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from repro.images.engine import ImageError
from repro.images.oci_layout import LayoutImage, lone_image, read_layout
from repro.images.pins import Pins
from repro.images.recipes import LAYOUT
from repro.images.stack import tag_of
from repro.utils.paths import CACHE, ROOT
from repro.utils.printable import spreadsheet_cell

ACCEPTED = "docker/vulnerabilities.toml"
FOLDER = CACHE / "sbom"


@dataclass(frozen=True)
class Scan:
    """The answer of the advisory database. `unknown` are the packages that it gave no answer for; `why`, if known."""

    unaccepted: tuple[dict, ...]
    accepted: tuple[dict, ...]
    unknown: tuple[str, ...]
    why: str = ""

    @property
    def problem(self) -> str:
        """What is wrong with it: a vulnerability that is not accepted, or a package without an answer; "" if nothing."""
        if self.unaccepted:
            return f"there are vulnerabilities that {ACCEPTED} does not accept"
        if self.unknown:
            return "without the answer of the advisory database, no vulnerability can be ruled out; try again" + (
                f". pip-audit ended with: {self.why}" if self.why else ""
            )
        return ""


def write_sbom(stack: str, pins: Pins, folder: Path = FOLDER, layout: Path = LAYOUT) -> tuple[Path, Path]:
    """Write the bill of materials (CycloneDX, by Syft) and the licence list (CSV) of a built stack.

    Both depend on nothing but the image: the time is the pinned one, the serial number follows from the image's digest.
    """
    image = next((image for image in read_layout(layout) if image.tag == tag_of(stack)), None)
    if image is None:
        raise ImageError(f"{stack} is not in {layout}; `make image STACK={stack}` builds it")
    document = complete(_syft(image, layout), image, stack, pins)
    folder.mkdir(parents=True, exist_ok=True)
    bill, licences = folder / f"{stack}.cdx.json", folder / f"{stack}.licences.csv"
    bill.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    with open(licences, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kind", "name", "version", "licences"])
        writer.writerows(map(spreadsheet_cell, row) for row in licence_rows(document))
    return bill, licences


def _syft(image: LayoutImage, layout: Path) -> dict:
    """What Syft finds in one image of a layout."""
    tool = shutil.which("syft", path=str(Path(sys.executable).parent)) or shutil.which("syft")
    if tool is None:
        raise ImageError("syft is not installed; `python3 -m repro.bootstrap --for sbom` installs it")
    environment = dict(os.environ, SYFT_CHECK_FOR_APP_UPDATE="false", SYFT_FILE_METADATA_SELECTION="none")
    with lone_image(layout, image) as alone:
        command = [tool, "scan", f"oci-dir:{alone}", "--quiet", "--output", "cyclonedx-json"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise ImageError(f"Syft cannot read the image: {done.stderr.strip()}")
    return json.loads(done.stdout)


def complete(document: dict, image: LayoutImage, stack: str, pins: Pins) -> dict:
    """Add what no package database lists, and drop what differs from one scan of the same image to the next."""
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, image.digest).urn
    document["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(pins.source_date_epoch))
    document["metadata"]["component"] = {
        "type": "container",
        "bom-ref": image.digest,
        "name": image.tag,
        "version": image.digest,
    }
    components = [part for part in document.get("components", []) if part["type"] not in ("file", "operating-system")]
    for part in components:
        if part["name"] in pins.licences and part.get("purl", "").startswith("pkg:pypi/"):
            part["licenses"] = [{"license": {"id": pins.licences[part["name"]]}}]
    for part in pins.bundled:
        if part.stack in ("", stack):
            components.append(
                {
                    "type": "library",
                    "bom-ref": f"bundled:{part.name}@{part.version}",
                    "name": part.name,
                    "version": part.version,
                    "licenses": [{"license": {"name": part.licence}}],
                }
            )
    document["components"] = components
    return document


def licence_rows(document: dict) -> list[list[str]]:
    """Kind, name, version and licences of each component, in the order of their names."""
    rows = []
    for part in document["components"]:
        names = [
            entry.get("expression") or entry["license"].get("id") or entry["license"].get("name", "")
            for entry in part.get("licenses", [])
        ]
        kind = part.get("purl", "pkg:bundled").removeprefix("pkg:").partition("/")[0]
        rows.append([kind, part["name"], part.get("version", ""), "; ".join(sorted(set(names))) or "not stated"])
    return sorted(rows)


def scan(pins: Pins, root: Path = ROOT) -> Scan:
    """Ask the advisory database, through pip-audit, for every package of an image."""
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in pins.packages_for(pins.python)))
        command = [
            *(sys.executable, "-m", "pip_audit", "--requirement", str(requirements), "--no-deps", "--disable-pip"),
            *("--format", "json", "--aliases", "on", "--progress-spinner", "off"),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    names = [pin.name for pin in pins.packages_for(pins.python)]
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return Scan((), (), tuple(names), _last_line(done.stderr) or f"status {done.returncode}")
    return judge(packages, tomllib.loads((root / ACCEPTED).read_text())["accepted"], names)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def judge(packages: list[dict], accepted: list[dict], asked: Iterable[str]) -> Scan:
    """Sort the output of pip-audit: vulnerabilities found, those accepted, and packages `asked` for without an answer."""
    unaccepted: list[dict] = []
    excused: list[dict] = []
    answered = {package["name"] for package in packages if "skip_reason" not in package}
    for package in packages:
        for entry in package.get("vulns", []):
            ids = {entry["id"], *entry.get("aliases", [])}
            reason = next(
                (item["reason"] for item in accepted if item["package"] == package["name"] and ids & set(item["ids"])),
                None,
            )
            row = {
                "package": package["name"],
                "version": package["version"],
                "ids": sorted(ids),
                "fixed": entry.get("fix_versions", []),
                "reason": reason,
            }
            (excused if reason else unaccepted).append(row)
    return Scan(tuple(unaccepted), tuple(excused), tuple(name for name in asked if name not in answered))


def scan_lines(result: Scan, folder: Path = FOLDER) -> list[str]:
    """A scan as lines to print; it is also written to vulnerabilities.json."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"found": result.unaccepted, "accepted": result.accepted, "unknown": result.unknown}
    (folder / "vulnerabilities.json").write_text(json.dumps(content, indent=1) + "\n")
    lines = [f"NOT ACCEPTED: {row['package']} {row['version']}: {', '.join(row['ids'])}" for row in result.unaccepted]
    lines += [
        f"accepted: {row['package']} {row['version']}: {', '.join(row['ids'])}: {row['reason']}"
        for row in result.accepted
    ]
    if result.unknown:
        lines.append(f"no answer of the advisory database for {', '.join(result.unknown)}: nothing is known of them")
    return lines or ["no known vulnerabilities"]
