"""The task that checks nodes before a run."""
