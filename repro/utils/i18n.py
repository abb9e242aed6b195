"""Message catalogues: English is the language of the messages themselves, Chinese comes from `locale/zh`."""

import contextlib
import gettext
import io
from collections.abc import Callable
from functools import cache
from pathlib import Path

from repro.utils.paths import PACKAGE

FOLDER = PACKAGE / "locale"
LANGUAGES = ("zh", "en")
Translate = Callable[[str], str]
"""Looks a message up: a catalogue's `gettext`, conventionally named `_`."""


def N_(message: str) -> str:
    """Mark a message for translation at its definition; it is looked up when it is shown."""
    return message


class Counted(int):
    """A number with which its words agree: "{n:case|cases}" is "1 case" or "3 cases"; Chinese has "{n}" alone."""

    def __format__(self, words: str) -> str:
        one, bar, several = words.partition("|")
        return f"{int(self)} {one if self == 1 else several}" if bar else int(self).__format__(words)


class Message(str):
    """A sentence with values: the English text as a string, which can be looked up in a catalogue and kept as JSON.

    A value may be a `Message` itself, or a list, which is shown with the language's commas; a whole number is
    `Counted`. Values are filled in by `str.format`, so the message may have format specifications.
    """

    message: str
    values: dict[str, object]

    def __new__(cls, message: str, **values: object) -> "Message":
        made = super().__new__(cls, message.format(**{name: _shown(value, str) for name, value in values.items()}))
        made.message, made.values = message, values
        return made

    def text(self, translate: Translate = str) -> str:
        """The sentence in the language of `translate`, a catalogue's gettext."""
        return translate(self.message).format(**{name: _shown(value, translate) for name, value in self.values.items()})

    def as_json(self) -> dict:
        """Message and values, for a record that is shown in another language later."""
        return {"message": self.message, "values": {name: _kept(value) for name, value in self.values.items()}}

    @classmethod
    def from_json(cls, content: dict) -> "Message":
        """The message that `as_json` was called on, read from its two keys; others are ignored."""
        return cls(content["message"], **{name: _read(value) for name, value in content["values"].items()})


def _shown(value: object, translate: Translate) -> object:
    if isinstance(value, Message):
        return value.text(translate)
    if isinstance(value, list | tuple):
        return translate(", ").join(str(_shown(item, translate)) for item in value)
    return Counted(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _kept(value: object) -> object:
    if isinstance(value, Message):
        return value.as_json()
    return [_kept(item) for item in value] if isinstance(value, list | tuple) else value


def _read(value: object) -> object:
    if isinstance(value, dict):
        return Message.from_json(value)
    return [_read(item) for item in value] if isinstance(value, list) else value


@cache
def catalogue(language: str) -> gettext.NullTranslations:
    """The translations of one language, compiled again where a .po file is newer than its .mo file; read once."""
    translations = gettext.NullTranslations()
    for source in sorted((FOLDER / language / "LC_MESSAGES").glob("*.po")):
        loaded = _load(source)
        loaded.add_fallback(translations)
        translations = loaded
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
