"""The compiled job: nn.Graph, optimizer, schedule, and the few changes that the published programs need (`changes.py`)."""
