"""Pinned artefacts: pins, wheels, library stacks, images, bills of materials, the offline kit.

Everything is named by hash or digest here. Imports `utils`. Start reading at `pins.py`.
"""
