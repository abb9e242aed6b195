"""The residual blocks of ResNet50 in order, for any framework."""

from __future__ import annotations

BLOCKS = (3, 4, 6, 3)
EXPANSION = 4


def bottlenecks(width: int) -> list:
    """Name, input channels, width and stride of each block; every stage except the first halves the image size."""
    blocks, inputs = [], width
    for stage, count in enumerate(BLOCKS):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            blocks.append((f"stage{stage}.block{index}", inputs, width << stage, stride))
            inputs = (width << stage) * EXPANSION
    return blocks
