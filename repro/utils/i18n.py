"""Message catalogues: English is the language of the messages themselves, Chinese comes from `locale/zh`."""

import contextlib
import gettext
import io
from collections.abc import Callable
from pathlib import Path

from repro.utils.paths import PACKAGE

FOLDER = PACKAGE / "locale"
LANGUAGES = ("zh", "en")
Translate = Callable[[str], str]
"""What looks a message up: a catalogue's `gettext`, conventionally called `_`."""


def N_(message: str) -> str:
    """Mark a message for translation where it is written; it is looked up where it is shown."""
    return message


def catalogue(language: str) -> gettext.NullTranslations:
    """The translations of one language, compiled again where a .po file is newer than its .mo file."""
    translations = gettext.NullTranslations()
    for source in sorted((FOLDER / language / "LC_MESSAGES").glob("*.po")):
        found = _load(source)
        found.add_fallback(translations)
        translations = found
    return translations


def _load(source: Path) -> gettext.GNUTranslations:
    compiled = source.with_suffix(".mo")
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        return _compile(source, compiled)
    with open(compiled, "rb") as file:
        return gettext.GNUTranslations(file)


def _compile(source: Path, compiled: Path) -> gettext.GNUTranslations:
    import polib

    binary = polib.pofile(str(source), encoding="utf-8").to_binary()
    with contextlib.suppress(OSError):  # a read-only checkout compiles each time
        compiled.write_bytes(binary)
    return gettext.GNUTranslations(io.BytesIO(binary))
