"""Training logs for the tests: the published samples, and rows of each generation with the values that a test asks for."""

from tests.support.paths import LOGS

A, B = LOGS / "resnet50_1n1g_bs128_A.log", LOGS / "resnet50_2n8g_bs128_B.log"
C, C_UNSTAMPED = LOGS / "bert_1n1g_bs24_C.log", LOGS / "bert_1n1g_C_unstamped.log"
E = LOGS / "gpt_2D_PP_2x4x4_512_2304x24_E.log"
HEADER = "| step     | micro_batches   | samples         | throughput | latency    | loss       |"


def a_row(iteration, rate=385.0, loss=1.0, epoch=0, stamp=""):
    """A row of generation A."""
    return (
        f"train: epoch {epoch}, iter {iteration}, loss: {loss:.6f}, top_1: 0.000000, top_k: 0.000000, "
        f"samples/s: {rate:.3f}{stamp}"
    )


def d_row(step, rate=95.3, loss=10.1, stamp=" 1607400000.1"):
    """A row of generation D."""
    return f"step: {step}, loss: {loss}, throughput: {rate}{stamp}"


def e_row(step, rate=39.0, latency=13.0, loss=7.0):
    """A row of generation E."""
    return f"| {step:<8} | {step * 32:<15} | {step * 512:<15} | {rate:<10.5f} | {latency:<10.5f} | {loss:<10.5f} |"
