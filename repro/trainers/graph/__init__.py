"""The compiled job: nn.Graph, optimizer, schedule, and the changes that the published programs need (`changes.py`)."""
