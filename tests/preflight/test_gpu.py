"""Checks of GPUs over recorded output of nvidia-smi, dmesg and docker, for what is right, wrong and not there."""

import pytest

from repro.perfmodel.hardware import describe
from repro.preflight.framework import FAILED, OK, UNAVAILABLE, WARNING, CheckAborted, run_checks
from repro.preflight.gpu import CHECKS, links, matrix
from tests.support.paths import HARDWARE
from tests.support.recorded import machine

NAMED = {check.name: check for check in CHECKS}
QUERY, REMAPPED = "nvidia-smi --query-gpu=index,", "nvidia-smi --query-remapped-rows="
V100 = "Tesla V100-SXM2-16GB"
# nvidia-smi 440 and 580: what it prints when the module is not loaded, and for a field that a driver does not know.
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n"
)
NO_FIELD = 'Field "{}" is not a valid field to query.\n'
# `nvidia-smi topo -p2p r`, github.com/aikitoria/open-gpu-kernel-modules/issues/13 and noonghunna/club-3090/issues/1124.
ALL_PEERS = """ \tGPU0\tGPU1\tGPU2\t
 GPU0\tX\tOK\tOK\t
 GPU1\tOK\tX\tOK\t
 GPU2\tOK\tOK\tX\t

Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
"""
NO_PEERS = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n\nLegend:\n\n  X    = Self\n"
# Kernel log lines: github.com/NVIDIA/open-gpu-kernel-modules/issues/1010 (79) and 1150 (45), NVIDIA's Xid pages (13).
DENIED = "dmesg: read kernel buffer failed: Operation not permitted"
XID_79 = "[ 12.3] NVRM: Xid (PCI:0000:01:00): 79, pid=6755, name=vivaldi-bin, GPU has fallen off the bus.\n"
XID_45 = "[ 15.0] NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149\n"
XID_13 = "[ 16.0] NVRM: Xid (PCI:0000:dc:00): 13, pid=99, name=python3, Graphics Exception: ESR 0x50de48=0x1\n"


def names(count, name=V100):
    return "".join(f"{index}, {name}\n" for index in range(count))


def look(check, answers, **expected):
    (entry,) = next(run_checks([NAMED[check]], [machine(answers, **expected)]))
    return entry.finding


CASES = [
    ("gpus", {QUERY: names(8)}, OK, f"8 x {V100}"),
    ("gpus", {QUERY: names(7)}, FAILED, f"7 x {V100}; the inventory says 8 x {V100}"),
    ("gpus", {QUERY: names(8, "Tesla V100-SXM2-32GB")}, FAILED, "the inventory says 8 x"),
    ("gpus", {QUERY: (9, NO_DRIVER)}, FAILED, "couldn't communicate with the NVIDIA driver"),
    ("gpus", {}, FAILED, "nvidia-smi is not installed"),
    ("gpu-busy", {QUERY: "0, 0, 0\n", "nvidia-smi --query-compute-apps": ""}, OK, "1 idle"),
    (
        "gpu-busy",
        {QUERY: "0, 0, 0\n", "nvidia-smi --query-compute-apps": "00000000:1B:00.0, 4242, python3, 1517\n"},
        FAILED,
        "in use by python3 (pid 4242, 1517 MiB)",
    ),
    ("gpu-busy", {QUERY: "0, 9000, 97\n", "nvidia-smi --query-compute-apps": ""}, FAILED, "MiB: GPU 0: 9000"),
    ("gpu-busy", {}, UNAVAILABLE, "nvidia-smi is not installed"),
    ("gpu-throttled", {QUERY: "0, 0x0000000000000001, 33\n"}, OK, "GPU 0: 33"),
    (
        "gpu-throttled",
        {QUERY: "0, 0x0000000000000001, 33\n1, 0x0000000000000048, 91\n"},
        FAILED,
        "GPU 1: hardware slowdown, hardware thermal limit",
    ),
    ("gpu-throttled", {QUERY: "0, 0x0000000000000004, 33\n"}, WARNING, "GPU 0 at the power cap"),
    ("gpu-throttled", {QUERY: "0, [N/A], 33\n"}, UNAVAILABLE, "do not report"),
    (
        "gpu-throttled",
        {
            f"{QUERY}clocks_thr": (2, NO_FIELD.format("clocks_throttle_reasons.active")),
            f"{QUERY}clocks_event_reasons.active": "0, 0x0000000000000080, 33\n",
        },
        FAILED,
        "power brake",
    ),
    ("gpu-clocks", {QUERY: "0, 1312, 1312, 877, 877\n"}, OK, "GPU 0: 1312 MHz"),
    ("gpu-clocks", {QUERY: "0, 1005, 1312, 877, 877\n"}, WARNING, "GPU 0: 1005 MHz, default 1312"),
    ("gpu-clocks", {QUERY: "0, [N/A], [N/A], [N/A], [N/A]\n"}, OK, "no application clocks"),
    ("gpu-ecc", {QUERY: "0, Enabled, 0, 0, 0, No\n", REMAPPED: ""}, OK, "no errors"),
    ("gpu-ecc", {QUERY: "0, Enabled, 0, 0, 0, No\n1, Enabled, 2, 2, 0, No\n"}, FAILED, "GPU 1: 2"),
    ("gpu-ecc", {QUERY: "0, Enabled, 0, 1, 0, Yes\n"}, FAILED, "pending retirement"),
    ("gpu-ecc", {QUERY: "0, Enabled, 0, 0, 0, [N/A]\n", REMAPPED: "00000000:00:06.0, No, No\n"}, OK, "no errors"),
    (
        "gpu-ecc",
        {QUERY: "0, Enabled, 0, 0, 0, [N/A]\n", REMAPPED: "00000000:00:06.0, Yes, No\n"},
        FAILED,
        "00000000:00:06.0: a bad row is waiting to be remapped",
    ),
    ("gpu-ecc", {QUERY: "0, Enabled, 0, 0, 0, No\n", REMAPPED: (1, "Option is not recognized.")}, OK, "no errors"),
    ("gpu-ecc", {QUERY: "0, Disabled, [N/A], [N/A], [N/A], No\n", REMAPPED: ""}, WARNING, "GPU 0: Disabled"),
    ("gpu-ecc", {QUERY: "0, Enabled, 0, 0, 17, No\n", REMAPPED: ""}, WARNING, "corrected: GPU 0: 17"),
    ("gpu-ecc", {QUERY: "0, [N/A], [N/A], [N/A], [N/A], [N/A]\n"}, UNAVAILABLE, "no ECC"),
    ("gpu-ecc", {QUERY: (2, NO_FIELD.format("retired_pages.pending"))}, UNAVAILABLE, "report retired_pages.pending"),
    ("gpu-xid", {"dmesg": "[ 1.0] Linux version 5.4\n"}, OK, "no Xid"),
    ("gpu-xid", {"dmesg": XID_45 + XID_79}, FAILED, "0000:01:00: Xid 79 (GPU fell off the bus) x 1"),
    ("gpu-xid", {"dmesg": XID_45 + XID_45 + XID_13}, WARNING, "0000:dc:00: Xid 45 (program ended) x 2"),
    ("gpu-xid", {"dmesg": [(1, DENIED), XID_79]}, FAILED, "Xid 79"),
    ("gpu-xid", {"dmesg": (1, DENIED)}, UNAVAILABLE, "no permission to read"),
    ("gpu-persistence", {QUERY: "0, Enabled\n"}, OK, "on"),
    ("gpu-persistence", {QUERY: "0, Enabled\n1, Disabled\n"}, WARNING, "off on GPU 1"),
    ("gpu-peers", {QUERY: names(3), "nvidia-smi topo": ALL_PEERS}, OK, "all 3 GPUs reach each other"),
    ("gpu-peers", {QUERY: names(2), "nvidia-smi topo": NO_PEERS}, FAILED, "GPU 0-1: GNS"),
    ("gpu-peers", {QUERY: names(1)}, UNAVAILABLE, "only one GPU"),
    ("gpu-peers", {QUERY: names(4), "nvidia-smi topo": ALL_PEERS}, UNAVAILABLE, "not list all"),
    ("container", {"docker run": "GPU 0: Tesla V100 (UUID: GPU-1)\n" * 8}, OK, "8 GPUs in a container"),
    ("container", {"docker run": "GPU 0: Tesla V100 (UUID: GPU-1)\n"}, FAILED, "1 GPUs in a container, 8 on"),
    (
        "container",
        {
            "docker run": (
                125,
                'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n',
            )
        },
        FAILED,
        "could not select device driver",
    ),
    ("container", {}, FAILED, "docker is not installed"),
]


@pytest.mark.parametrize(("check", "answers", "result", "message"), CASES)
def test_a_check_finds(check, answers, result, message):
    finding = look(check, answers, gpu=V100, gpus=8, containers=True, image="sha256:1")
    assert finding.result == result
    assert message in finding.facts
    assert bool(finding.impact and finding.fix) == (result in (WARNING, FAILED))


@pytest.mark.parametrize("check", sorted(set(NAMED) - {"container"}))
def test_a_cluster_without_gpus_has_none_to_check(check):
    finding = look(check, {"nvidia-smi": names(1)}, gpu="", gpus=2)
    assert (finding.result, finding.facts) == (UNAVAILABLE, "a cluster without GPUs")


def test_without_gpus_a_container_must_start():
    expected = {"gpu": "", "containers": True, "image": "sha256:0123456789abcdef"}
    start = "docker run --rm --network none --read-only --pull never sha256:0123456789abcdef true"
    assert look("container", {start: ""}, **expected).result == OK
    denied = "permission denied while trying to connect to the Docker daemon socket\nSee 'docker run --help'.\n"
    assert "permission denied" in look("container", {"docker run": (126, denied)}, **expected).facts
    assert look("container", {}, containers=False).result == UNAVAILABLE


def test_any_gpus_will_do_on_this_machine():
    assert look("gpus", {QUERY: names(3)}).result == OK
    assert look("gpus", {QUERY: names(1) + names(1, "Tesla T4")}).result == WARNING
    assert look("gpus", {}).facts == "no NVIDIA driver on this machine, so no GPU"


@pytest.mark.parametrize(
    ("check", "before", "after", "command"),
    [
        ("gpu-persistence", "0, Disabled\n", "0, Enabled\n", "sudo nvidia-smi -pm 1"),
        ("gpu-clocks", "0, 1005, 1312, 877, 877\n", "0, 1312, 1312, 877, 877\n", "sudo nvidia-smi -rac"),
    ],
)
def test_what_is_safe_is_fixed(check, before, after, command):
    subject = machine({QUERY: [before, after], "nvidia-smi -": "done"})
    (entry,) = next(run_checks([NAMED[check]], [subject], fix=True))
    assert entry.finding.fixed
    assert entry.finding.result == OK
    assert command in subject.runner.commands


def test_what_cannot_be_fixed_says_why():
    subject = machine({QUERY: "0, Disabled\n", "nvidia-smi -pm": (1, "sudo: a password is required")})
    (entry,) = next(run_checks([NAMED["gpu-persistence"]], [subject], fix=True))
    assert entry.finding.result == WARNING
    assert "a password is required" in entry.finding.fix


def test_nothing_is_fixed_unasked():
    subject = machine({QUERY: "0, Disabled\n", "nvidia-smi -pm": "done"})
    list(run_checks([NAMED["gpu-persistence"]], [subject]))
    assert not any("-pm" in command for command in subject.runner.commands)


def test_the_matrix_of_links():
    def linked(folder):
        return links(machine({"nvidia-smi topo": (HARDWARE / folder / "nvidia-smi-topo.txt").read_text()}))

    assert linked("published") == describe("v100x32").node.links
    assert set(linked("h100-eight")[0]) == {0, 18}
    assert linked("h200") is None, "one GPU has no link to another"
    assert matrix(ALL_PEERS)[2, 0] == "OK"
    with pytest.raises(CheckAborted):
        links(machine({}))
