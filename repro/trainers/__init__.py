"""The OneFlow programs that a run starts; each process is `run.py --config FILE`.

Runs in the trainer environment (oneflow 0.8.0, Python 3.9 or 3.10), on nodes without the controller: imports `models` and
itself. `models` and `graph` are the published programs, `tuning` what the tuned ones change, `data` what both read.
Start reading at `train.py`.
"""
