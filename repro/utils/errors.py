"""What all parsers of tools' outputs share: how they say that a text is of no form they know."""


class FormatError(Exception):
    """A tool's output that cannot be read; the message shows how it begins."""

    def __init__(self, tool: str, text: str):
        beginning = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
        super().__init__(f"{tool}: it prints no form that is known here; it begins: {beginning[:120]}")
