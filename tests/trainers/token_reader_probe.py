"""Reads a number of samples from token files with OneFlow's own reader, and prints how many it gave.

Arguments: prefix, length of a sample, number of samples.
"""

import sys

import oneflow as flow

prefix, length, samples = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
reader = flow.nn.GPTIndexedBinDataReader(
    prefix,
    seq_length=length,
    num_samples=samples,
    batch_size=1,
    dtype=flow.int64,
    random_seed=1,
    split_sizes=[949, 50, 1],
    split_index=0,
)
print(sum(reader().numpy().shape == (1, length + 1) for _ in range(samples)))
