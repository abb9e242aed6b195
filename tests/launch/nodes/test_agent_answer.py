"""What an agent answers, and what is said where it does not."""

import json
from types import SimpleNamespace

import pytest

from repro.cluster.ssh import CommandResult, RemoteError
from repro.launch.nodes.agent_answer import ask_agent


def node_that_says(stdout="", stderr="", status=0):
    result = CommandResult(stdout, stderr, status)
    return SimpleNamespace(
        node=SimpleNamespace(name="n1"), cluster=SimpleNamespace(patience=1.0), run=lambda argv, **options: result
    )


def test_the_last_line_is_the_answer():
    """Before it there may be what a prologue prints."""
    assert ask_agent(node_that_says('module loaded\n{"host": "n1"}\n'), ["agent"], {"do": "check"}, 1) == {"host": "n1"}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"stdout": '{"error": "no space left"}\n', "status": 1}, "n1: no space left"),
        (
            {"stderr": "Traceback\nImportError: no json\n", "status": 1},
            "n1: its agent gave no answer: ImportError: no json",
        ),
        (
            {"stdout": "", "stderr": "sh: 1: Cannot fork\n", "status": 2},
            "n1: its agent gave no answer: sh: 1: Cannot fork; the limits nproc or nofile of the account may leave no room "
            "for it: raise them in /etc/security/limits.d there",
        ),
        ({"stdout": "17\n", "status": 0}, "n1: its agent gave no answer: it ended with status 0"),
        ({"stdout": "module loaded\n", "status": 127}, "n1: its agent gave no answer: it ended with status 127"),
    ],
)
def test_without_an_answer_the_reason_is_given(said, message):
    with pytest.raises(RemoteError) as error:
        ask_agent(node_that_says(**said), ["agent"], {"do": "check"}, 1)
    assert str(error.value) == message


def test_an_order_says_how_much_longer_than_usual_its_node_may_take():
    remote, asked = node_that_says('{"host": "n1"}\n'), {}
    answers, remote.cluster.patience = remote.run, 6.0
    remote.run = lambda argv, **options: asked.update(json.loads(options["stdin"])) or answers(argv)
    ask_agent(remote, ["agent"], {"do": "check"}, 1)
    assert asked == {"do": "check", "patience": 6.0}
