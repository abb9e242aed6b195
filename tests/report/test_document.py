"""What a document is as Markdown: text of others stays text, and folded sections can be opened and linked to."""

import pytest
from markdown_it import MarkdownIt

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


LINKS = (
    "[safe](https://x.invalid)",
    "[![safe](a)](https://x.invalid)",
    "[a [b] c](javascript:x)",
    "[safe][there]\n\n[there]: https://x.invalid",
    "[there]: https://x.invalid\n\n[there]",
    "<https://x.invalid>",
    "a\n\n# Reproduced\n\n[safe](https://x.invalid)",
    "`a` [safe](https://x.invalid) `",
)


@pytest.mark.parametrize("text", LINKS)
def test_no_text_of_a_run_is_a_link_or_a_heading(tmp_path, text):
    """As a reader of Markdown sees it."""
    blocks = (Text(text), Items((text,)), Table("t", (Column(text),), ((Cell(text, note=text),),)))
    document = Document("en", text, text, (Section("s", text, blocks),), links=False)
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown(document, tmp_path))
    kinds = [inner.type for token in tokens for inner in (token, *(token.children or ()))]
    assert not {"link_open", "image", "html_block", "html_inline"} & set(kinds)
    assert kinds.count("heading_open") == 2, "the title and the section's"


TABLE = Table("t", (Column("A"), Column("B", numeric=True)), ((Cell("x"), Cell("1", 1.0)),), "Caption.")


def test_a_folded_section_can_be_linked_to_and_holds_its_table(tmp_path):
    sections = (
        Section("open", "Open", (Text("Before."),)),
        Section("more", "More of it", (Text("Inside."), TABLE), level=3, folded=True),
        Section("last", "Last", (Text("After."),)),
    )
    text = markdown(Document("en", "Title", "Lead.", sections), tmp_path)
    assert text.split("Before.\n")[1] == (
        '\n<details>\n<summary>More of it</summary>\n<a id="more"></a>\n\nInside.\n\nCaption.\n\n| A | B |\n|---|--:|\n'
        "| x | 1 |\n\n</details>\n\n## Last\n\nAfter.\n"
    )
