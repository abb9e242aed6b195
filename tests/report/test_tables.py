"""Tables by their columns: those that say nothing are not there."""

from repro.report.document import Cell
from repro.report.tables import Field, decimals, table

FIELDS = (
    Field("Name", lambda row: row["name"]),
    Field("Measured", lambda row: row["measured"], decimals(1)),
    Field("Expected", lambda row: row.get("expected"), decimals(1)),
    Field("Goal", lambda row: Cell("–", note=row.get("status", ""))),
)


def titles(*rows):
    return [column.title for column in table("t", rows, FIELDS).columns]


def test_a_column_of_dashes_is_left_out():
    rows = ({"name": "a", "measured": 1.0}, {"name": "–", "measured": None})
    assert titles(*rows) == ["Name", "Measured"]
    assert [len(row) for row in table("t", rows, FIELDS).rows] == [2, 2]


def test_a_column_that_says_something_of_one_row_stays():
    assert titles({"name": "a", "measured": 1.0}, {"name": "b", "measured": 2.0, "expected": 3.0})[-1] == "Expected"
    assert titles({"name": "a", "measured": None, "status": "older code"}) == ["Name", "Goal"]


def test_the_first_column_stays_and_so_do_all_of_a_table_without_rows():
    assert titles({"name": "–", "measured": None}) == ["Name"]
    assert titles() == ["Name", "Measured", "Expected", "Goal"]
