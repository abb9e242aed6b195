"""OFRecord files of images and of BERT features, read within the graph so that decoding overlaps with training."""

from __future__ import annotations

import oneflow as flow
from oneflow import nn

from repro.trainers.config import Config
from repro.trainers.layout import Layout, split

RGB_MEAN = (123.68, 116.779, 103.939)
RGB_STD = (58.393, 57.12, 57.375)
"""Statistics of ImageNet's pixels, from the published trainer."""
SHUFFLE_BUFFER = 1024


class Reader(nn.Module):
    """Records of part files, decoded on the CPU, moved to the model's devices.

    OneFlow deals the parts over all ranks, whatever the signature says. So tensor parallel ranks read different
    records too, and `moved` gives each of them what its neighbours have read.
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.place = {"placement": layout.placement(0, "cpu"), "sbp": layout.spread(split(0), split(0))}
        self.batch = config.micro_batch * config.layout.data
        self.records = nn.OFRecordReader(
            config.data.path,
            batch_size=self.batch,
            data_part_num=config.data.parts,
            part_name_suffix_length=5,
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
            tensors = [tensor.to_global(sbp=self.layout.rows()) for tensor in tensors]
        return tuple(tensors)


class ImageReader(Reader):
    """Photographs cropped and flipped at random, as (b, 3, size, size) of normalised values, with labels (b,)."""

    def __init__(self, config: Config, layout: Layout) -> None:
        super().__init__(config, layout)
        size = config.shape.image_size
        self.label = nn.OFRecordRawDecoder("class/label", shape=(), dtype=flow.int32)
        self.decode = nn.OFRecordImageDecoderRandomCrop("encoded", color_space="RGB", random_seed=config.seed)
        self.resize = nn.image.Resize(target_size=[size, size])
        self.flip = nn.CoinFlip(batch_size=self.batch, random_seed=config.seed, **self.place)
        self.normalise = nn.CropMirrorNormalize(
            color_space="RGB", mean=list(RGB_MEAN), std=list(RGB_STD), output_dtype=flow.float32
        )

    def forward(self):
        records = self.records()
        images = self.resize(self.decode(records))[0]
        return self.moved(self.normalise(images, self.flip()), self.label(records))


class FeatureReader(Reader):
    """The seven inputs of BERT, from records with the features that Google's BERT writes."""

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


def build_reader(config: Config, layout: Layout) -> Reader | None:
    """Reader for the graph, or None where batches are fed."""
    if config.data.kind != "ofrecord":
        return None
    return ImageReader(config, layout) if config.model == "resnet50" else FeatureReader(config, layout)
