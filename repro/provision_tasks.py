"""The tasks that set nodes up and take that back."""
