"""Ansible's usual output, but instead of its recap the outcome of every node, and how long it took, as a JSON file."""

import json
import os
import time

from ansible.plugins.callback.default import CallbackModule as Default
from ansible.plugins.loader import filter_loader, test_loader

DOCUMENTATION = """
name: nodes
type: stdout
short_description: the outcome of every node as JSON
description:
  - Prints what the default output prints, without its recap.
  - Writes one object a node into the file that PROVISION_SUMMARY names; what `debug` tells without a change is a note.
  - Writes meanwhile which task runs on which nodes, and the share of tasks before it, into that file's name with ".now".
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

LINES = 5


def _change(result):
    """The name of a task that changed something, or in a dry run the sentence that says what it would change."""
    message = result.result.get("msg")
    return message if result.task.action.endswith("debug") and isinstance(message, str) else result.task.get_name()


class CallbackModule(Default):
    """Times each node's own tasks, which for the slowest node is nearly the whole run, and keeps its last failure."""

    CALLBACK_NAME = "nodes"

    def __init__(self):
        super().__init__()
        self._started, self._seconds, self._failures, self._notes, self._changes = {}, {}, {}, {}, {}
        self._task, self._play_tasks, self._begun = "", set(), set()

    def v2_playbook_on_play_start(self, play):
        """Note the tasks of the play, but for those that tasks include as they run.

        Filters and tests are loaded here once, or every task would load them again in a process of its own on each node.
        """
        for loader in (filter_loader, test_loader):
            list(loader.all())
        blocks = [block.filter_tagged_tasks({}) for block in play.compile()]
        self._play_tasks = {task._uuid for block in blocks for task in block.get_tasks() if not task.implicit}
        super().v2_playbook_on_play_start(play)

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._begun.add(task._uuid)
        super().v2_playbook_on_task_start(task, is_conditional)

    def v2_runner_on_start(self, host, task):
        super().v2_runner_on_start(host, task)
        self._started[host.name] = time.monotonic()
        self._task = task.get_name()
        self._say_now()

    def v2_runner_on_ok(self, result):
        self._ended(result)
        if result.result.get("changed"):
            self._changes.setdefault(result.host.name, []).append(_change(result))
        if result.task.action.endswith("debug") and not result.result.get("changed"):
            messages = result.result.get("msg", [])
            self._notes.setdefault(result.host.name, []).extend([messages] if isinstance(messages, str) else messages)
        super().v2_runner_on_ok(result)

    def v2_runner_on_skipped(self, result):
        self._ended(result)
        super().v2_runner_on_skipped(result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._ended(result)
        if not ignore_errors:
            self._keep(result)
        super().v2_runner_on_failed(result, ignore_errors)

    def v2_runner_on_unreachable(self, result):
        self._ended(result)
        self._keep(result)
        super().v2_runner_on_unreachable(result)

    def v2_playbook_on_stats(self, stats):
        nodes = {}
        for name in sorted(stats.processed):
            counts = stats.summarize(name)
            failed = counts["failures"] + counts["unreachable"]
            nodes[name] = {
                "ok": counts["ok"],
                "changed": counts["changed"],
                "failed": failed,
                "seconds": round(self._seconds.get(name, 0), 1),
                "notes": self._notes.get(name, []),
                "changes": self._changes.get(name, []),
                "failure": self._failures.get(name) if failed else None,
            }
        target = os.environ.get("PROVISION_SUMMARY")
        if target:
            with open(target, "w", encoding="utf-8") as file:
                json.dump(nodes, file)

    def _ended(self, result):
        name = result.host.name
        begun = self._started.pop(name, None)
        if begun is not None:
            self._seconds[name] = self._seconds.get(name, 0) + time.monotonic() - begun
        self._say_now()

    def _say_now(self):
        """Write down which task runs, on which nodes, and the share of tasks before it, for whoever shows how far it is."""
        target = os.environ.get("PROVISION_SUMMARY")
        if target:
            with open(f"{target}.now", "w", encoding="utf-8") as file:
                begun = self._begun & self._play_tasks
                json.dump(
                    [self._task, sorted(self._started), max(0, len(begun) - 1) / max(1, len(self._play_tasks))], file
                )

    def _keep(self, result):
        failed = next((item for item in result.result.get("results", []) if item.get("failed")), result.result)
        message = str(failed.get("msg") or "no message")
        if message == "non-zero return code":
            message = "\n".join((failed.get("stderr") or failed.get("stdout") or message).splitlines()[-LINES:])
        if (
            reasons := str(failed.get("module_stderr") or "").strip().splitlines()
        ):  # what kept the module from answering
            message = f"{message}: {reasons[-1]}"
        self._failures[result.host.name] = {"task": result.task.get_name(), "message": message.strip()}
