"""Tests of log parsing: the published samples, noise, faults, and long logs."""

import json
import math
import random
import subprocess
import sys
import time

import pytest

from repro.published import logs
from repro.published.log_summary import summary
from repro.published.logs import LogError, parse
from repro.published.rules import MeanRows, Stamps
from tests.support.log_rows import C_UNSTAMPED, HEADER, A, B, C, E, a_row, d_row, e_row
from tests.support.paths import ROOT

NOISE = [
    "Saving model to ./output/snapshots/model_save-20200811/snapshot_epoch_0.",
    "E20201121 03:34:53.188560   661 x.cpp:28] step: 19, total_loss: 9.725 is not what was expected",
    "W20201121 03:34:53.188560   662 y.cpp:9] train: epoch 0, iter 20, loss: 1.0",
    "[rank 3] step: 20, loss: 9.1, throughput: 12.000 1607400000.1",
    "/usr/lib/python3/site.py:3: UserWarning: throughput: 12.000",
    "validation: epoch 0, iter 195, top_1: 0.771094, top_k: 0.932812, samples/s: 2611.201",
    "train: epoch 0, iter 20, loss: 6.5train: epoch 0, iter 20, loss: 6.505637, top_1: 0.000000",
    "train: start",
    "step: 20, loss: , throughput: 1.0",
    "step: 20, loss: 1.0, throughput: 1.0 1.0 1.0",
    "| NVIDIA-SMI 440.33.01    Driver Version: 440.33.01    CUDA Version: 10.2     |",
    "|   0  Tesla V100-SXM2...  On   | 00000000:1A:00.0 Off |                    0 |",
    "| 10 | 20 |",
    "99% of 8192 MiB",
    "\t",
    " 40%|████      | 4/10 [00:01<00:01,  3.99it/s]\r 50%|█████     | 5/10",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "Traceback (most recent call last):",
    "损失: 1.0",
]


def text_of(path):
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "generation", "rows", "figure"),
    [
        (A, "A", 10, "385.10"),
        (B, "B", 2, "5915.65"),
        (C, "C", 2, "140.20"),
        (C_UNSTAMPED, "C", 10, "142.47"),
        (E, "E", 10, "39.03"),
    ],
)
def test_published_samples(path, generation, rows, figure):
    found = summary(path)
    assert (found["generation"], found["rows"]) == (generation, rows)
    assert f"{found['throughput']:.2f}" == figure
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_e_sample_gives_the_published_figures():
    found = summary(E)
    assert found["latency_ms"] == 13117.188
    assert found["memory_mib"] == 11958
    assert found["rule"] == {"kind": "last_rows", "rows": 5}
    assert found["global_batch"] == 512
    assert not found["warnings"]


def test_e_arguments_are_typed():
    stated = parse(E).configuration
    assert stated["padded_vocab_size"] == 50688
    assert stated["adam_eps"] == 1e-8
    assert stated["fp16"] is True
    assert stated["load"] is None
    assert stated["split"] == [949, 50, 1]
    assert stated["lr_decay_style"] == "cosine"
    assert len(stated) == 57


def test_settings_before_the_rows_are_kept_and_later_ones_are_noise():
    log = parse(
        [
            "model = BERT Pretrain",
            "node_ips = ['10.11.0.2', '10.11.0.3']",
            "rgb_mean = [123.68, 116.779]",
            "lr = nan",
            "version = 0.1.8",
            "odd = [1, {}]",
            d_row(10),
            "model = other",
        ]
    )
    assert log.configuration == {
        "model": "BERT Pretrain",
        "node_ips": ["10.11.0.2", "10.11.0.3"],
        "rgb_mean": [123.68, 116.779],
        "lr": "nan",
        "version": "0.1.8",
        "odd": "[1, {}]",
    }
    assert log.noise_lines == 1


def test_the_callers_configuration_goes_before_the_logs():
    assert parse(B, {"batch_size_per_device": 64}).global_batch == 1024


def test_c_counts_from_zero_when_printed():
    rows = parse(C).rows
    assert [(row.printed_step, row.step) for row in rows] == [(19, 20), (119, 120)]
    assert rows[0].other == {"mlm_loss": 8.960, "nsp_loss": 0.766}


def test_d_is_read():
    log = parse([d_row(10), d_row(20, rate=96.0, stamp=" 1607400001")])
    assert (log.generation, log.row_count) == ("D", 2)
    assert (log.rows[1].step, log.rows[1].samples_per_s, log.rows[1].stamp) == (20, 96.0, 1607400001.0)


@pytest.mark.parametrize("first", ["batches", "step"])
def test_e_header_with_either_first_column(first):
    log = parse([HEADER.replace("step", first), e_row(10), e_row(20)])
    assert (log.generation, log.rows[1].latency_s, log.global_batch) == ("E", 13.0, 512)


def test_a_table_of_numbers_without_e_header_is_no_log():
    with pytest.raises(LogError, match="no whole row"):
        parse([e_row(10)])


def test_unstamped_c_falls_back_and_says_so():
    found = summary(C_UNSTAMPED)
    assert found["rule"] == {"kind": "mean_rows", "skip_first": 1}
    assert "no Unix stamp" in found["warnings"][0]


def test_short_stamped_log_takes_the_stamps_there_are(tmp_path):
    path = tmp_path / "short.log"
    settings = ["batch_size_per_device = 4", "gpu_num_per_node = 1", "num_nodes = 1"]
    path.write_text("\n".join([*settings, *(a_row(n, stamp=f" {1600000000 + n / 2}") for n in (20, 40, 60))]) + "\n")
    with pytest.raises(LogError, match=r"row 6 \(step 120\) is missing: .* from step 20 to 60"):
        Stamps(first_row=1, last_row=6).throughput(parse(path), 4)
    found = summary(path)
    assert (found["rule"]["last_row"], found["throughput"]) == (3, 8)
    assert "row 6" in found["warnings"][0]


def test_losses_that_are_not_finite_are_kept_and_noted():
    log = parse([d_row(10, loss="nan"), d_row(20, loss="inf"), d_row(30)])
    assert math.isnan(log.rows[0].loss)
    assert log.rows[1].loss == math.inf
    assert "2 rows print a loss that is nan or inf" in log.notes


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        ([a_row(20), a_row(40), a_row(20, epoch=1)], [20, 40, 60]),
        ([" 50 iter per epoch...", a_row(20), a_row(40), a_row(20, epoch=1)], [20, 40, 70]),
        (
            [
                "num_examples = 95",
                "batch_size_per_device = 2",
                "gpu_num_per_node = 1",
                "num_nodes = 1",
                a_row(20),
                a_row(40),
                a_row(20, epoch=1),
            ],
            [20, 40, 68],
        ),
        ([a_row(20), a_row(40), a_row(20, epoch=1), a_row(20, epoch=2)], [20, 40, None, None]),
    ],
)
def test_steps_go_on_over_epochs_where_their_length_can_be_told(lines, steps):
    log = parse(lines)
    assert [row.step for row in log.rows] == steps
    assert len(log.notes) == (" 50" not in lines[0] and "num_examples" not in lines[0])


def test_noise_is_passed_over_and_counted(tmp_path):
    rows = text_of(A).splitlines()
    generator = random.Random(1)
    for trial in range(30):
        lines = [piece for row in rows for piece in (*generator.sample(NOISE, 3), row)]
        path = tmp_path / f"{trial}.log"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        noisy = parse(path)
        assert noisy.rows == parse(A).rows
        assert noisy.memory_mib is None
        assert noisy.configuration == {}


def test_what_begins_like_a_row_and_validation_are_counted():
    log = parse([*NOISE, a_row(20)])
    assert (log.validation_lines, log.broken_rows) == (1, 3)
    assert "3 lines begin like a row" in log.notes[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.replace(b"\n", b"\r"),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"train:", b" 5%|#    |\rtrain:").replace(b"|  ", b" 5%|#    |\r|  "),
        lambda text: text.replace(b"\n", b"\x1b[0m\n\x1b[1;32m"),
        lambda text: text.replace(b"\n", b"  \n\n"),
        lambda text: b"\xff\xfe\xfa latin\n" + text,
        lambda text: text.rstrip(b"\n"),
    ],
)
@pytest.mark.parametrize("path", [A, B, C, C_UNSTAMPED, E])
def test_bytes_around_rows_do_not_matter(path, change, tmp_path):
    changed = tmp_path / "changed.log"
    changed.write_bytes(change(path.read_bytes()))
    log = parse(changed)
    assert log.rows == parse(path).rows
    assert log.global_batch == parse(path).global_batch
    assert not log.notes


@pytest.mark.parametrize("path", [A, B, C, C_UNSTAMPED, E])
def test_a_log_cut_anywhere_gives_no_wrong_row(path, tmp_path):
    whole, cut = path.read_bytes(), tmp_path / "cut.log"
    rows = parse(path).rows
    last = whole.rstrip().rfind(b"\n") + 1
    for end in range(last + 1, len(whole) - 1):
        cut.write_bytes(whole[:end])
        found = parse(cut).rows
        assert found[: len(rows) - 1] == rows[:-1]
        if len(found) == len(rows):
            assert found[-1].samples_per_s == rows[-1].samples_per_s
            assert found[-1].stamp == pytest.approx(rows[-1].stamp, abs=1e-3) if rows[-1].stamp else True


def test_short_decimals_in_an_unended_last_line(tmp_path):
    path = tmp_path / "d.log"
    path.write_text(d_row(10) + "\n" + d_row(20))
    assert parse(path).row_count == 2
    path.write_text(d_row(10) + "\n" + d_row(20).removesuffix(".1"))
    assert parse(path).row_count == 1


def test_rows_printed_by_two_ranks_count_once():
    lines = [line for n in range(1, 6) for line in [d_row(n * 10)] * 2]
    log = parse(lines)
    assert ([row.step for row in log.rows], log.repeated_rows) == ([10, 20, 30, 40, 50], 5)
    assert "5 rows do not come after" in log.notes[0]


def test_a_second_run_in_the_file_is_passed_over():
    log = parse([d_row(10), d_row(20), d_row(10, rate=1.0), d_row(20, rate=1.0)])
    assert ([row.samples_per_s for row in log.rows], log.repeated_rows) == ([95.3, 95.3], 2)


def test_memory_is_the_largest_reading():
    log = parse(["81 %, 300 MiB", "[N/A], 500 MiB", d_row(10), "0 %, 400 MiB"])
    assert log.memory_mib == 500


@pytest.mark.parametrize(("first", "second"), [(A, C), (C, A), (A, E), (E, C), (A, B), (B, A)])
def test_mixed_generations_are_refused(first, second, tmp_path):
    path = tmp_path / "mixed.log"
    path.write_text(text_of(first) + text_of(second))
    known, found = parse(first).generation, parse(second).generation
    with pytest.raises(LogError, match=f"found a row of generation {found} after rows of generation {known}") as caught:
        parse(path)
    line = path.read_text().splitlines()[caught.value.line - 1]
    assert line.startswith(("train:", "step:", "| 10"))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "no whole row"),
        (b"hello\nworld\n", "no whole row in 2 lines"),
        (b"\x7fELF\x00\x01", "binary"),
        ("step: 1".encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08abc", "compressed"),
        (b"x" * 3_000_000, "no whole row"),
        (b"y" * 1_048_576 + d_row(10).encode(), "no whole row"),
    ],
)
def test_what_is_no_log(content, message, tmp_path):
    path = tmp_path / "no.log"
    path.write_bytes(content)
    with pytest.raises(LogError, match=message) as caught:
        parse(path)
    assert caught.value.path == str(path)


def test_a_line_longer_than_a_block_is_noise(tmp_path):
    path = tmp_path / "long.log"
    path.write_bytes(b"x" * 3_000_000 + b"\n" + A.read_bytes() + C.read_bytes())
    with pytest.raises(LogError, match="generation C after rows of generation A") as caught:
        parse(path)
    assert caught.value.line == 15


def test_folder_and_missing_file(tmp_path):
    with pytest.raises(LogError, match="is a folder"):
        parse(tmp_path)
    with pytest.raises(LogError, match="cannot be read"):
        parse(tmp_path / "none.log")


@pytest.mark.parametrize("size", [128, 129, 200, 257])
@pytest.mark.parametrize("path", [A, B, C, E])
def test_blocks_do_not_tear_lines(path, size, monkeypatch):
    expected = parse(path)
    monkeypatch.setattr(logs, "BLOCK_BYTES", size)
    assert parse(path) == expected


def test_a_very_long_log_keeps_both_ends_and_the_exact_mean(monkeypatch):
    monkeypatch.setattr(logs, "ROWS_KEPT", 50)
    log = parse(d_row(n, rate=float(n)) for n in range(1, 1001))
    assert (log.row_count, len(log.rows)) == (1000, 100)
    assert (log.rows[49].step, log.rows[50].step) == (50, 951)
    assert MeanRows(skip_first=1).throughput(log) == pytest.approx(sum(range(2, 1001)) / 999)
    assert "first and the last 50" in log.notes[-1]


def test_time_grows_with_length(tmp_path):
    def seconds(copies):
        path = tmp_path / f"{copies}.log"
        noise = ("W20201121 03:34:53.188560 661 x.cpp:28] again\n" * 100).encode()
        rows = "".join(d_row(n, stamp=f" {1600000000 + n}") + "\n" for n in range(copies * 100)).encode()
        path.write_bytes(rows + noise * copies)
        started = time.process_time()
        assert parse(path).row_count == copies * 100
        return time.process_time() - started

    small, large = min(seconds(50) for _ in range(3)), seconds(500)
    assert large < 40 * small + 0.5


def test_damaged_logs_fail_clearly_or_are_read(tmp_path):
    generator, path = random.Random(5), tmp_path / "damaged.log"
    for _ in range(400):
        content = bytearray(generator.choice((A, B, C, E)).read_bytes())
        for _ in range(generator.randrange(1, 30)):
            at = generator.randrange(len(content))
            content[at : at + generator.randrange(4)] = generator.randbytes(generator.randrange(4)).replace(b"\0", b"0")
        path.write_bytes(content)
        try:
            found = summary(path)
        except LogError as error:
            assert str(path) in str(error)
        else:
            json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    "line",
    [
        b"| " + b" " * 900_000 + b"x",
        b"train: epoch " + b"1" * 900_000,
        b"step: 1, loss: " + b"1" * 900_000,
        b"step: 1, loss: 1, throughput: 1" + b" " * 900_000 + b"x",
        b"\x1b[" * 400_000,
        b"\x1b]" * 400_000,
        b"a" * 900_000 + b" = 1 " + b" " * 90_000,
        b"\r" * 900_000,
    ],
)
def test_no_line_takes_long(line):
    started = time.process_time()
    log = parse([line, d_row(10)])
    assert log.rows[0].step == 10
    assert time.process_time() - started < 2


def test_import_is_light():
    code = (
        "import sys, repro.published.logs; "
        "print([m for m in ('numpy', 'pandas', 'random', 'statistics', 'tomllib') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_batch_of_a_table_is_that_of_its_first_row():
    log = parse([HEADER, e_row(10), e_row(20).replace("| 10240 ", "| 10241 ")])
    assert log.rows[1].other["samples"] == 10241
    assert log.global_batch == 512 and isinstance(log.global_batch, int)
    assert parse([HEADER, e_row(10).replace("| 5120 ", "| 5121 ")]).global_batch is None


def test_an_error_names_its_line_if_it_is_of_one():
    with pytest.raises(LogError, match=r"^log: holds no whole row in 0 lines"):
        parse([])
    with pytest.raises(LogError, match=r"^log, line 2: found a row of generation E"):
        parse([d_row(10), HEADER + "\r" + e_row(20)])


@pytest.mark.parametrize(("place", "refused"), [(0, True), (4095, True), (4096, False)])
def test_a_zero_byte_near_the_beginning_is_no_text(tmp_path, place, refused):
    path = tmp_path / "zero.log"
    path.write_bytes(b"x" * place + b"\0\n" + d_row(10).encode() + b"\n")
    if refused:
        with pytest.raises(LogError, match="binary") as caught:
            parse(path)
        assert caught.value.line == 1
    else:
        assert parse(path).row_count == 1


@pytest.mark.parametrize("size", [60, 61, 75, 104, 128, 200])
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_blocks_may_end_anywhere_in_lines_of_any_end(tmp_path, monkeypatch, size, end):
    path = tmp_path / "d.log"
    path.write_bytes(end.join([*(d_row(n) for n in range(10, 100, 10)), d_row(100, loss="7.1")]).encode())
    monkeypatch.setattr(logs, "BLOCK_BYTES", size)
    log = parse(path)
    assert [row.step for row in log.rows] == list(range(10, 110, 10))
    assert log.notes == () and log.noise_lines == 0


def test_a_row_longer_than_a_block_is_lost_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "d.log"
    path.write_text("\n".join([d_row(10), d_row(20).replace(" 16074", " " * 300 + "16074"), d_row(30), ""]))
    assert parse(path).row_count == 3
    monkeypatch.setattr(logs, "BLOCK_BYTES", 80)
    log = parse(path)
    assert [row.step for row in log.rows] == [10, 30] and log.noise_lines == 1


def test_lines_are_counted_over_blocks(tmp_path, monkeypatch):
    path = tmp_path / "mixed.log"
    path.write_text("\n".join([*(d_row(n) for n in range(10, 100, 10)), "", a_row(20)]) + "\n")
    for size in (104, 128, 4096):
        monkeypatch.setattr(logs, "BLOCK_BYTES", size)
        with pytest.raises(LogError, match="generation A after rows of generation D") as caught:
            parse(path)
        assert caught.value.line == 11 and "(from line 1)" in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "end", "whole"),
    [
        ([d_row(10), d_row(20)], d_row(30)[:30], False),
        ([d_row(10, stamp=" 1.12345"), d_row(20, stamp=" 2.12345")], d_row(30, stamp=" 3.123"), True),
        ([d_row(10, stamp=" 1.12345"), d_row(20, stamp=" 2.12345")], d_row(30, stamp=" 3.12"), False),
        ([d_row(10, stamp=" 1.1"), d_row(20, stamp=" 2.123")], d_row(30, stamp=" 3.12"), False),
        ([d_row(10, stamp=" 1.1"), d_row(20, stamp=" 2.123")], d_row(30, stamp=" 3.123"), True),
        ([d_row(10, stamp=" 1.1")], d_row(20, stamp=""), False),
        ([HEADER, e_row(10), e_row(20)], e_row(30).replace("7.00000", "7.1    "), True),
        ([HEADER, e_row(10), e_row(20)], e_row(30)[:-2], False),
        ([], d_row(10, stamp=" 1"), True),
    ],
)
def test_a_last_line_without_its_end_is_a_row_if_it_can_be_whole(tmp_path, rows, end, whole):
    path = tmp_path / "cut.log"
    path.write_text("\n".join([*rows, end]))
    log = parse(path)
    assert log.row_count == sum(row != HEADER for row in rows) + whole
    assert log.notes == (() if whole else ("the last line is half-written: passed over",))
    assert log.broken_rows == 0


@pytest.mark.parametrize("row", ["| 1 | 2 | broken", "| 10 | 20 | broken", "| 100 |"])
def test_what_begins_like_a_row_of_a_table_is_broken_in_it_and_noise_elsewhere(row):
    log = parse([row, HEADER, "| --- |", "| -- broken", e_row(10), row, e_row(20)])
    assert (log.broken_rows, log.noise_lines) == (1, 2), "the line of dashes is part of a table"
    assert log.notes == ("1 lines begin like a row but are not whole: passed over",)


def test_lines_that_say_nothing_are_counted():
    log = parse(["hello", "a = 1", "b.c = 1 = 2 ..", d_row(10), "5 apples", "99% of it", "0 %, 0 MiB", "hello"])
    assert log.noise_lines == 5 and dict(log.configuration) == {"a": 1}
    assert log.memory_mib == 0, "a reading, of nothing in use"


@pytest.mark.parametrize(("rows", "noted"), [(3, False), (4, False), (5, True)])
def test_rows_that_are_not_kept_are_noted(monkeypatch, rows, noted):
    monkeypatch.setattr(logs, "ROWS_KEPT", 2)
    log = parse([d_row(n) for n in range(1, rows + 1)])
    assert len(log.rows) == min(rows, 4) and log.row_count == rows
    assert bool(log.notes) is noted


@pytest.mark.parametrize("epoch", [1, 2])
def test_rows_of_later_epochs_alone_have_no_step(epoch):
    log = parse([a_row(20, epoch=epoch), a_row(40, epoch=epoch)])
    assert [row.step for row in log.rows] == [None, None]
    assert log.notes == ("the iterations per epoch are not known: rows of later epochs have no continuous step",)


def stamped_file(tmp_path, *rows):
    path = tmp_path / "stamped.log"
    path.write_text("\n".join(["num_nodes = 1", "gpu_num_per_node = 1", "batch_size_per_device = 3", *rows, ""]))
    return summary(path)


def test_a_summary_prints_six_decimals(tmp_path):
    found = stamped_file(tmp_path, *(a_row(n, stamp=f" {n * 0.7 + (n > 20) * 0.1:.7f}") for n in range(20, 160, 20)))
    seconds = 6 * 20 * 0.7 + 0.1 - 20 * 0.7
    assert found["rule"] == {"kind": "stamps", "first_row": 1, "last_row": 6}
    assert found["throughput"] == round(3 * 100 / seconds, 6) != round(3 * 100 / seconds, 7)
    assert found["latency_ms"] == round(1000 * seconds / 100, 6)
    other = stamped_file(tmp_path, *(a_row(n, stamp=f" {n / 7:.9f}") for n in range(20, 160, 20)))
    assert other["latency_ms"] == 142.857143


def test_a_short_log_is_read_by_its_first_and_its_last_stamp(tmp_path):
    found = stamped_file(tmp_path, *(a_row(n, stamp=f" {n}.5") for n in (20, 40, 60)))
    assert found["rule"] == {"kind": "stamps", "first_row": 1, "last_row": 3}
    assert isinstance(found["rule"]["last_row"], int) and found["throughput"] == 3
    every = stamped_file(tmp_path, *(a_row(n, stamp=f" {n}.5") for n in (1, 2, 3)))
    assert every["rule"] == {"kind": "stamps", "first_row": 1, "last_row": 3}


def test_a_log_of_later_epochs_has_no_stamps_to_be_read_by(tmp_path):
    found = stamped_file(tmp_path, *(a_row(n, epoch=1, stamp=f" {n}.5") for n in (20, 40, 60)))
    assert found["rule"] == {"kind": "mean_rows", "skip_first": 1} and len(found["warnings"]) == 2


def test_a_log_that_begins_without_a_stamp_is_read_without_stamps(tmp_path):
    row = "step: {}, total_loss: 9.0, mlm_loss: 8.0, nsp_loss: 1.0, throughput: 4.000{}"
    found = stamped_file(tmp_path, row.format(19, ""), row.format(39, ""), row.format(59, " 1600000000.5"))
    assert found["rule"] == {"kind": "mean_rows", "skip_first": 1} and len(found["warnings"]) == 1


def test_a_log_that_counts_from_zero_is_read(tmp_path):
    found = stamped_file(tmp_path, *(a_row(n, stamp=f" {n}.5") for n in range(3)))
    assert found["rule"] == {"kind": "stamps", "first_row": 1, "last_row": 2} and found["throughput"] == 3
