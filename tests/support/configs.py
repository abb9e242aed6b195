"""Units with another configuration."""

from dataclasses import replace

from repro.published.trainer_config import TrainerConfig
from repro.runs.unit import Unit


def configured(unit: Unit, **changes: object) -> Unit:
    """The unit with these values in its configuration, as a record has them; None takes one away."""
    return replace(unit, config=TrainerConfig.from_json({**unit.config.as_json(), **changes}))
