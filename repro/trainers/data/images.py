"""JPEG images in OFRecord parts: decoded, cropped and resized on the CPU, normalised on the model's device."""

from __future__ import annotations

import oneflow as flow
from oneflow import nn

from repro.trainers.config import Config
from repro.trainers.data.readers import Reader
from repro.trainers.layout import Layout

RGB_MEAN = (123.68, 116.779, 103.939)
RGB_STD = (58.393, 57.12, 57.375)
"""Statistics of ImageNet's pixels, from the published trainer."""
INTERPOLATION = "bilinear"
"""The published resize's "Linear" (oneflow@17a2bdc9:oneflow/python/ops/user_data_ops.py#L155-L158). 0.8.0's default
averages areas when it shrinks an image, which is faster and gives other pixels."""


class ImageReader(Reader):
    """Randomly cropped and flipped images (b, 3, size, size), normalised, with labels (b,).

    As published, the device receives bytes (b, size, size, 3) and one flip flag per image, a quarter of the size of the
    normalised values.
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        super().__init__(config, layout)
        size = config.shape.image_size
        self.label = nn.OFRecordRawDecoder("class/label", shape=(), dtype=flow.int32)
        self.decode = nn.OFRecordImageDecoderRandomCrop("encoded", color_space="RGB", random_seed=config.seed)
        self.resize = nn.image.Resize(target_size=[size, size], interpolation_type=INTERPOLATION)
        self.flip = nn.CoinFlip(batch_size=self.batch, random_seed=config.seed, **self.place)
        self.normalise = nn.CropMirrorNormalize(
            color_space="RGB", mean=list(RGB_MEAN), std=list(RGB_STD), output_dtype=flow.float32
        )

    def forward(self):
        records = self.records()
        label = self.label(records)
        images = self.resize(self.decode(records))[0]
        images, coins, label = self.moved(images, self.flip(), label)
        return self.normalise(images, coins), label
