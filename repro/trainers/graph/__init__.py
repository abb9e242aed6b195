"""The compiled job: nn.Graph, optimizer, schedule, recomputation, and what rewrites the job."""
