"""Reproduce OneFlow's published training benchmarks and say which figures hold.

Data flows one way through the packages, and each imports only those below it: `cli`, `report`, `preflight`, `launch`,
`analysis`, `perfmodel`, `planning`, `cluster`, `images`, `runs`, `published`, `models`, `utils`. `trainers` and `baselines` are
the programs that a run starts; they import `models` and nothing else. ARCHITECTURE.md has the picture.
"""
