"""The ResNet50 v1.5 baseline: bottleneck blocks that stride on their 3x3 convolution, label-smoothed loss."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from repro.baselines.config import BaselineConfig
from repro.baselines.parameters import Parameters
from repro.trainers.models.resnet_blocks import EXPANSION, bottlenecks


class Projection(nn.Module):
    """Convolution and normalisation that bring a shortcut to its block's shape."""

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.convolution = make.convolution(name, inputs, outputs, 1, stride)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.norm(self.convolution(x))


class Bottleneck(nn.Module):
    """Three convolutions and a shortcut; the last scale starts at 0, so that the block starts as its shortcut."""

    def __init__(self, make: Parameters, name: str, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.reduce = make.convolution(f"{name}.reduce", inputs, width, 1)
        self.norm1 = nn.BatchNorm2d(width)
        self.spatial = make.convolution(f"{name}.spatial", width, width, 3, stride)
        self.norm2 = nn.BatchNorm2d(width)
        self.expand = make.convolution(f"{name}.expand", width, outputs, 1)
        self.norm3 = nn.BatchNorm2d(outputs)
        nn.init.zeros_(self.norm3.weight)
        self.shortcut = nn.Identity()
        if inputs != outputs:
            self.shortcut = Projection(make, f"{name}.shortcut", inputs, outputs, stride)

    def forward(self, x):
        y = F.relu(self.norm1(self.reduce(x)), inplace=True)
        y = F.relu(self.norm2(self.spatial(y)), inplace=True)
        return F.relu(self.norm3(self.expand(y)) + self.shortcut(x), inplace=True)


class ResNet50(nn.Module):
    """Loss and class probabilities of a batch of images (b, 3, size, size) with labels (b,), which are handed through."""

    def __init__(self, config: BaselineConfig, make: Parameters) -> None:
        super().__init__()
        width, classes = config.shape.width, config.shape.classes
        self.stem = make.convolution("stem", 3, width, 7, 2)
        self.norm = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(*(Bottleneck(make, *sizes) for sizes in bottlenecks(width)))
        features = width * 8 * EXPANSION
        self.classifier = make.linear("classifier", features, classes, (2.0 / features) ** 0.5)
        self.smoothing = config.label_smoothing

    def forward(self, images, labels):
        x = self.pool(F.relu(self.norm(self.stem(images)), inplace=True))
        logits = self.classifier(self.blocks(x).mean(dim=(2, 3)))
        loss = F.cross_entropy(logits, labels, label_smoothing=self.smoothing)
        return {"loss": loss, "scores": F.softmax(logits, dim=1), "labels": labels}


MODEL = ResNet50
