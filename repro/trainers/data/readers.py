"""Readers of files within the graph, which overlap with training, and the base class of the OFRecord readers."""

from __future__ import annotations

from oneflow import nn

from repro.models.registry import module_of
from repro.trainers.config import Config
from repro.trainers.data.ofrecord import part_digits
from repro.trainers.layout import Layout, split

SHUFFLE_BUFFER = 1024


class Reader(nn.Module):
    """Records of part files, decoded on the CPU and moved to the model's devices.

    OneFlow distributes the parts over all ranks, regardless of the signature. Tensor parallel ranks therefore read
    different records, and `moved` exchanges these between them. Subclasses decode their model's records. A part starts
    again at its end, in another order.
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.place = {"placement": layout.placement(0, "cpu"), "sbp": layout.sbp_signature(split(0), split(0))}
        self.batch = config.micro_batch * config.layout.data
        self.records = nn.OFRecordReader(
            config.data.path,
            batch_size=self.batch,
            data_part_num=config.data.parts,
            part_name_suffix_length=part_digits(config.data.path) or -1,
            random_shuffle=True,
            shuffle_buffer_size=SHUFFLE_BUFFER,
            shuffle_after_epoch=True,
            random_seed=config.seed,
            **self.place,
        )

    def moved(self, *tensors) -> tuple:
        if self.layout.device == "cuda":
            tensors = [tensor.to_global(placement=self.layout.placement(0)) for tensor in tensors]
        if self.layout.tensor > 1:
            tensors = [tensor.to_global(sbp=self.layout.batch_signature()) for tensor in tensors]
        return tuple(tensors)


def build_reader(config: Config, layout: Layout) -> nn.Module | None:
    """The model's reader for the configured kind of data, or None if batches are fed."""
    readers = getattr(module_of("repro.trainers.models", config.model), "READERS", {})
    return readers[config.data.kind](config, layout) if config.data.kind in readers else None
