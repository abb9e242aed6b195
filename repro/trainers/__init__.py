"""The OneFlow programs that a run starts; each process is `run.py --config FILE`.

Runs in the trainer environment (oneflow 0.8.0, Python 3.9 or 3.10), also on nodes without the controller, so it imports
only `repro.models` and itself. `models` and `graph` implement the published programs, `tuning` the changes of the tuned
ones, and `data` the input of both. Start reading at `train.py`.
"""
