"""Events of a rank, as its metrics have them."""


def row(iteration, loss=1.0, time=None, latency_ms=1.0, **more):
    """The event of a printed row; without `time` it was printed at its number in seconds."""
    figures = {"time": float(iteration) if time is None else time, "throughput": 8.0, "latency_ms": latency_ms}
    return {"event": "iteration", "iteration": iteration, "loss": loss, **figures, **more}
