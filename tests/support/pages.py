"""Reads rendered pages: tables of Markdown, cells of sections, links and anchors."""

import re


def table(text: str, title: str, index: int = 0) -> list[dict]:
    """A table below a heading of a Markdown page, or in a folded section, a dictionary per row; without an index the first."""
    head = next(each for each in (f"## {title}\n", f"<summary>{title}</summary>\n") if each in text)
    section = re.split("\n## |\n</details>", text.split(head)[1])[0]
    tables = [block for block in section.split("\n\n") if block.lstrip("\n").startswith("|")]
    head, _, *rows = [line.strip("|").split("|") for line in tables[index].strip("\n").splitlines()]
    return [dict(zip(map(str.strip, head), map(str.strip, row), strict=True)) for row in rows]


def cells(section) -> list[list[str]]:
    """The texts of all tables of a section."""
    return [[cell.text for cell in row] for block in section.blocks if block.kind == "table" for row in block.rows]


def links(text: str) -> list[str]:
    """The targets of all links and figures of a Markdown page that do not lead to another site."""
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]


def anchors(text: str) -> set[str]:
    """What links within a Markdown page can lead to: its anchors, and its headings by GitHub's rule."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    of_headings = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return set(re.findall(r'<a id="([^"]+)"></a>', text)) | of_headings
