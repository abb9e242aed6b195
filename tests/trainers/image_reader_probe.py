"""Prints the image reader's operators in their order, each with the element types of its inputs and its texts."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import oneflow as flow
from oneflow.core.common.data_type_pb2 import DataType

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.data.images import ImageReader
from repro.trainers.data.standin.sets import StandIn, make
from repro.trainers.layout import Layout

standin = StandIn.of("images", "small", 2, {})
path = str(standin.path(sys.argv[1]))
make(standin, path)
config = SimpleNamespace(
    seed=1,
    micro_batch=2,
    layout=SimpleNamespace(data=1),
    shape=SimpleNamespace(image_size=32),
    data=SimpleNamespace(path=path, parts=2),
)


class Graph(flow.nn.Graph):
    def __init__(self) -> None:
        super().__init__()
        self.reader = ImageReader(config, Layout(1, 1, 1, "cpu"))

    def build(self):
        return self.reader()


graph = Graph()
images, labels = graph()
assert images.shape == (2, 3, 32, 32) and labels.shape == (2,)
job = graph._full_job_proto
types = {name: DataType.Name(blob.data_type) for name, blob in job.helper.lbn2logical_blob_desc.items()}
found = []
for op in job.net.op:
    if op.HasField("user_conf"):
        taken = {name: [types[value] for value in values.s] for name, values in op.user_conf.input.items()}
        attributes = {name: value.at_string for name, value in op.user_conf.attr.items() if value.HasField("at_string")}
        found.append((op.user_conf.op_type_name, taken, attributes))
print(json.dumps(found))
