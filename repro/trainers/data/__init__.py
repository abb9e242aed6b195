"""Batches: synthetic ones generated on the device, and readers of the published file formats."""
