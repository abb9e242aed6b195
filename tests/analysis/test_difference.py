"""How a contradiction between two witnesses is said."""

from repro.analysis.difference import Difference


def test_a_difference_is_said_in_a_line_that_is_not_too_long():
    found = Difference("x", "losses", (("the record", [0.5] * 60), ("a log", "y" * 120)))
    one, other = str(found).split(" in the record, ")
    assert one.startswith("x: losses: [0.5, 0.5") and one.endswith("...") and len(one) == len("x: losses: ") + 120
    assert other == "y" * 120 + " in a log"


def test_a_long_value_is_cut_to_120_characters():
    shown = str(Difference("x", "y", (("a", "z" * 121), ("b", "z" * 120))))
    assert shown == f"x: y: {'z' * 117}... in a, {'z' * 120} in b"
