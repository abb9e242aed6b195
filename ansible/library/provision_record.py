"""Ansible module: notes on a node what was there before provisioning, what was added, and takes that back."""

import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import subprocess

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: provision_record
short_description: notes what provisioning adds to a node, and takes it back
options:
  state:
    description:
      - C(begin) notes what is there and returns what roles compare with what they want, C(end) notes what was added
        since and returns the packages, C(undo) takes it back once packages are removed.
    choices: [begin, end, undo]
    required: true
    type: str
  file: {description: the record on the node, required: true, type: path}
  paths: {description: files and folders that may be written, type: list, elements: path}
  folders: {description: folders that may be made for others to fill, type: list, elements: path}
  blocks: {description: files in which a marked block may be written, type: list, elements: path}
  sysctl: {description: names of kernel parameters that may be set, type: list, elements: str}
  services: {description: services that may be started or enabled, type: list, elements: str}
  links: {description: network interfaces that may appear, type: list, elements: str}
  keep: {description: paths that undo leaves alone, type: list, elements: path}
"""

MARKED = re.compile(r"^# BEGIN oneflow-reproduction\n.*?^# END oneflow-reproduction\n?", re.M | re.S)
NOTED = ("paths", "folders", "blocks", "sysctl", "services", "links")
LISTS = ("packages_added", "users_added", "groups_added", "memberships_added")
SAFE_TO_COPY = 2**20
UNITS = "/etc/systemd/system"
PACKAGE = "${db:Status-Abbrev} ${Package} ${Architecture} ${Version}\n"


def answer(*argv):
    """The status of a command, and what it printed."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.returncode, done.stdout


def installed():
    """Each installed package: dpkg's abbreviation of its state, its name, architecture and version."""
    _, listed = answer("dpkg-query", "--show", "--showformat", PACKAGE)
    return [line.split() for line in listed.splitlines() if line[1] == "i"]


def state_for_roles(sysctl):
    """Packages as NAME=VERSION, names of held ones, kernel parameters (empty: there is none of that name), modules.

    Also the driver of the GPUs that runs, empty for none.

    All in one answer, since each further task on a node takes the start of a Python with Ansible's own modules there.
    """
    packages = installed()
    return {
        "packages": [f"{name}={version}" for _, name, _, version in packages],
        "held": [name for state, name, *_ in packages if state.startswith("h")],
        "sysctl": {name: " ".join(parameter(name).split()) for name in sysctl},
        "modules": sorted(os.listdir("/sys/module")),
        "driver": text_of("/sys/module/nvidia/version"),
    }


def parameter(name):
    """A kernel parameter as it is now; empty if there is none of that name."""
    return text_of("/proc/sys/" + name.replace(".", "/"))


def text_of(path):
    """What a file of the kernel says; empty if there is none."""
    try:
        with open(path) as source:
            return source.read().strip()
    except FileNotFoundError:
        return ""


def state_of_system():
    """Installed packages with their versions, users, groups, and who is in which group."""
    packages = {f"{name}:{architecture}": version for _, name, architecture, version in installed()}
    groups = grp.getgrall()
    return {
        "packages": packages,
        "users": [user.pw_name for user in pwd.getpwall()],
        "groups": [group.gr_name for group in groups],
        "memberships": [f"{group.gr_name} {name}" for group in groups for name in group.gr_mem],
    }


def digest(path):
    """SHA-256 of a regular file, None for anything else."""
    if not os.path.isfile(path) or os.path.islink(path):
        return None
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Record:
    """The record of one node; `save` writes it whole or not at all."""

    def __init__(self, file):
        self.file, self.folder = file, os.path.dirname(file)
        self.data = {
            "paths": {},
            "folders": {},
            "blocks": {},
            "sysctl": {},
            "services": {},
            "links": {},
            "packages_removed": [],
            "packages_changed": {},
            **{name: [] for name in LISTS},
        }
        self.there = os.path.exists(file)
        if self.there:
            with open(file) as source:
                self.data.update(json.load(source))

    def packages(self):
        """Whether anything was provisioned, and what became of packages; the rest stays on the node: it holds copies of files."""
        return {"there": self.there, **{name: self.data[name] for name in ("packages_added", "packages_removed")}}

    def save(self):
        """Write the record; only root can read it."""
        os.makedirs(self.folder, 0o755, exist_ok=True)
        with open(self.file + ".new", "w") as target:
            os.fchmod(target.fileno(), 0o600)
            json.dump(self.data, target, indent=1, sort_keys=True)
        os.rename(self.file + ".new", self.file)

    def begin(self, paths, folders, blocks, sysctl, services, links):
        """Note what is not noted yet; whether there was anything."""
        before = json.dumps(self.data, sort_keys=True)
        for path in folders:
            if path not in self.data["folders"]:
                self.data["folders"][path] = self.backup(path)
        for path in paths:
            if path not in self.data["paths"]:
                self.data["paths"][path] = self.backup(path)
        for path in blocks:
            self.data["blocks"].setdefault(path, os.path.exists(path))
        for name in sysctl:
            if name not in self.data["sysctl"] and parameter(name):
                self.data["sysctl"][name] = parameter(name)
        for name in services:
            self.data["services"].setdefault(
                name, [answer("systemctl", verb, name)[0] == 0 for verb in ("is-enabled", "is-active")]
            )
        for name in links:
            self.data["links"].setdefault(name, os.path.exists("/sys/class/net/" + name))
        changed = json.dumps(self.data, sort_keys=True) != before
        self.data.setdefault("pending", state_of_system())
        return changed

    def backup(self, path):
        """How a path is now: None if absent, else its mode and owner, and for a small file a copy."""
        if not os.path.lexists(path):
            return None
        status, noted = os.lstat(path), {}
        if os.path.isfile(path) and not os.path.islink(path) and status.st_size <= SAFE_TO_COPY:
            with open(path, "rb") as source:
                noted = {"content": source.read().decode("latin-1")}
        return {"mode": status.st_mode & 0o7777, "owner": [status.st_uid, status.st_gid], **noted}

    def end(self):
        """Note what came since `begin`; whether there was anything."""
        before = {key: value for key, value in self.data.items() if key != "pending"}
        before = json.dumps(before, sort_keys=True)
        then, now = self.data.pop("pending", None) or state_of_system(), state_of_system()
        old, new = then["packages"], now["packages"]
        added = set(self.data["packages_added"]) | new.keys() - old.keys()
        self.data["packages_added"] = sorted(added & new.keys())
        removed = set(self.data["packages_removed"]) | old.keys() - new.keys()
        self.data["packages_removed"] = sorted(removed - new.keys() - added)
        for name in sorted(old.keys() & new.keys() - added):
            if old[name] != new[name]:
                first = self.data["packages_changed"].get(name, [old[name]])[0]
                self.data["packages_changed"][name] = [first, new[name]]
        for kind in ("users", "groups", "memberships"):
            key = kind + "_added"
            known = set(self.data[key]) | set(now[kind]) - set(then[kind])
            self.data[key] = sorted(known & set(now[kind]))
        self.data["written"] = {path: digest(path) for path in self.data["paths"] if digest(path)}
        return json.dumps(self.data, sort_keys=True) != before

    def undo(self, keep, pretend):
        """Take everything back but packages; what was done, and what was left and why, one sentence each."""
        done, left = [], []

        def act(sentence, work, *arguments):
            done.append(sentence)
            if not pretend:
                work(*arguments)

        for name, value in self.data["sysctl"].items():
            if parameter(name).split() != value.split():
                act(f"{name} is {value} again", answer, "sysctl", "--quiet", "--write", f"{name}={value}")
        for path, existed in self.data["blocks"].items():
            self._undo_block(path, existed, act)
        for path in sorted(self.data["paths"], reverse=True):
            if path in keep:
                left.append(f"{path}, which holds what others put there")
            else:
                self._undo_path(path, self.data["paths"][path], act, left)
        for name, (enabled, active) in self.data["services"].items():
            if answer("systemctl", "cat", name)[0] == 0:
                for was, query, verb in ((enabled, "is-enabled", "disable"), (active, "is-active", "stop")):
                    if not was and answer("systemctl", query, name)[0] == 0:
                        act(f"{verb} {name}", answer, "systemctl", verb, name)
        for name, existed in self.data["links"].items():
            if not existed and os.path.exists("/sys/class/net/" + name):
                act(f"removed network interface {name}", answer, "ip", "link", "delete", name)
        self._undo_users(act)
        left += [
            f"{name} in version {new}, which was {old}"
            for name, (old, new) in sorted(self.data["packages_changed"].items())
        ]
        for path, before in self.data["folders"].items():
            self._undo_folder(path, before, act, left)
        act(f"removed {self.folder}", shutil.rmtree, self.folder)
        return done, left

    def _undo_block(self, path, existed, act):
        if not os.path.exists(path):
            return
        with open(path, encoding="utf-8", errors="surrogateescape") as source:
            text = source.read()
        rest = MARKED.sub("", text)
        if not rest.strip() and not existed:
            act(f"removed {path}", os.unlink, path)
        elif rest != text:
            act(f"removed our lines from {path}", rewrite, path, rest)

    def _undo_path(self, path, before, act, left):
        if before is None:
            if os.path.dirname(path) == UNITS and os.path.lexists(path):  # it leaves a link where it was enabled
                unit = os.path.basename(path)
                act(f"disable {unit}", answer, "systemctl", "disable", "--now", unit)
            if os.path.isdir(path) and not os.path.islink(path):
                act(f"removed {path}", shutil.rmtree, path)
            elif os.path.lexists(path):
                act(f"removed {path}", os.unlink, path)
        elif "content" in before:
            content = before["content"].encode("latin-1")
            if digest(path) == hashlib.sha256(content).hexdigest():
                return
            if os.path.exists(path) and digest(path) != self.data.get("written", {}).get(path):
                left.append(f"{path}, which was changed after provisioning")
            else:
                act(f"put {path} back", put_back, path, content, before)

    def _undo_users(self, act):
        for membership in self.data["memberships_added"]:
            group, name = membership.split()
            if group not in self.data["groups_added"] and membership in state_of_system()["memberships"]:
                act(f"{name} is no longer in group {group}", answer, "gpasswd", "--delete", name, group)
        for kind, command, there in (("users", "userdel", pwd.getpwnam), ("groups", "groupdel", grp.getgrnam)):
            for name in self.data[kind + "_added"]:
                try:
                    there(name)
                except KeyError:
                    continue
                act(f"removed {kind[:-1]} {name}", answer, command, name)

    def _undo_folder(self, path, before, act, left):
        if not os.path.isdir(path):
            return
        gone = {
            os.path.basename(known)
            for known, was in self.data["paths"].items()
            if was is None and os.path.dirname(known) == path
        }
        rest = sorted(set(os.listdir(path)) - gone)
        if before is not None:
            if before != self.backup(path):
                act(f"{path} belongs to whom it belonged", own, path, before)
        elif rest:
            left.append("{}, which holds {}".format(path, ", ".join(rest)))
        else:
            act(f"removed {path}", os.rmdir, path)


def rewrite(path, text):
    """Write a file in place: /etc/hosts may be a mount, and its owner and mode stay."""
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as target:
        target.write(text)


def put_back(path, content, before):
    """Write a file as it was, with its mode and owner."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as target:
        target.write(content)
    own(path, before)


def own(path, before):
    """Give a path the mode and owner that it had."""
    os.chmod(path, before["mode"])
    os.chown(path, *before["owner"])


def main():
    """What Ansible calls."""
    listed = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        supports_check_mode=True,
        argument_spec={
            "state": {"required": True, "choices": ["begin", "end", "undo"]},
            "file": {"type": "path", "required": True},
            **{name: listed for name in (*NOTED, "keep")},
        },
    )
    given, record = module.params, Record(module.params["file"])
    if given["state"] == "undo":
        if not record.there:
            module.exit_json(changed=False, done=[], left=[])
        done, left = record.undo(given["keep"], module.check_mode)
        module.exit_json(changed=True, done=done, left=left)
    # Roles have added nothing in a dry run; what others changed since is no change of theirs.
    if given["state"] == "end" and (module.check_mode or not record.there):
        module.exit_json(changed=False, **record.packages())
    if given["state"] == "begin":
        answers = {"now": state_for_roles(given["sysctl"])}
        changed = record.begin(*[given[name] for name in NOTED])
    else:
        changed = record.end()
        answers = record.packages()
    if not module.check_mode:
        record.save()
    module.exit_json(changed=changed, **answers)


if __name__ == "__main__":
    main()
