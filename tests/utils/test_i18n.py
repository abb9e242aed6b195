"""The message catalogues: nothing untranslated, nothing left over, and the same values in each sentence."""

import ast
import re
import string
import tomllib
from functools import cache

from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir
from babel.messages.pofile import read_po

from repro.utils.i18n import FOLDER, Counted, Message, catalogue
from tests.support.paths import ROOT

KEYWORDS = {**DEFAULT_KEYWORDS, "N_": None, "Failure": None, "Message": None, "translate": None}


@cache
def messages_of_the_code() -> set[str]:
    extracted = extract_from_dir(ROOT / "repro", [("**.py", "python")], keywords=KEYWORDS)
    return {message for _, _, message, _, _ in extracted if isinstance(message, str)} | messages_in_f_strings()


def messages_in_f_strings() -> set[str]:
    """The texts that are translated within an f-string, which Babel does not extract."""
    trees = (ast.parse(file.read_text()) for file in (ROOT / "repro").rglob("*.py"))
    f_strings = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.JoinedStr))
    calls = (node for f_string in f_strings for node in ast.walk(f_string) if isinstance(node, ast.Call))
    texts = (call.args[0] for call in calls if getattr(call.func, "id", "") in KEYWORDS and call.args)
    return {text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)}


def messages_of_the_data() -> set[str]:
    """Every text in the data: reports show some of them, and those have translations."""

    def texts(value):
        if isinstance(value, dict):
            return [text for key, each in value.items() for text in [key, *texts(each)]]
        if isinstance(value, list):
            return [text for each in value for text in texts(each)]
        return [value] if isinstance(value, str) else []

    files = (ROOT / "repro" / "data").rglob("*.toml")
    return {text for file in files for text in texts(tomllib.loads(file.read_text()))}


def translations() -> dict[str, str]:
    found = {}
    for file in sorted(FOLDER.glob("zh/LC_MESSAGES/*.po")):
        with open(file, "rb") as source:
            found |= {message.id: message.string for message in read_po(source) if message.id}
    return found


def fields(text: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)


def test_every_message_is_translated():
    assert sorted(messages_of_the_code() - {key for key, value in translations().items() if value}) == []


def test_no_translation_is_left_over():
    assert sorted(set(translations()) - messages_of_the_code() - messages_of_the_data()) == []


def test_both_sentences_hold_the_same_values():
    assert [key for key, value in translations().items() if fields(key) != fields(value)] == []


def test_chinese_typography():
    """A space between Chinese and Latin letters or digits, no half-width and no spaced punctuation after Chinese."""
    faulty = []
    for translation in translations().values():
        text = re.sub(r"`[^`]*`|\{[^}]*\}", "_", translation)
        if re.search(r"[一-鿿][A-Za-z0-9]|[A-Za-z0-9][一-鿿]|[一-鿿][,;:?!]|[一-鿿] [，。；：？！]", text):
            faulty.append(translation)
    assert faulty == []


def test_english_is_the_language_of_the_messages():
    assert catalogue("en").gettext("Results") == "Results"
    assert catalogue("zh").gettext("Results") == "结果"


def test_words_agree_with_their_number():
    """In a message, from a record as well, and with other formats left as they are."""
    message = Message("{n:unit is|units are} late by {by:.1f} s of {all}", n=1, by=2.0, all=True)
    assert message == "1 unit is late by 2.0 s of True"
    assert (
        Message.from_json({**message.as_json(), "values": {"n": 3, "by": 2.0, "all": 4}})
        == "3 units are late by 2.0 s of 4"
    )
    assert f"{Counted(1):case|cases}, {Counted(0):case|cases}, {Counted(7):03d}" == "1 case, 0 cases, 007"


AGREEING = re.compile(r"\{(\w+):[^{}|]*\|[^{}]*\}")
"""A field whose words agree with its number."""


def _strings(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def uncounted(source: str) -> list[str]:
    """Values of fields that agree with a number, given to a message without `Counted`, by line.

    A message that a call of `format` does not hold itself is one of its function's or of the module's constants.
    """
    tree = ast.parse(source)
    constants = [
        text for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef) for text in _strings(node)
    ]
    wrong = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Module)):
        nearby = constants if isinstance(function, ast.Module) else [*_strings(function), *constants]
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "format":
                agreeing = {field for text in _strings(call.func.value) or nearby for field in AGREEING.findall(text)}
                wrong |= {
                    f"{value.lineno}: {value.arg}"
                    for value in call.keywords
                    if value.arg in agreeing
                    and not (isinstance(value.value, ast.Call) and ast.unparse(value.value.func) == "Counted")
                }
    return sorted(wrong)


def test_numbers_that_words_agree_with_are_counted():
    wrong = {
        path.name: found for path in sorted((ROOT / "repro").rglob("*.py")) if (found := uncounted(path.read_text()))
    }
    assert not wrong
    assert uncounted('_("{n:case|cases} of {m}").format(n=len(cases), m=3)') == ["1: n"]
    assert uncounted('CASES = N_("{n:case|cases}")\n_(CASES).format(n=n)\n_("{n}").format(n=n)') == ["2: n"]


def test_a_status_means_the_same_in_both_languages():
    """“No verdict” says that nothing was judged, not that nothing can be compared."""
    _ = catalogue("zh").gettext
    assert _("no verdict") == "未判定" and "判定" in _("Why there is no verdict on speed:")
