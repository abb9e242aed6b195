"""Samples of Megatron token files, read by OneFlow's own reader."""

from __future__ import annotations

import oneflow as flow
from oneflow import nn

from repro.trainers.config import Config
from repro.trainers.data.megatron import check_tokens
from repro.trainers.layout import Layout

SPLIT = (949, 50, 1)
"""Shares of the documents for training, validation and test, as published; the first is read."""


class TokenReader(nn.Module):
    """Ids for the first stage and labels for the last, both (b, seq_length), from samples shuffled with the seed.

    Samples of seq_length + 1 tokens are read on the CPUs of the first stage and moved whole to each stage that uses
    them, as published. OneFlow 0.8.0 distributes the samples over all ranks, and only the first stage reads: pipeline
    layouts skip the other stages' samples and so train on different samples than layouts without pipeline parallelism.
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        super().__init__()
        check_tokens(config.data.path, config.shape.seq_length, config.shape.vocab_size)
        self.layout = layout
        self.length = config.shape.seq_length
        self.samples = nn.GPTIndexedBinDataReader(
            config.data.path,
            seq_length=self.length,
            num_samples=config.iterations * config.global_batch,
            batch_size=config.micro_batch * config.layout.data,
            dtype=flow.int64,
            shuffle=True,
            random_seed=config.seed,
            split_sizes=list(SPLIT),
            split_index=0,
            placement=layout.placement(0, "cpu"),
            sbp=layout.batch_signature(),
        )

    def forward(self):
        samples = self.samples()
        first = self.moved(samples, 0)
        last = self.moved(samples, self.layout.last_stage) if self.layout.last_stage else first
        return first[:, : self.length], last[:, 1:]

    def moved(self, samples, stage: int):
        return samples.to_global(placement=self.layout.placement(stage), sbp=self.layout.batch_signature())
