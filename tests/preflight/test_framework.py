"""The preflight as a whole: what is chosen, run, printed, kept, and how it ends."""

import json
import socket
import threading
import time

import pytest

from repro.cli import preflight as preflight_tasks
from repro.cluster.ssh import RemoteError
from repro.preflight.collectives import CollectiveTable, hardware_of, judge
from repro.preflight.framework import (
    FAILED,
    OK,
    UNAVAILABLE,
    WARNING,
    ChecklistEntry,
    PreflightCheck,
    PreflightError,
    choose,
    failed,
    ok,
    run_checks,
    this_machine,
    warning,
)
from tests.support.patience import patience, slowness
from tests.support.recorded import machine


def test_checks_are_chosen_by_name():
    checks = [PreflightCheck(name, name, ok) for name in ("disk", "port", "link")]
    assert [check.name for check in choose(checks, "link, disk")] == ["disk", "link"]
    assert choose(checks, None) == checks
    with pytest.raises(PreflightError, match="ONLY=lnk: no such check; known checks: disk, port, link"):
        choose(checks, "lnk")


def test_machines_are_checked_at_once():
    barrier = threading.Barrier(3, timeout=patience())
    check = PreflightCheck("all", "all at once", lambda subject: ok(f"{subject.name} {barrier.wait() >= 0}"))
    found = next(run_checks([check], [machine({}, name=f"node{number}") for number in (1, 2, 3)]))
    assert [entry.machine for entry in found] == ["node1", "node2", "node3"]


def test_a_check_of_all_machines_together_gets_them_all():
    check = PreflightCheck("pairs", "pairs", lambda machines: ok(str(len(machines))), together=True)
    (entry,) = next(run_checks([check], [machine({}, name="node1"), machine({}, name="node2")]))
    assert (entry.machine, entry.finding.facts) == ("all", "2")


def test_findings_come_one_check_after_the_other():
    slow = PreflightCheck("slow", "slow", lambda subject: time.sleep(30) or ok("late"))
    entries = run_checks([PreflightCheck("first", "first", lambda subject: ok("here")), slow], [machine({})])
    started = time.monotonic()
    assert next(entries)[0].finding.facts == "here"
    assert time.monotonic() - started < 5 * slowness()


def test_a_node_that_is_lost_is_a_finding():
    def look(subject):
        raise RemoteError("node1", "the connection was lost while `df` ran")

    (entry,) = next(run_checks([PreflightCheck("disk", "disk", look)], [machine({})]))
    assert entry.finding.result == FAILED
    assert "connection was lost" in entry.finding.facts


def test_only_files_that_exist_are_read(tmp_path):
    (tmp_path / "one").write_text("1\n")
    (tmp_path / "two").write_text("a:b\n")
    paths = [str(tmp_path / name) for name in ("one", "two", "three")]
    assert this_machine().read(paths) == {paths[0]: "1", paths[1]: "a:b"}


def table(bus, device="cuda", transports=("P2P",)):
    row = {"bytes": 1024, "calls": 1, "windows_s": [2e-5], "seconds": 2e-5, "algorithm_gbs": bus, "bus_gbs": bus}
    return CollectiveTable(device, 4, (row,), (), {}, (), transports)


@pytest.mark.parametrize(
    ("bus", "limit", "result"), [(350.0, 370.8, OK), (250.0, 370.8, WARNING), (9.0, 370.8, FAILED), (0.4, None, OK)]
)
def test_an_all_reduce_is_held_to_what_the_links_can_do(bus, limit, result):
    finding = judge(table(bus), limit)
    assert finding.result == result
    assert f"{bus:.1f} GB/s over P2P, 20 µs" in finding.facts
    assert ("bandwidth of the links is not known" in finding.facts) == (limit is None)


def test_hardware_is_taken_from_names_and_links():
    from repro.preflight.collectives import link_gbs

    h200 = ["NVIDIA H200"] * 2
    assert link_gbs(hardware_of(h200, ((0, 18), (18, 0)))) == pytest.approx(370.8)
    assert link_gbs(hardware_of(["Tesla V100-SXM2-16GB"] * 2, ((0, 2), (2, 0)))) == pytest.approx(44.0)
    assert link_gbs(hardware_of(h200, None)) == pytest.approx(9.0), "without NVLink the way between sockets counts"
    assert hardware_of(["Some GPU"] * 2, None) is None


def entry(name, finding):
    return ChecklistEntry("disk", "space", name, finding, 0.1)


def test_machines_with_the_same_finding_share_a_line(capsys):
    full = failed("0.0 GiB free", "Logs go there.", "free some space")
    preflight_tasks.show([entry("node1", ok("90 GiB")), entry("node2", full), entry("node3", full)], 3)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[0].split()) == "ok disk node1: 90 GiB"
    assert " ".join(lines[1].split()) == "failed disk node2, node3: 0.0 GiB free"
    assert "impact: Logs go there." in lines[2]
    assert "fix: free some space" in lines[3]
    preflight_tasks.show([entry("node1", ok("90 GiB")), entry("node2", ok("90 GiB"))], 2)
    assert capsys.readouterr().out.split() == ["ok", "disk", "90", "GiB"]


def kept(done, runs):
    path = done.stdout.strip().splitlines()[-1]
    assert path.startswith(str(runs))
    with open(path) as file:
        return {finding["check"]: finding for finding in json.load(file)["findings"]}


def test_this_machine_is_checked_and_the_findings_are_kept(task, tmp_path):
    done = task("preflight", ONLY="disk,shared-memory,memlock,link,bandwidth")
    findings = kept(done, tmp_path / "runs")
    assert set(findings) == {"disk", "shared-memory", "memlock", "link", "bandwidth"}
    assert findings["bandwidth"]["result"] == UNAVAILABLE
    assert findings["disk"]["result"] in (OK, WARNING, FAILED)
    assert "GiB free on /" in findings["disk"]["found"]
    assert done.returncode == (1 if any(each["result"] == FAILED for each in findings.values()) else 0)


def test_a_port_in_use_fails_the_preflight(task, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = task("preflight", ONLY="port", PORT=port)
    assert done.returncode == 1
    finding = kept(done, tmp_path / "runs")["port"]
    assert finding["result"] == FAILED
    assert f"port {port} is held by" in finding["found"]
    assert "fix: end it if it is left over" in done.stdout


def test_the_collectives_of_this_machine_are_measured(task, tmp_path):
    done = task("preflight", ONLY="allreduce")
    finding = kept(done, tmp_path / "runs")["allreduce"]
    assert finding["result"] == OK, finding
    (measured,) = (tmp_path / "runs").glob("preflight-*/allreduce-this-machine/allreduce.json")
    assert json.loads(measured.read_text())["bus_gbs"] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ONLY": "dsk"}, "ONLY=dsk: no such check"),
        ({"FIX": "yes"}, "FIX=yes"),
        ({"CLUSTER": "nowhere"}, "CLUSTER=nowhere"),
        ({"STACK": "cu90"}, "STACK=cu90"),
    ],
)
def test_wrong_settings_are_named(refused, settings, message):
    assert message in refused("preflight", **settings)


def test_a_warning_does_not_fail(capsys):
    preflight_tasks.show([entry("node1", warning("8 KiB", "Too little.", "more"))], 1)
    assert capsys.readouterr().out.startswith("warning       disk             8 KiB")
