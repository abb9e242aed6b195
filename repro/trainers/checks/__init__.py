"""Operators and collectives computed twice, on the GPU and plainly, and compared."""
