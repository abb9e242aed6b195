"""Stands in for Slurm's commands, of which the first argument is one. Jobs run on this machine, at once.

Files in the folder SLURM_STANDIN hold the jobs. SLURM_FAULT asks for faults: "refuse", "asked=N" (pending, reason
Resources, until the Nth scontrol query), "never" (pending forever), "forget" (scontrol no longer knows ended jobs),
"limit=SECONDS" (the job's time limit). Nodes are called node1, node2, …; every task of a job runs here.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HOME = Path(os.environ["SLURM_STANDIN"])
FAULTS = dict(word.partition("=")[::2] for word in os.environ.get("SLURM_FAULT", "").split())


def read(number):
    return json.loads((HOME / f"job-{number}").read_text())


def write(number, **changes):
    path = HOME / f"job-{number}"
    job = {**(json.loads(path.read_text()) if path.exists() else {}), **changes}
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(job))
    partial.replace(path)


def sbatch(argv):
    if "--version" in argv:
        print("slurm 22.05.8")
        return
    script = sys.stdin.read()
    if "refuse" in FAULTS:
        sys.exit("sbatch: error: invalid partition specified: nowhere")
    number = len(list(HOME.glob("job-*[0-9]"))) + 1
    (HOME / f"script-{number}").write_text(script)
    options = [shlex.split(line)[1] for line in script.splitlines() if line.startswith("#SBATCH")]
    nodes = int(next(option for option in options if option.startswith("--nodes=")).partition("=")[2])
    write(number, state="PENDING", options=options, nodes=nodes, code="0:0")
    if "never" not in FAULTS:
        subprocess.Popen(
            [sys.executable, __file__, "work", str(number)],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    print(number)


def work(argv):
    """The job itself, in a process of its own that outlives sbatch."""
    number = argv[0]
    while asked(number) < int(FAULTS.get("asked", 0)):
        time.sleep(0.05)
    job = read(number)
    if job["state"] != "PENDING":
        return
    given = {
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_NUM_NODES": str(job["nodes"]),
        "SLURM_JOB_NODELIST": hosts_of(job["nodes"]),
    }
    process = subprocess.Popen(
        ["bash", str(HOME / f"script-{number}")], env={**os.environ, **given}, start_new_session=True
    )
    write(number, state="RUNNING", group=process.pid)
    try:
        status = process.wait(float(FAULTS["limit"]) if "limit" in FAULTS else None)
        if read(number)["state"] == "RUNNING":
            write(number, state="FAILED" if status else "COMPLETED", code=f"{max(status, 0)}:{max(-status, 0)}")
    except subprocess.TimeoutExpired:
        write(number, state="TIMEOUT", code="0:15")
        end(process.pid)


def asked(number):
    """How often scontrol was asked about a job."""
    file = HOME / f"asked-{number}"
    return file.stat().st_size if file.exists() else 0


def end(group):
    """As Slurm does: politely, then after 30 s (its KillWait) for good; the launcher's processes are in sessions of their own."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                os.killpg(group, kind)
            except ProcessLookupError:
                return
            kind = 0
            time.sleep(0.1)


def hosts_of(nodes):
    return "node1" if nodes == 1 else f"node[1-{nodes}]"


def scontrol(argv):
    if argv[:2] == ["show", "hostnames"]:
        last = re.fullmatch(r"node\[1-(\d+)\]", argv[2])
        print(*[f"node{i}" for i in range(1, int(last[1]) + 1)] if last else [argv[2]], sep="\n")
        return
    number = argv[-1]
    if not (HOME / f"job-{number}").exists():
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    job = read(number)
    if "forget" in FAULTS and job["state"] not in ("PENDING", "RUNNING"):
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    with open(HOME / f"asked-{number}", "a") as file:
        file.write("x")
    waits = job["state"] == "PENDING"
    reason, nodes = ("Resources", "(null)") if waits else ("None", hosts_of(job["nodes"]))
    print(
        f"JobId={number} JobName=x UserId=u(1) JobState={job['state']} Reason={reason} ExitCode={job['code']} "
        f"NodeList={nodes} BatchHost=node1"
    )


def sacct(argv):
    job = read(next(word for word in argv if word.startswith("--jobs=")).partition("=")[2])
    print(f"{job['state']}|{job['code']}|{hosts_of(job['nodes'])}")


def scancel(argv):
    with open(HOME / "cancelled", "a") as file:
        print(argv[0], file=file)
    job = read(argv[0])
    if job["state"] in ("PENDING", "RUNNING"):
        write(argv[0], state="CANCELLED", code="0:15")
        if "group" in job:
            end(job["group"])


def srun(argv):
    command = argv[next(i for i, word in enumerate(argv) if not word.startswith("--")) :]
    everywhere = [f"node{index + 1}" for index in range(int(os.environ["SLURM_JOB_NUM_NODES"]))]
    listed = next((word.partition("=")[2].split(",") for word in argv if word.startswith("--nodelist=")), everywhere)
    tasks = [subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **node(name)}) for name in listed]
    threading.Thread(target=forward, args=(tasks,), daemon=True).start()
    while any(task.poll() is None for task in tasks):
        if any(task.poll() for task in tasks) and "--kill-on-bad-exit=1" in argv:
            for task in tasks:
                task.terminate()
        time.sleep(0.05)
    sys.exit(max(abs(task.returncode) for task in tasks))


def node(name):
    """What is different on each node: its name, and the place of its lock."""
    locks = HOME / f"locks-{int(name.removeprefix('node')) - 1}"
    locks.mkdir(exist_ok=True)
    return {"SLURMD_NODENAME": name, "REPRO_NODE_LOCK_FOLDER": str(locks)}


def forward(tasks):
    """What comes in goes to every task."""
    while data := os.read(0, 1 << 16):
        for task in tasks:
            try:
                task.stdin.write(data)
                task.stdin.flush()
            except OSError:
                pass
    for task in tasks:
        task.stdin.close()


if __name__ == "__main__":
    commands = {"sbatch": sbatch, "scontrol": scontrol, "sacct": sacct, "scancel": scancel, "srun": srun, "work": work}
    commands[sys.argv[1]](sys.argv[2:])
