"""Classifies GPU kernels by name, for OneFlow and PyTorch alike."""

import re

from repro.utils.i18n import N_

OTHER = "other"
CLASSES = (
    ("communication", N_("Communication (NCCL)"), r"nccl"),
    ("attention", N_("Attention (fused)"), r"fmha|flash|sdpa|[aA]ttention"),
    (
        "convolution",
        N_("Convolutions"),
        r"convolve|conv2d|_conv(?!ert)|conv_|fprop|dgrad|wgrad|winograd|fft[12]d|implicit_gemm|batch_gemm_kernel1x1|"
        r"gemm_cf32|scalePackedTensor|flip_filter",
    ),
    ("matrix", N_("Matrix products"), r"gemm|gemv|[mM]at[mM]ul|nvjet|splitK|cublas|cutlass"),
    (
        "optimizer",
        N_("Optimizer, gradient norm"),
        r"(Adam|Momentum|SGD|Lamb)\w*Update|multi_tensor_apply|FusedOptimizer|FusedCastScale|NotFinite|non_finite|"
        r"LossScale|Square<|SquareSum|LpNorm|unscale",
    ),
    (
        "embedding",
        N_("Embedding, gathers"),
        r"[eE]mbedding|[gG]ather|[sS]catter|index_?[sS]elect|index_put|indexing_backward|SegmentSum",
    ),
    (
        "softmax",
        N_("Softmax, dropout, masks, loss"),
        r"[sS]oft_?[mM]ax|[dD]ropout|GenerateGpu\(curand|MaskAndScale|masked_|[tT]ril|nll_loss|[cC]ross_?[eE]ntropy|ComputeDiff",
    ),
    (
        "norm",
        N_("Normalisation"),
        r"[lL]ayer_?[nN]orm|GammaBeta|[bB]atch_?[nN]orm|bn_(fw|bw)|RowwiseMoments|ComputeInternalGradients",
    ),
    (
        "copy",
        N_("Copies, casts, permutes, fills"),
        r"Memcpy|Memset|CopyNd|copy_kernel|CatArray|Permute|[tT]ranspose|CastFunctor|FillFunctor|Fill\w*Gpu|"
        r"nchwToNhwc|nhwcToNchw|convertTensor|Slice|Concat|TileKernel",
    ),
    (
        "elementwise",
        N_("Activation, bias, other elementwise"),
        r"[eE]lementwise|BiasAdd|Gelu|Relu|Tanh|activation_|op_tensor|[rR]educe|\bAdd",
    ),
    (OTHER, N_("Other"), r""),
)
"""Name, title and pattern of each class; a kernel is in the first whose pattern its name holds, after those of FUSED.

Complex matrix products (cf32) are part of cuDNN's convolutions by Fourier transform. Sums over rows or columns, which
are mostly gradients of biases, count as elementwise. What PyTorch fuses into a matrix product, such as a bias,
cannot be separated from it, and neither can a sum that OneFlow computes as a product with ones.
"""
MOVES = ("to_copy", "copy", "clone", "cat", "transpose", "permute", "unsafe_view", "view", "slice", "split", "t")
FUSED = (
    ("convolution", r"^triton_tem_\w*convolution"),
    ("matrix", r"^triton_tem_"),
    ("norm", r"^triton_\w*(layer|batch)_norm"),
    ("softmax", r"^triton_\w*(softmax|dropout|exp_sub_sum)"),
    ("copy", rf"^triton_poi_fused_({'|'.join(MOVES)}|_)+\d*$"),
    ("elementwise", r"^triton_"),
)
"""Class and pattern of the kernels that torch.compile fuses; they are tried first.

Their names list every operator that a part was taken from, such as the convolution whose bias is added. Only templates
(tem) compute products. Any other kernel with a normalisation counts as one, with the activation that is fused into it,
as cuDNN's kernels of that kind do.
"""
TITLES = {name: title for name, title, _pattern in CLASSES}
PATTERNS = [(name, re.compile(pattern)) for name, *_title, pattern in (*FUSED, *CLASSES)]
NOISE = re.compile(r"^void |\(anonymous namespace\)::|\bat::native::|\bstd::")
SHOWN = 90


def class_of(kernel: str) -> str:
    """The name of the class that a kernel's demangled name puts it in."""
    return next(name for name, pattern in PATTERNS if pattern.search(kernel))


def short_name(kernel: str) -> str:
    """A kernel's name without what says nothing, in at most SHOWN characters."""
    name = NOISE.sub("", kernel)
    return name if len(name) <= SHOWN else name[: SHOWN - 1] + "…"
