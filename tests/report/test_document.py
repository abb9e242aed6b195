"""What a document is as Markdown: text of others stays text, and folded sections can be opened and linked to."""

import pytest

from repro.report.document import Cell, Code, Column, Document, Items, Section, Table, Text, fence, markdown, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("5 < 6, <= 7 and a `<b>` in code", "5 < 6, <= 7 and a `<b>` in code"),
        ("<script>x</script> <!-- y", "&lt;script>x&lt;/script> &lt;!-- y"),
        ("one ` alone", r"one \` alone"),
        ("``` a fence", r"\`\`\` a fence"),
        ("`a` and ``b``", r"`a` and \`\`b\`\`"),
        ("![x](http://elsewhere/pixel.png)", r"!\[x](http://elsewhere/pixel.png)"),
        ("[a link](runs/x.zip)", "[a link](runs/x.zip)"),
    ],
)
def test_a_paragraph_keeps_its_code_and_opens_nothing_else(text, shown):
    assert plain(text) == shown


@pytest.mark.parametrize("inside", ["", "```", "a ```` b", "~~~"])
def test_a_block_of_code_ends_where_it_should(inside):
    assert len(fence(inside)) >= 3
    assert fence(inside) not in inside or not inside


def test_whatever_a_log_says_stays_where_it_is(tmp_path):
    nasty = "``` <img src=x>\n# heading\n\x1b[31m| a | b |\x00"
    blocks = (
        Text(nasty),
        Items((nasty,)),
        Code(nasty),
        Table("t", (Column("a"),), ((Cell(nasty, note=nasty),),)),
    )
    text = markdown(Document("en", "t", nasty, (Section("s", nasty, blocks),)), tmp_path)
    code = text.split("````")[1]
    assert code.strip() == "``` <img src=x>\n# heading\n| a | b |\ufffd".strip()
    assert "<img" not in text.replace(code, "")
    assert "\x00" not in text and "\x1b" not in text


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
