"""The tasks that keep runs for good, and write what they give: a page for each host, and a table in the READMEs."""

import os
import subprocess
import sys
from pathlib import Path

from invoke import Exit, task

from repro.fabfile import BAD_INPUT, FAILED, SETTINGS, bad_input, check_settings, chosen_model, setting

SETTINGS |= {"HOST", "STEPS"}


@task
def reproduce(c):
    """Measure everything on this machine's GPUs and keep it as HOST's, STEPS=bench,curves only these [and as bench].

    That is, for each model or MODEL: what the preflight tells of kernels and links, the published cases that fit with
    their peers if PEER_PYTHON is given, loss curves, learning, and a profile. What fails is told at the end.
    """
    from repro.cases import load_catalogue
    from repro.environment import gpus
    from repro.keep import runs_of
    from repro.record import RUNS
    from repro.reproduce import TASKS, carry_out, steps

    check_settings()
    if not setting("HOST"):
        raise Exit("HOST=<name>: name this machine, such as h200x8; its page is kept under that name", BAD_INPUT)
    tasks = [name.strip() for name in setting("STEPS", ",".join(TASKS)).split(",")]
    if unknown := sorted(set(tasks) - set(TASKS)):
        raise Exit(f"STEPS={setting('STEPS')}: no step {', '.join(unknown)}; there are {', '.join(TASKS)}", BAD_INPUT)
    with bad_input():
        runs_of(setting("HOST"))
        planned = steps(load_catalogue().select(chosen_model(), setting("CASES")), tasks)
    if not gpus():
        raise Exit(
            "nvidia-smi shows no GPU here: there is nothing to reproduce on; make bench checks the machinery", BAD_INPUT
        )

    def call(task: str, environment: dict) -> int:
        return subprocess.run([sys.executable, "-m", "repro", task], env=environment).returncode

    failed = carry_out(
        planned,
        Path(setting("RUNS", RUNS)),
        lambda step: call(step.task, step.environment(os.environ)),
        lambda name: call("keep", os.environ | {"RUN": name}),
    )
    failed += ["make reproduced"] if call("reproduced", os.environ) else []
    if failed:
        raise Exit("failed:\n  " + "\n  ".join(failed), FAILED)


@task
def keep(c):
    """Copy a run or a preflight to reports/reproduced/HOST/runs/, to be committed, RUN= HOST=.

    Paths of this machine are rewritten and large files compressed; nothing is kept unless the run is as it was
    recorded and its copy gives the same results and verdicts.
    """
    from repro.keep import PREFLIGHT, runs_of
    from repro.keep import keep as kept
    from repro.record import RUNS, Run

    check_settings()
    if not setting("HOST") or not setting("RUN"):
        raise Exit("RUN=<id> HOST=<name>: name the run to keep, and the host that it is of, such as h200", BAD_INPUT)
    runs, name = Path(setting("RUNS", RUNS)), setting("RUN")
    with bad_input():
        folder = next((each for each in (runs / name, Path(name)) if (each / PREFLIGHT).is_file()), None)
        source = folder or Run.find(name, runs).folder
        target = runs_of(setting("HOST")) / source.name
    with bad_input(FAILED):
        target.parent.mkdir(parents=True, exist_ok=True)
        found = kept(source, target)
    print(f"{found.folder}: {found.files} files, {found.size / 1e6:.1f} MB")
    print(f"paths outside the checkout that it names: {', '.join(found.named) or 'none'}")
    print(f"make reproduced HOST={setting('HOST')} puts it into the host's page and the READMEs")


@task
def reproduced(c):
    """Write the pages of the kept runs and the table in the READMEs; CHECK=1 only compares [HOST= CHECK=1]."""
    from repro import reproduced_page, reproduced_readme
    from repro.reproduced import hosts

    check_settings()
    if setting("CHECK", "0") not in ("0", "1"):
        raise Exit(f"CHECK={setting('CHECK')}: it is 0 or 1", BAD_INPUT)
    names = [setting("HOST")] if setting("HOST") else hosts()
    with bad_input():
        if setting("CHECK") == "1":
            stale = [path for name in names for path in reproduced_page.differing(name)]
            if stale := [*stale, *reproduced_readme.differing()]:
                raise Exit("not as the kept runs give them: " + ", ".join(map(str, stale)), FAILED)
            return
        written = [path for name in names for path in reproduced_page.render(name)]
        for path in (*written, *reproduced_readme.render()):
            print(path)
    if not names:
        print("no run is kept; `make keep RUN=<id> HOST=<name>` keeps one")
