"""A machine that answers with recorded texts, for the tests of the preflight's checks."""

from repro.cluster.ssh import Result
from repro.preflight.framework import NOT_FOUND, Machine, Wanted


class Recorded:
    """Answers a command by the first key that its words begin with; a list is used up answer by answer.

    An answer is what was printed, or (status, printed). Commands without an answer are not installed.
    """

    def __init__(self, answers: dict):
        self.answers = {key: list(answer) if isinstance(answer, list) else answer for key, answer in answers.items()}
        self.commands: list[str] = []

    def run(self, words, *, timeout=None, check=True, stdin=None, sudo=False):
        command = " ".join(words)
        self.commands.append(f"sudo {command}" if sudo else command)
        for key, answer in self.answers.items():
            if command.startswith(key):
                if isinstance(answer, list):
                    answer = answer.pop(0) if len(answer) > 1 else answer[0]
                status, text = answer if isinstance(answer, tuple) else (0, answer)
                return Result(text, text if status else "", status)
        return Result("", f"bash: {words[0]}: command not found", NOT_FOUND)

    def close(self):
        pass


def machine(answers: dict, name="node1", other_nodes=(), **wanted) -> Machine:
    """A machine with these answers, of which this is wanted."""
    return Machine(name, Recorded(answers), Wanted(**wanted), tuple(other_nodes))
