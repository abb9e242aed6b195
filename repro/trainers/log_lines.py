"""The log lines that rank 0 prints, in the format of the case's report (generations A to E)."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field

from repro.trainers.config import Config

TABLE = (("step", 8), ("micro_batches", 15), ("samples", 15), ("throughput", 10), ("latency", 10), ("loss", 10))
ARGUMENT_WIDTH = 48


@dataclass(frozen=True)
class Row:
    """Figures of one log row, which covers the iterations since the previous row."""

    iteration: int
    samples: int
    throughput: float
    latency_ms: float
    time: float
    values: dict = field(default_factory=dict)
    """What the row prints by name: losses, and for ResNet50 top_1 and top_5."""


class LogLines:
    """Formats log lines of one generation.

    Parameters
    ----------
    nodes : number of nodes; all have the same number of devices.
    """

    def __init__(self, config: Config, nodes: int) -> None:
        self.config = config
        self.nodes = nodes
        self.devices_per_node = config.layout.world_size // nodes
        self.first_row = True
        self.carried = 0.0

    def losses(self, last: dict, means: dict) -> dict:
        """The losses that a row prints as its published program did, by name; called once per row, in order.

        The mean over the samples of the row (C), the same divided by the global batch a second time (D), or the mean
        over the row's micro-batches of a sum that starts at the value of the row before (E). ResNet50 printed the loss
        of the last iteration. Sources: OneFlow-Benchmark@8a78044:LanguageModeling/BERT/util.py#L142-L158,
        @bf832be:LanguageModeling/gpt-2/src/util.py#L152-L167,
        @8da0250:LanguageModeling/GPT/oneflow_gpt/util.py#L150-L175, @892f87e6:Classification/cnns/util.py#L157-L160.

        Parameters
        ----------
        last, means : losses of the row's last iteration, and means over its iterations; empty on ranks without losses.
        """
        if not means or self.config.log_generation in ("A", "B"):
            return last
        if self.config.log_generation == "C":
            return means
        if self.config.log_generation == "D":
            return {name: mean / self.config.global_batch for name, mean in means.items()}
        self.carried = means["loss"] + self.carried / (self.config.log_interval * self.config.accumulation_steps)
        return {"loss": self.carried}

    def opening(self) -> list:
        if self.config.log_generation == "A":
            return []
        if self.config.log_generation == "E":
            return argument_dump(self.config, self.nodes, self.devices_per_node)
        per_device = self.config.micro_batch * self.config.accumulation_steps
        return [
            f"batch_size_per_device = {per_device}",
            f"gpu_num_per_node = {self.devices_per_node}",
            f"num_nodes = {self.nodes}",
        ]

    def row(self, row: Row) -> list:
        lines = getattr(self, f"row_{self.config.log_generation.lower()}")(row)
        self.first_row = False
        return lines

    def row_a(self, row: Row) -> list:
        values = row.values
        return [
            f"train: epoch 0, iter {row.iteration}, loss: {values['loss']:.6f}, top_1: {values['top_1']:.6f}, "
            f"top_k: {values['top_5']:.6f}, samples/s: {row.throughput:.3f}"
        ]

    def row_b(self, row: Row) -> list:
        return [f"{line} {row.time}" for line in self.row_a(row)]

    def row_c(self, row: Row) -> list:
        values = row.values
        return [
            f"step: {row.iteration - 1}, total_loss: {values['loss']:.3f}, mlm_loss: {values['mlm_loss']:.3f}, "
            f"nsp_loss: {values['nsp_loss']:.3f}, throughput: {row.throughput:.3f} {row.time}"
        ]

    def row_d(self, row: Row) -> list:
        loss = row.values["loss"]
        return [f"step: {row.iteration}, loss: {loss:.3f}, throughput: {row.throughput:.3f} {row.time}"]

    def row_e(self, row: Row) -> list:
        micro_batches = row.iteration * self.config.accumulation_steps
        figures = (
            f"{row.iteration:<8d}",
            f"{micro_batches:<15d}",
            f"{row.samples:<15d}",
            f"{row.throughput:<10.5f}",
            f"{row.latency_ms / 1000:<10.5f}",
            f"{row.values['loss']:<10.5f}",
        )
        return [*(device_lines(self.devices_per_node) + table_head() if self.first_row else []), table_line(figures)]


def table_head() -> list:
    return [
        table_line(name.ljust(width) for name, width in TABLE),
        table_line("-" * width for _, width in TABLE),
    ]


def table_line(cells) -> str:
    return "".join(f"| {cell} " for cell in cells) + "|"


def device_lines(count: int) -> list:
    """Utilisation and memory of the run's `count` GPUs on this node, as printed by nvidia-smi.

    Empty if nvidia-smi is not installed. Other GPUs are left out because the run does not use their memory.
    """
    if shutil.which("nvidia-smi") is None:
        return []
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    used = (visible or [str(index) for index in range(count)])[:count]
    command = ["nvidia-smi", f"--id={','.join(used)}", "--query-gpu=utilization.gpu,memory.used", "--format=csv"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return answer.stdout.splitlines() if answer.returncode == 0 else []


def argument_dump(config: Config, nodes: int, devices_per_node: int) -> list:
    """The settings with the names and dotted lines of the published GPT program."""
    added = config.padded_vocab_size - config.shape.vocab_size
    lines = []
    if added:
        size = f"(size: {config.shape.vocab_size})"
        lines.append(f" > padded vocab {size} with {added} dummy tokens (new size: {config.padded_vocab_size})")
    lines.append("------------------------ arguments ------------------------")
    for name, value in sorted(arguments(config, nodes, devices_per_node).items()):
        lines.append(f"  {name} {'.' * (ARGUMENT_WIDTH - len(name))} {value}")
    return [*lines, "-------------------- end of arguments ---------------------", "Training..."]


def arguments(config: Config, nodes: int, devices_per_node: int) -> dict:
    shape, optimizer, schedule = config.shape, config.optimizer, config.schedule
    return {
        "adam_beta1": optimizer.betas[0],
        "adam_beta2": optimizer.betas[1],
        "adam_eps": optimizer.eps,
        "attention_dropout": config.dropout,
        "checkpoint_activations": config.activation_checkpointing,
        "clip_grad": optimizer.clip_norm,
        "data_parallel_size": config.layout.data,
        "dataset": config.data.path or None,
        "fp16": config.precision == "amp",
        "global_batch_size": config.global_batch,
        "hidden_dropout": config.dropout,
        "hidden_size": shape.hidden_size,
        "log_interval": config.log_interval,
        "lr": optimizer.lr,
        "lr_decay_iters": schedule.decay_iterations or None,
        "lr_decay_style": schedule.kind,
        "lr_warmup_iters": schedule.warmup_iterations,
        "micro_batch_size": config.micro_batch,
        "min_lr": schedule.min_lr,
        "num_accumulation_steps": config.accumulation_steps,
        "num_attention_heads": shape.attention_heads,
        "num_gpus_per_node": devices_per_node,
        "num_layers": shape.layers,
        "num_nodes": nodes,
        "optimizer": optimizer.name,
        "optimizer_sharding": config.optimizer_sharding,
        "padded_vocab_size": config.padded_vocab_size,
        "pipeline_model_parallel_size": config.layout.pipeline,
        "seed": config.seed,
        "seq_length": shape.seq_length,
        "tensor_model_parallel_size": config.layout.tensor,
        "train_iters": config.iterations,
        "train_samples": config.iterations * config.global_batch,
        "vocab_size": shape.vocab_size,
        "weight_decay": optimizer.weight_decay,
    }
