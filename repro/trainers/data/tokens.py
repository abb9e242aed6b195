"""Samples of Megatron token files, read by OneFlow's own reader."""

from __future__ import annotations

import json

import oneflow as flow
from oneflow import nn

from repro.models.token_files import SPLIT, read_index
from repro.trainers.config import Config
from repro.trainers.data.megatron import check_tokens
from repro.trainers.layout import Layout


class TokenReader(nn.Module):
    """Ids for the first stage and labels for the last, both (b, seq_length), from samples shuffled with the seed.

    Samples of seq_length + 1 tokens are read on the CPUs of the first stage, split over the data axis and the same
    along the tensor axis, and moved whole to each stage that uses them, as published (OneFlow-Benchmark@8da0250,
    LanguageModeling/GPT/oneflow_gpt/data.py). So every layout trains on the same samples.
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        super().__init__()
        samples = config.iterations * config.global_batch
        check_tokens(config.data.path, config.shape.vocab_size)
        read_index(config.data.path).check(config.shape.seq_length, samples)
        self.layout = layout
        self.length = config.shape.seq_length
        self.samples = nn.GPTIndexedBinDataReader(
            config.data.path,
            seq_length=self.length,
            num_samples=samples,
            batch_size=config.micro_batch * config.layout.data,
            dtype=flow.int64,
            shuffle=True,
            random_seed=config.seed,
            split_sizes=list(SPLIT),
            split_index=0,
            placement=layout.placement(0, "cpu"),
            sbp=layout.batch_signature(),
        )
        self.samples.op_ = reading_by(layout.batch_signature())

    def forward(self):
        samples = self.samples()
        first = self.moved(samples, 0)
        last = self.moved(samples, self.layout.last_stage) if self.layout.last_stage else first
        return first[:, : self.length], last[:, 1:]

    def moved(self, samples, stage: int):
        return samples.to_global(placement=self.layout.placement(stage), sbp=self.layout.batch_signature())


def reading_by(signature: list):
    """The reader's operator with its signature as an attribute, by which its kernel takes its share of the samples.

    The call for global tensors of oneflow 0.8.0 leaves the attribute empty (api/python/functional/
    dispatch_stateful_ops.cpp); the kernel then deals the samples to all ranks of the run, of whatever stage or axis.
    """
    kind = "megatron_gpt_mmap_data_loader"
    values = " ".join(f"val: {json.dumps(sbp._ToAttrStr())}" for sbp in signature)
    builder = flow._oneflow_internal.one.OpBuilder(kind, flow.framework.id_util.UniqueStr(kind))
    return builder.output("out", 1).attr("nd_sbp", f"at_list_string {{ {values} }}").build()
