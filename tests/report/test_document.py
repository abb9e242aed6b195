"""Documents as Markdown: folded sections, and what is in them."""

from repro.report.document import Cell, Column, Document, Section, Table, Text, markdown

TABLE = Table("t", (Column("A"), Column("B", numeric=True)), ((Cell("x"), Cell("1", 1.0)),), "Caption.")


def test_a_folded_section_can_be_linked_to_and_holds_its_table(tmp_path):
    sections = (
        Section("open", "Open", (Text("Before."),)),
        Section("more", "More of it", (Text("Inside."), TABLE), level=3, folded=True),
        Section("last", "Last", (Text("After."),)),
    )
    text = markdown(Document("en", "Title", "Lead.", sections), tmp_path)
    assert text.split("Before.\n")[1] == (
        '\n<a id="more"></a>\n<details>\n<summary>More of it</summary>\n\nInside.\n\nCaption.\n\n| A | B |\n|---|--:|\n'
        "| x | 1 |\n\n</details>\n\n## Last\n\nAfter.\n"
    )
