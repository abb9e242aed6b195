"""Reproduce OneFlow's published training benchmarks and say which figures hold."""
