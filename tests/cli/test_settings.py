"""Options of tasks: texts become values, wrong ones are named, and every error has an exit status."""

import errno
from pathlib import Path
from typing import Literal

import pytest

from repro.cli.fab import FabTask
from repro.cli.settings import (
    BOUNDED,
    MOST,
    OPTIONS,
    Exit,
    Invocation,
    Option,
    OptionError,
    OptionTask,
    check_set_up,
    exit_statuses,
    task,
)
from repro.cli.tasks import every
from repro.utils.errors import ReproError


class Broken(ReproError):
    status = 1


seen = []


@task(scale="a scale of this test")
def example(
    invocation: Invocation,
    repeats: int | None = None,
    max_gpus: tuple[int, ...] = (),
    baselines: tuple[str, ...] = (),
    scale: Literal["smoke", "published"] = "smoke",
    program: tuple[Literal["published", "tuned"], ...] = ("published",),
    tolerance: float | None = None,
    runs: Path = Path("runs"),
    cases: str | None = None,
    dry_run: bool = False,
) -> None:
    """An example.

    Says more.
    """
    seen.append((invocation, repeats, max_gpus, baselines, scale, program, tolerance, runs, cases, dry_run))


def called(**texts):
    example(**texts)
    return seen.pop()


def test_texts_become_values():
    texts = {
        "repeats": "3",
        "max_gpus": "4,2 4",
        "baselines": "a,b,a",
        "scale": "published",
        "program": "tuned,published",
        "tolerance": "2.5%",
        "runs": "elsewhere",
        "cases": "DP_*",
        "dry_run": "1",
    }
    _, *values = called(**texts)
    assert values == [
        3,
        (2, 4),
        ("a", "b"),
        "published",
        ("published", "tuned"),
        0.025,
        Path("elsewhere"),
        "DP_*",
        True,
    ]


def test_what_is_not_given_has_its_default():
    _, *values = called()
    assert values == [None, (), (), "smoke", ("published",), None, Path("runs"), None, False]
    assert called(repeats="", scale="", runs="")[1:] == tuple(values)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("retries", "0", 0), ("retries", "100", 100), ("tolerance", "0", 0.0), ("tolerance", "0%", 0.0)],
)
def test_none_at_all_is_a_value_too(name, text, value):
    task = every()["bench" if name == "retries" else "report"]
    assert task.of_variables({name.upper(): text}) == {name: value}


def test_an_empty_answer_is_an_answer():
    assert called(cases="")[-2] == ""


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("repeats", "0", "--repeats 0: it is a whole number from 1 to 1000"),
        ("repeats", "1000000000", "--repeats 1000000000: it is a whole number from 1 to 1000"),
        (
            "max_gpus",
            "2,10000000",
            "--max-gpus 2,10000000: it is a whole number from 1 to 4096, or several such as 2,4",
        ),
        ("repeats", "9" * 500, f"--repeats {'9' * 200} … (300 more characters): it is a whole number from 1 to 1000"),
        ("repeats", "²", "--repeats ²: it is a whole number from 1 to 1000"),
        ("max_gpus", "0,2", "--max-gpus 0,2: it is a whole number from 1 to 4096, or several such as 2,4"),
        ("scale", "huge", "--scale huge: it is smoke or published"),
        ("program", "published,x", "--program published,x: it is published or tuned, or published,tuned"),
        ("program", ",", "--program ,: it is published or tuned, or published,tuned"),
        ("tolerance", "nan", "--tolerance nan: it is a number of per cent from 0 to 5, such as 2.5"),
        ("tolerance", "5.01", "--tolerance 5.01: it is a number of per cent from 0 to 5, such as 2.5"),
        ("tolerance", "abc", "--tolerance abc: it is a number of per cent from 0 to 5, such as 2.5"),
        ("tolerance", "-1", "--tolerance -1: it is a number of per cent from 0 to 5, such as 2.5"),
    ],
)
def test_a_wrong_text_is_named_and_ends_with_2(name, text, message):
    with pytest.raises(Exit) as caught:
        called(**{name: text})
    assert caught.value.message == message
    assert caught.value.status == 2


def test_every_number_has_bounds():
    numbers = {
        option.variable for each in every().values() for option in each.options.values() if option.kind in BOUNDED
    }
    assert numbers == MOST.keys()


def test_variables_of_make_are_named_as_make_has_them():
    assert example.of_variables({"MAX_GPUS": "2", "DRY_RUN": "0"}) == {"max_gpus": (2,), "dry_run": False}
    with pytest.raises(OptionError, match=r"REPEATS=x: it is a whole number"):
        example.of_variables({"REPEATS": "x"})
    with pytest.raises(OptionError, match="MAXGPUS: make example has no such variable; the nearest is MAX_GPUS"):
        example.of_variables({"MAXGPUS": "2"})


def test_the_command_has_what_differs_from_the_defaults(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    invocation = called(cases="a b", scale="smoke", repeats="2", max_gpus="4,2")[0]
    assert invocation.command == "make example REPEATS=2 MAX_GPUS=4,2 'CASES=a b' CUDA_VISIBLE_DEVICES=1,0"


def test_invoke_sees_the_types_defaults_and_texts():
    arguments = {argument.name: argument for argument in FabTask(example).get_arguments()}
    assert arguments["repeats"].kind is int and arguments["dry_run"].kind is bool
    assert arguments["scale"].help == "a scale of this test (default: smoke)"
    assert arguments["max_gpus"].names == ("max-gpus",)
    assert arguments["repeats"].help == OPTIONS["repeats"]


def test_a_text_for_an_option_that_is_not_there_is_a_mistake():
    with pytest.raises(TypeError, match="example has no option colour"):
        OptionTask(example.body, {"colour": "red"})


@pytest.mark.parametrize("each", every().values(), ids=list(every()))
def test_every_task_and_option_says_what_it_is(each):
    assert all(isinstance(option, Option) and option.help for option in each.options.values())
    first, _, rest = each.__doc__.partition("\n")
    assert first.endswith(".") and "[" not in first
    assert "xit status" in rest


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ReproError("wrong"), 2, "wrong"),
        (Broken("broken"), 1, "broken"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(errno.ENOSPC, "full", "runs/x"), 1, "the disk is full: runs/x could not be written"),
        (OSError(errno.EFBIG, "File too large"), 1, "File too large: this account may write no file that large; raise"),
        (OSError(errno.EMFILE, "Too many open files", "x"), 1, "x: Too many open files: this account may open no more"),
        (MemoryError(), 1, "there is no more memory"),
        (Exit("judged", 3), 3, "judged"),
    ],
)
def test_errors_have_a_message_and_a_status(error, status, message):
    with pytest.raises(Exit) as caught, exit_statuses():
        raise error
    assert caught.value.status == status
    assert caught.value.message.startswith(message)


def test_where_writing_has_begun_the_same_error_is_a_failure():
    with pytest.raises(Exit) as caught, exit_statuses(1):
        raise ReproError("wrong")
    assert caught.value.status == 1


def test_a_mistake_of_the_program_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), exit_statuses():
        raise ZeroDivisionError


def test_what_was_never_installed_is_named_with_the_command(monkeypatch, tmp_path):
    from repro import bootstrap

    monkeypatch.setattr(bootstrap, "TRAINER", tmp_path / ".venv-trainer")
    monkeypatch.setattr(bootstrap, "CONTROLLER", tmp_path / ".venv")
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "ready").write_text("0123\ngroups: export\n")
    check_set_up("cases", {})
    check_set_up("report", {})
    with pytest.raises(
        OptionError, match="plan needs the dependency group cluster, not installed here: `make plan` or"
    ):
        check_set_up("plan", {"CLUSTER": "v100x32"})
    with pytest.raises(OptionError, match=r"bench needs \.venv-trainer, the trainers' environment, not installed"):
        check_set_up("bench", {})
