"""Batches: synthetic ones made on the device, and readers of the published file formats."""
