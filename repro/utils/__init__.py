"""What every package may use: paths, messages in two languages, errors, signals, locks, statistics.

Imports nothing of the project.
"""
