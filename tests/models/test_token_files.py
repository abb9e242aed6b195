"""How many samples token files have: errors before anything starts, and where OneFlow's reader itself would abort."""

from array import array

import pytest

from repro.models.token_files import TokenFileError, TokenIndex, read_index
from repro.trainers.data.megatron import write_tokens
from tests.support.token_documents import documents


def index(*lengths: int) -> TokenIndex:
    return TokenIndex("text.idx", 8, array("i", lengths))


@pytest.mark.parametrize(("documents", "read"), [(1, 1), (10, 9), (11, 10), (100, 95), (1000, 949)])
def test_the_first_documents_are_read_for_training(documents, read):
    assert len(index(*[5] * documents).training_lengths()) == read


def test_one_sample_in_an_epoch_is_enough():
    index(9).check(8, 1)
    with pytest.raises(TokenFileError, match=r"8 tokens in 1 of 1 documents .*, fewer than one sample of 9"):
        index(8).check(8, 1)


def test_an_empty_document_is_named():
    with pytest.raises(TokenFileError, match="document 1 is empty"):
        index(20, 0, 20).check(8, 1)


@pytest.mark.parametrize("samples", [1, 2, 3, 5])
def test_documents_are_read_again(samples):
    index(17).check(8, samples)


def test_a_last_epoch_that_would_be_read_whole_is_refused():
    with pytest.raises(TokenFileError, match=r"2 samples an epoch; 4 samples would take epoch 2 whole"):
        index(17).check(8, 4)


def test_an_index_is_read_as_it_was_written(tmp_path):
    write_tokens(str(tmp_path / "text"), documents(3, 5, 2))
    read = read_index(str(tmp_path / "text"))
    assert list(read.lengths) == [3, 5, 2] and read.code == 8


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "is not a Megatron index file"),
        (lambda content: b"X" + content[1:], "is not a Megatron index file"),
        (lambda content: content[:9] + b"\x02" + content[10:], "version 2 with element type 8 cannot be read"),
        (lambda content: content[:17] + b"\x63" + content[18:], "version 1 with element type 99 cannot be read"),
        (lambda content: content[:-1], "is not as long as an index of 2 documents"),
    ],
    ids=["empty", "magic", "version", "type", "cut"],
)
def test_a_damaged_index_is_refused(tmp_path, damage, message):
    write_tokens(str(tmp_path / "text"), documents(3, 5))
    path = tmp_path / "text.idx"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TokenFileError, match=message):
        read_index(str(tmp_path / "text"))


def test_tokens_that_are_missing_are_counted(tmp_path):
    write_tokens(str(tmp_path / "text"), documents(3, 5))
    (tmp_path / "text.bin").write_bytes(bytes(14))
    with pytest.raises(TokenFileError, match=r"text.bin: has 14 bytes, fewer than the 8 tokens"):
        read_index(str(tmp_path / "text"))
