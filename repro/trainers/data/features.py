"""Features of masked text in OFRecord parts, as Google's BERT writes them."""

from __future__ import annotations

import oneflow as flow
from oneflow import nn

from repro.trainers.config import Config
from repro.trainers.data.readers import Reader
from repro.trainers.layout import Layout


class FeatureReader(Reader):
    """The seven inputs of BERT, decoded on the CPU and moved to the model's device."""

    def __init__(self, config: Config, layout: Layout) -> None:
        super().__init__(config, layout)
        length, count = (config.shape.seq_length,), (config.shape.max_predictions,)
        features = (
            ("input_ids", length, flow.int32),
            ("input_mask", length, flow.int32),
            ("segment_ids", length, flow.int32),
            ("masked_lm_positions", count, flow.int32),
            ("masked_lm_ids", count, flow.int32),
            ("masked_lm_weights", count, flow.float32),
            ("next_sentence_labels", (), flow.int32),
        )
        decoders = [nn.OFRecordRawDecoder(name, shape=shape, dtype=dtype) for name, shape, dtype in features]
        self.decoders = nn.ModuleList(decoders)

    def forward(self):
        records = self.records()
        return self.moved(*(decoder(records) for decoder in self.decoders))
