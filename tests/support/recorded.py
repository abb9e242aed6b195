"""A machine that answers with recorded texts, for the tests of the preflight's checks."""

from repro.cluster.local_shell import NOT_FOUND
from repro.cluster.ssh import Result
from repro.preflight.framework import Expected, Machine


class Recorded:
    """Answers a command by the first key that its text begins with; a list is used up answer by answer.

    An answer is the output, or (status, output). Commands without an answer are not installed.
    """

    def __init__(self, answers: dict):
        self.answers = {key: list(answer) if isinstance(answer, list) else answer for key, answer in answers.items()}
        self.commands: list[str] = []

    def run(self, argv, *, timeout=None, check=True, stdin=None, sudo=False):
        command = " ".join(argv)
        self.commands.append(f"sudo {command}" if sudo else command)
        for key, answer in self.answers.items():
            if command.startswith(key):
                if isinstance(answer, list):
                    answer = answer.pop(0) if len(answer) > 1 else answer[0]
                status, text = answer if isinstance(answer, tuple) else (0, answer)
                return Result(text, text if status else "", status)
        return Result("", f"bash: {argv[0]}: command not found", NOT_FOUND)

    def close(self):
        pass


def machine(answers: dict, name="node1", other_nodes=(), **expected) -> Machine:
    """A machine with these answers and expectations."""
    return Machine(name, Recorded(answers), Expected(**expected), tuple(other_nodes))
