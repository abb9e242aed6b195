"""Prints which settings each configuration asks OneFlow for, by name, on two nodes with InfiniBand."""

import json
import sys
from pathlib import Path

import oneflow as flow

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.config import parse
from repro.trainers.graph import graph


def settings(config) -> dict:
    """What `set_up_device` calls, with its arguments."""
    called = {}

    def recording(name):
        return lambda value=True: called.update({name: value})

    nccl = flow.boxing.nccl
    for name in ("set_fusion_threshold_mbytes", "set_fusion_max_ops_num", "set_stream_num"):
        setattr(nccl, name, recording(name))
    flow.env.get_node_size = lambda: 2
    flow.env.init_rdma = recording("init_rdma")
    flow.framework.config_util.api_enable_mem_chain_merge = recording("enable_mem_chain_merge")
    graph.has_adapter = lambda: True
    graph.set_up_device(config)
    return called


print(json.dumps([settings(parse(config)) for config in json.loads(sys.argv[1])]))
