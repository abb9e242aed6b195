"""What can be known of provisioning without a node: roles, inventories, the record, and what a run says of itself."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from repro.cli.cluster import _show_outcome
from repro.cluster import provision as provision_module
from repro.cluster.cluster import load_cluster
from repro.cluster.inventory import inventory_names
from repro.cluster.provision import (
    MANAGEABLE,
    ROLES,
    NodeOutcome,
    Provisioned,
    ProvisionError,
    _hint,
    provision,
    unmanaged,
)
from repro.cluster.ssh import CommandResult, RemoteError
from repro.simulation.nodes import CPU_CLUSTER
from repro.utils.paths import ROOT
from tests.support.clusters import V100

pytestmark = pytest.mark.usefixtures("inventories_in_forks")
ANSIBLE = ROOT / "ansible"
BIN = Path(sys.executable).parent
WRITERS = ("copy", "template", "file", "blockinfile", "get_url", "user")
GPUS = {
    "Tesla V100-SXM2-16GB": "440.33.01",
    "NVIDIA TITAN V": "440.33.01",
    "Tesla T4": "535.183.06",
    "Quadro RTX 6000": "535.183.06",
    "NVIDIA A100-SXM4-40GB": "535.183.06",
    "NVIDIA A10": "535.183.06",
    "NVIDIA GeForce RTX 3090": "535.183.06",
    "NVIDIA L40S": "535.183.06",
    "NVIDIA H100 80GB HBM3": "535.183.06",
    "NVIDIA H200": "535.183.06",
    "NVIDIA GH200 480GB": "535.183.06",
    "NVIDIA B200": "570.124.06",
}


def settings(role):
    return yaml.safe_load((ANSIBLE / "roles" / role / "defaults/main.yml").read_text())


def tasks():
    """Every task of every role, blocks opened."""

    def opened(listed):
        for task in listed or []:
            yield task
            for part in ("block", "rescue", "always"):
                yield from opened(task.get(part))

    for path in sorted(ANSIBLE.glob("roles/*/tasks/*.yml")):
        yield from ((path, task) for task in opened(yaml.safe_load(path.read_text())))


def test_ansible_lint_has_nothing_to_say(tmp_path):
    """File by file: given their folders as well, it would check the syntax of each role once more, in a process of its own."""
    files = sorted(path.relative_to(ANSIBLE) for path in ANSIBLE.rglob("*") if path.suffix in (".yml", ".j2", ".py"))
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_HOME": str(tmp_path), "NO_COLOR": "1"}
    done = subprocess.run(
        [BIN / "ansible-lint", "--offline", "--profile", "production", *files],
        cwd=ANSIBLE,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'production' was required, and it passed" in done.stderr
    assert "resolved_fqcn" not in done.stderr, "a module that there is not, in tasks that are included"


def test_the_playbook_runs_the_roles_that_can_be_named():
    (play,) = yaml.safe_load((ANSIBLE / "site.yml").read_text())
    assert tuple(role["role"] for role in play["roles"]) == ROLES
    assert all(role["tags"] == [role["role"]] for role in play["roles"])


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_every_role_is_explained(name):
    text = (ANSIBLE / name).read_text()
    explained = re.findall(r"^\| `(\w+)` \|", text, re.M)
    assert [each for each in explained if each in ROLES] == list(ROLES)
    assert {path.name for path in ANSIBLE.glob("roles/*")} <= set(re.findall(r"`(\w+)`", text))


@pytest.mark.parametrize("name", ["v100x32", "single-node"])
def test_examples_are_clusters(name):
    assert name in inventory_names()
    assert load_cluster(name).world_size == {"v100x32": 32, "single-node": 8}[name]


def test_host_keys_are_checked_and_nothing_is_forwarded():
    texts = [path.read_text() for path in ANSIBLE.rglob("*.*") if path.suffix in (".yml", ".cfg", ".j2", ".py")]
    assert not [text for text in texts if re.search(r"(?i)StrictHostKeyChecking[ =]no|key_checking *= *false", text)]
    config = (ANSIBLE / "ansible.cfg").read_text()
    assert "StrictHostKeyChecking=yes" in config
    assert "ForwardAgent=no" in config


@pytest.mark.parametrize(("times", "connect_s", "alive_s"), [(1.0, "10", 5), (6.0, "60", 30)])
def test_ansible_has_the_patience_of_the_inventory(tmp_path, times, connect_s, alive_s):
    cluster = replace(load_cluster("v100x32"), patience=times)
    environment = provision_module._environment(cluster, tmp_path / "summary.json")
    assert environment["ANSIBLE_TIMEOUT"] == connect_s
    assert f"-o ServerAliveInterval={alive_s} -o ServerAliveCountMax=3" in environment["ANSIBLE_SSH_COMMON_ARGS"]


def test_all_that_is_written_can_be_taken_back():
    """A role that starts to write elsewhere must say so in the record's list."""
    noted = settings("record")
    known = [plain(path) for path in noted["record_paths"] + noted["record_blocks"] + noted["record_folders"]]
    known.append("/etc/oneflow-reproduction")
    written = set()
    for path, task in tasks():
        for action in WRITERS:
            given = task.get(f"ansible.builtin.{action}", {})
            target = given.get("dest") or given.get("path")
            if target and "item" not in target:
                written.add((path.parent.parent.name, plain(target)))
    assert len(written) > 20
    for role, target in written:
        pattern = re.compile(re.escape(target).replace("ANY", ".*"))
        covered = [path for path in known if pattern.fullmatch(path) or target.startswith(f"{path}/")]
        assert covered, f"{role} writes {target}, which roles/record/defaults/main.yml does not list"


def plain(path):
    """A path with its templates made out: those of the record's list in full, others as ANY."""
    for name, value in (
        ("cluster_work", "/srv/nodes"),
        ("trainer_image_folder", "/srv/nodes/venv"),
        ("platform_home", "/home/user"),
        ("vendor_packages_keyring", "/usr/share/keyrings/oneflow-reproduction-ANY.asc"),
        ("vendor_packages_list", "/etc/apt/sources.list.d/oneflow-reproduction-ANY.list"),
    ):
        path = path.replace(f"{{{{ {name} }}}}", value)
    return re.sub(r"\{\{.*?\}\}", "ANY", path).rstrip("/")


@pytest.mark.parametrize("gpu", GPUS)
def test_the_driver_follows_the_generation(gpu):
    found = [each for each in settings("nvidia_driver")["nvidia_driver_generations"] if re.search(each["gpus"], gpu)]
    assert found[0]["version"] == GPUS[gpu]


def test_keys_are_pinned_by_their_whole_fingerprints():
    pinned = {
        name: value
        for role in ("nvidia_driver", "nvidia_container_toolkit")
        for name, value in settings(role).items()
        if name.endswith("_fingerprint")
    }
    assert len(pinned) == 2
    assert all(re.fullmatch(r"[0-9A-F]{40}", value) for value in pinned.values())
    # That of MLNX_OFED could not be verified; the role refuses to go on until somebody gives it.
    assert settings("infiniband")["infiniband_ofed_fingerprint"] == ""


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The module's record of an empty machine, and that machine's packages, which the test may set."""
    spec = importlib.util.spec_from_file_location("provision_record", ANSIBLE / "library/provision_record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    system = {
        "packages": {"bash:amd64": "5.2", "timesyncd:amd64": "252", "libc6:amd64": "2.36-1"},
        "users": ["root"],
        "groups": ["root", "docker"],
        "memberships": [],
    }
    asked = []
    monkeypatch.setattr(module, "state_of_system", lambda: json.loads(json.dumps(system)))
    monkeypatch.setattr(module, "answer", lambda *argv: (asked.append(argv), (1, ""))[1])

    def make():
        return module.Record(str(tmp_path / "etc/provisioned.json"))

    make.system, make.asked, make.module = system, asked, module
    return make


def begin(record, paths=(), folders=(), blocks=()):
    made = record()
    changed = made.begin(
        [str(path) for path in paths], [str(path) for path in folders], [str(path) for path in blocks], [], [], []
    )
    made.save()
    return changed


def end(record):
    made = record()
    changed = made.end()
    made.save()
    return changed


def test_what_was_added_is_taken_back(record, tmp_path):
    ours, theirs, shared = tmp_path / "ours.conf", tmp_path / "theirs.conf", tmp_path / "hosts"
    work, fresh = tmp_path / "work", tmp_path / "fresh"
    theirs.write_text("as it was\n")
    theirs.chmod(0o640)
    shared.write_text("127.0.0.1 localhost\n")
    assert begin(record, [ours, theirs, fresh], [work], [shared, tmp_path / "known"])
    ours.write_text("new")
    theirs.write_text("ours now\n")
    marked = "# BEGIN oneflow-reproduction\n10.0.0.1 a\n# END oneflow-reproduction\n"
    shared.write_text(f"127.0.0.1 localhost\n{marked}::1 x\n")
    (tmp_path / "known").write_text(marked)
    (fresh / "deep").mkdir(parents=True)
    work.mkdir()
    assert end(record)
    done, left = record().undo([], pretend=True)
    assert ours.exists() and len(done) == 7 and left == []
    assert record().undo([], pretend=False) == (done, left)
    assert not any(path.exists() for path in (ours, fresh, work, tmp_path / "known", tmp_path / "etc"))
    assert theirs.read_text() == "as it was\n"
    assert theirs.stat().st_mode & 0o777 == 0o640
    assert shared.read_text() == "127.0.0.1 localhost\n::1 x\n"


def test_a_unit_is_disabled_before_it_is_removed(record, tmp_path, monkeypatch):
    monkeypatch.setattr(record.module, "UNITS", str(tmp_path))
    unit, absent = tmp_path / "ours.service", tmp_path / "absent.service"
    begin(record, [unit, absent])
    unit.write_text("[Service]\n")
    end(record)
    done, _ = record().undo([], pretend=False)
    assert done[:2] == ["disable ours.service", f"removed {unit}"]
    disabled = [argv for argv in record.asked if argv[:2] == ("systemctl", "disable")]
    assert disabled == [("systemctl", "disable", "--now", "ours.service")]


def test_what_others_did_since_stays(record, tmp_path):
    theirs, work, engine = tmp_path / "theirs.conf", tmp_path / "work", tmp_path / "engine"
    theirs.write_text("as it was\n")
    begin(record, [theirs, engine], [work])
    theirs.write_text("ours now\n")
    (work / "runs").mkdir(parents=True)
    engine.mkdir()
    end(record)
    theirs.write_text("somebody else's\n")
    _, left = record().undo([str(engine)], pretend=False)
    assert left == [
        f"{theirs}, which was changed after provisioning",
        f"{engine}, which holds what others put there",
        f"{work}, which holds runs",
    ]
    assert theirs.read_text() == "somebody else's\n"
    assert (work / "runs").exists()


def test_packages_and_users_are_told_apart(record):
    begin(record)
    record.system["packages"] = {"bash:amd64": "5.2", "libc6:amd64": "2.36-2", "chrony:amd64": "4.3"}
    record.system["users"].append("_chrony")
    record.system["memberships"].append("docker runner")
    assert end(record)
    data = record().data
    assert data["packages_added"] == ["chrony:amd64"]
    assert data["packages_removed"] == ["timesyncd:amd64"]
    assert data["packages_changed"] == {"libc6:amd64": ["2.36-1", "2.36-2"]}
    assert data["users_added"] == ["_chrony"]
    assert data["memberships_added"] == ["docker runner"]


def test_what_roles_compare_comes_in_one_answer(record, monkeypatch):
    listed = "ii  bash amd64 5.2-1\nhi  docker.io amd64 20.10\nrc  perftest amd64 4.5\nii  zlib1g i386 1:1.2\n"
    monkeypatch.setattr(record.module, "answer", lambda *argv: (0, listed))
    now = record.module.state_for_roles(["kernel.ostype", "net.ipv4.tcp_rmem", "no.such"])
    assert now["packages"] == ["bash=5.2-1", "docker.io=20.10", "zlib1g=1:1.2"]
    assert now["held"] == ["docker.io"]
    assert now["sysctl"]["kernel.ostype"] == "Linux" and now["sysctl"]["no.such"] == ""
    assert re.fullmatch(r"\d+ \d+ \d+", now["sysctl"]["net.ipv4.tcp_rmem"]), "written by the kernel with tabs"
    assert "kernel" in now["modules"]


def test_an_interrupted_run_is_reckoned_with_the_next(record):
    begin(record)
    record.system["packages"]["chrony:amd64"] = "4.3"
    assert not begin(record)
    end(record)
    assert record().data["packages_added"] == ["chrony:amd64"]


def test_a_second_run_notes_nothing_new_and_the_users_own_packages_are_not_ours(record):
    begin(record)
    record.system["packages"]["chrony:amd64"] = "4.3"
    end(record)
    record.system["packages"]["vim:amd64"] = "9"
    assert not begin(record)
    assert not end(record)
    assert record().data["packages_added"] == ["chrony:amd64"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"tags": "base,docker"}, "TAGS=base,docker: there is no 'docker'"),
        ({"limit": "node9"}, "LIMIT=node9: there is no 'node9'"),
    ],
)
def test_unknown_names_are_refused(names, message):
    with pytest.raises(ProvisionError, match=message):
        provision(load_cluster("single-node"), **names)


@pytest.mark.parametrize(("nodes", "forks"), [(1, "5"), (20, "20"), (1000, "32")])
def test_ansible_works_on_some_nodes_at_a_time(nodes, forks, tmp_path):
    cluster = replace(V100, nodes=V100.nodes[:1] * nodes)
    assert provision_module._environment(cluster, tmp_path / "summary")["ANSIBLE_FORKS"] == forks


def test_a_bundle_that_is_none_is_refused(tmp_path):
    with pytest.raises(ProvisionError, match="no such folder"):
        provision(load_cluster("single-node"), bundle=tmp_path / "none")
    with pytest.raises(ProvisionError, match="SHA256SUMS is missing"):
        provision(load_cluster("single-node"), bundle=tmp_path)


@pytest.mark.parametrize(
    ("settings", "status", "message"),
    [
        ({}, 2, "CLUSTER=NAME: name the cluster"),
        ({"CLUSTER": "none"}, 2, "CLUSTER=none: no inventory"),
        ({"CLUSTER": "single-node", "CHECK": "yes"}, 2, "CHECK=yes: it is 0 or 1"),
        ({"CLUSTER": "single-node", "TAGS": "bas"}, 2, "TAGS=bas: there is no 'bas'; there are base, ssh_mesh"),
    ],
)
def test_what_is_wrong_with_the_settings(task, settings, status, message):
    done = task("provision", **settings)
    assert done.returncode == status
    assert message in done.stderr


def test_nodes_that_do_not_answer_fail(task, tmp_path):
    """Port 1 of this machine: nobody listens there."""
    (tmp_path / "c/group_vars").mkdir(parents=True)
    (tmp_path / "c/hosts.yml").write_text(
        "nodes: {hosts: {gone: {ansible_host: 127.0.0.1, ansible_port: 1, ansible_user: nobody}}}\n"
    )
    (tmp_path / "c/group_vars/all.yml").write_text(json.dumps(CPU_CLUSTER))
    done = task("provision", CLUSTER=tmp_path / "c", CHECK=1)
    assert done.returncode == 1
    assert re.search(r"^gone  FAILED .*Connection refused", done.stdout, re.M)
    assert "dry run of provisioning failed on gone" in done.stderr


TOOLS = {
    "manageable": {"sudo": "exit 0", "apt-get": "exit 0"},
    "no sudo": {"sudo": "exit 1", "apt-get": "exit 0"},
    "no terminal": {"sudo": "echo 'sudo: sorry, you must have a tty to run sudo' >&2; exit 1", "apt-get": "exit 0"},
    "no apt": {"sudo": "exit 0"},
    "neither": {},
}


@pytest.mark.parametrize(
    ("release", "tools", "reason"),
    [
        ("debian-13", "manageable", ""),
        ("ubuntu-24.04", "manageable", ""),
        ("ubuntu-24.04", "no sudo", "it has no sudo without a password"),
        ("debian-13", "no terminal", "its sudo wants a terminal (requiretty in /etc/sudoers)"),
        ("rocky-9.4", "no apt", "it has no apt-get, and the roles were not written for rocky 9.4"),
        (
            "rhel-8.10",
            "neither",
            "it has no sudo without a password, and it has no apt-get, and the roles were not written for rhel 8.10",
        ),
    ],
)
def test_nodes_that_cannot_be_provisioned_are_known_without_root(monkeypatch, tmp_path, release, tools, reason):
    for name, line in {**TOOLS[tools], "id": "echo 1000"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    script = MANAGEABLE.replace("/etc/os-release", shlex.quote(str(ROOT / "tests/data/os-release" / release)))

    def asked(cluster, work, nodes):
        """Each node is this machine, with nothing on its path but these tools."""

        class Node:
            def run(self, argv, timeout):
                argv = ["/bin/sh", "-c", script]
                done = subprocess.run(argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
                return CommandResult(done.stdout, done.stderr, 0)

        found = {node.name: work(Node()) for node in nodes}
        return found | {"gone": RemoteError("gone", "it does not answer")}

    monkeypatch.setattr("repro.cluster.provision.on_all", asked)
    names = ["n1", "n2", "n3", "n4"]
    assert unmanaged(V100) == (dict.fromkeys(names, reason) if reason else {})
    assert unmanaged(V100, "n2") == ({"n2": reason} if reason else {})
    with pytest.raises(ProvisionError, match="LIMIT=n9: there is no 'n9'"):
        unmanaged(V100, "n9")


def test_an_outcome_in_one_line():
    assert NodeOutcome("a", 40, 3, 0, 12.34).line() == "a  ok  40 ok, 3 changed, 12.3 s"
    assert NodeOutcome("b", 4, 0, 1, 2, "base : Packages", "no").line() == (
        "b  FAILED  4 ok, 0 changed, 2.0 s: base : Packages: no"
    )
    assert not Provisioned((), 1.0, 0).succeeded
    assert not Provisioned((NodeOutcome("a", 1, 0, 0, 1.0),), 1.0, 4).succeeded
    for message in ("sudo: a password is required", "Missing sudo password"):
        assert "(provisioning needs sudo without a password for the user on the node; CHECK=1 shows" in _hint(message)
    assert _hint("Host key verification failed.").endswith("check its key's fingerprint and write it there)")


@pytest.mark.parametrize("runtime", ["docker", "venv"])
def test_nodes_with_newer_gpus_get_the_newer_libraries_in_containers_and_without(monkeypatch, runtime):
    given = []
    monkeypatch.setattr(provision_module, "_library", lambda name, bundle: Path("/wheels", name))
    monkeypatch.setattr(provision_module, "_play", lambda *place, **options: given.append(options["extra"]))
    for check in (False, True):  # a dry run compares them too
        provision(replace(V100, stack="cu102-modern", runtime_name=runtime), check=check)
    provision(replace(V100, runtime_name=runtime))
    libraries = {"cublas": "/wheels/cuBLAS", "cudnn": "/wheels/cuDNN"}
    assert given == [{"provision_libraries": libraries}] * 2 + [{}]


@pytest.mark.parametrize(
    ("changes", "last"),
    [([(), ()], "up to date"), ([(), ("The engine runs",) * 2], "not up to date: b; what would change is above")],
)
def test_a_dry_run_ends_with_what_differs(capsys, changes, last):
    outcomes = [NodeOutcome(name, 9, len(each), 0, 1.0, changes=each) for name, each in zip("ab", changes, strict=True)]
    _show_outcome(Provisioned(tuple(outcomes), 2.0, 0), "provisioning", check=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == last
    assert lines.count("    would change: The engine runs") == any(changes)


def test_what_ansible_does_now_is_read_from_its_callback(tmp_path):
    summary, now = tmp_path / "summary.json", tmp_path / "summary.json.now"
    assert provision_module._now(summary) == "Ansible starts"
    now.write_text('["base : Pack')
    assert provision_module._now(summary) == "Ansible starts"
    assert provision_module._share(summary) == 0
    now.write_text(json.dumps(["base : Packages", [f"n{number}" for number in range(8)], 0.25]))
    assert provision_module._share(summary) == 0.25
    assert (
        provision_module._now(summary) == f"role 1 of {len(ROLES)}, base : Packages: n0, n1, n2, n3, n4, n5 and 2 more"
    )
    now.write_text(json.dumps(["Look at the platform", [], 0]))
    assert provision_module._now(summary) == "Look at the platform"


def test_the_reason_of_a_module_that_cannot_start_is_kept_with_its_remedy():
    spec = importlib.util.spec_from_file_location("nodes_callback", ANSIBLE / "callback" / "nodes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    callback = module.CallbackModule()
    answer = {"msg": "No start of json char found", "module_stderr": "sudo: sorry, you must have a tty to run sudo\n"}
    node, task = SimpleNamespace(name="n1"), SimpleNamespace(get_name=lambda: "record : Note")
    callback._keep(SimpleNamespace(host=node, task=task, result=answer))
    said = _hint(callback._failures["n1"]["message"])
    assert said.startswith(
        "No start of json char found: sudo: sorry, you must have a tty to run sudo (sudo there wants"
    )
