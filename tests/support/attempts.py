"""Records of attempts in tests, from what a line of `attempts.jsonl` says."""

from repro.runs.attempts import AttemptRecord

ALWAYS = {
    "unit": "a",
    "repeat": 1,
    "started": 1.79e9,
    "folder": "units/a/repeat-1.attempt-1",
    "status": "ok",
    "wall_s": 1.0,
}


def recorded(content, **more):
    """The record with this content, and with what every record has."""
    return AttemptRecord.from_json({**ALWAYS, **content, **more})
