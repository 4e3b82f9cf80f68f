"""Lines of a run are read once each, when they are complete."""

import os
from itertools import pairwise

import msgspec
import pytest

from growing import PEERS, began, ended
from p2pfl.core.errors import InputError
from p2pfl.core.files import replace
from p2pfl.plugins.watch import run_tail as module
from p2pfl.plugins.watch.run_tail import Following, News
from p2pfl.results.run import Run


@pytest.fixture
def following(growing):
    with Following(growing.folder) as opened:
        yield opened


def test_each_line_is_read_once(growing, following):
    assert following.read_new() == News([])
    growing.log(began("peer0"))
    growing.record(ended("peer0", 0, seconds=1.0))
    assert following.read_new() == News([began("peer0"), ended("peer0", 0, seconds=1.0)])
    assert following.read_new() == News([])
    growing.record(ended("peer0", 1, seconds=2.0))
    assert following.read_new() == News([ended("peer0", 1, seconds=2.0)])


def test_a_line_without_its_end_waits_for_it(growing, following):
    line = growing.line(ended("peer0", 0, seconds=1.0))
    for part in (line[:30], line[30:-1]):
        growing.raw("metrics.jsonl", part)
        assert following.read_new() == News([])
    growing.raw("metrics.jsonl", line[-1:] + line[:10])
    assert following.read_new() == News([ended("peer0", 0, seconds=1.0)])


def test_a_line_that_its_writer_takes_back_is_not_read(growing, following):
    growing.record(ended("peer0", 0, seconds=1.0))
    following.read_new()
    path = growing.folder / "metrics.jsonl"
    size = path.stat().st_size
    growing.raw("metrics.jsonl", b'{"peer":"half a li')
    assert following.read_new() == News([])
    os.truncate(path, size)
    growing.record(ended("peer0", 1, seconds=2.0))
    assert following.read_new() == News([ended("peer0", 1, seconds=2.0)])


def test_a_run_that_is_resumed_begins_again_without_the_dropped_rounds(growing, following):
    growing.log(began("peer0"))
    growing.record(*(ended("peer0", round, seconds=round) for round in range(3)))
    assert len(following.read_new().entries) == 4
    Run.resume(growing.folder, first={"peer0": 1})
    assert following.read_new() == News([began("peer0"), ended("peer0", 0, seconds=0)], reset=True)
    assert following.read_new() == News([])


def test_a_file_that_was_cut_is_read_again(growing, following):
    growing.record(ended("peer0", 0, seconds=1.0), ended("peer0", 1, seconds=2.0))
    following.read_new()
    (growing.folder / "metrics.jsonl").write_bytes(growing.line(ended("peer0", 0, seconds=1.0)))
    assert following.read_new() == News([ended("peer0", 0, seconds=1.0)], reset=True)


def test_lines_that_cannot_be_read_are_counted(growing, following):
    growing.raw("events.jsonl", b"no JSON\n[]\n")
    growing.raw("events.jsonl", b'{"kind":"of_tomorrow","schema":1,"peer":"ada"}\n')
    growing.log(began("peer0"))
    assert following.read_new() == News([began("peer0")])
    assert following.unread == 3


def test_a_score_that_is_null_is_no_number(growing, following):
    record = ended("peer0", 0, seconds=1.0)
    growing.record(msgspec.structs.replace(record, scores={"loss": float("nan"), "accuracy": 0.5}))
    [found] = following.read_new().entries
    assert found.scores["loss"] != found.scores["loss"]
    assert found.scores["accuracy"] == 0.5


def test_another_version_of_the_format_is_refused_until_it_is_gone(growing, following):
    growing.log(began("peer0"))
    growing.raw("metrics.jsonl", b'{"schema":2,"peer":"ada"}\n')
    for _ in range(2):
        with pytest.raises(InputError, match="the schema is version 2"):
            following.read_new()
    (growing.folder / "metrics.jsonl").write_bytes(b"")
    assert following.read_new() == News([began("peer0")], reset=True)
    assert following.read_new() == News([])


def test_a_large_file_is_read_in_parts(growing, following, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    records = [ended(peer, round, seconds=round) for round in range(20) for peer in PEERS]
    growing.record(*records)
    assert following.read_new() == News(records)


def test_a_long_run_comes_in_small_parts_in_the_order_of_time(growing, following, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(module, "MIN_BATCH", 5)
    records = [ended(peer, round, seconds=round) for round in range(60) for peer in PEERS]
    growing.record(*records)
    growing.log(*(began("peer0", seconds=second + 0.5) for second in range(60)))
    parts = [news.entries for news in following.batches()]
    times = [[entry.time for entry in part] for part in parts if part]
    assert len(times) > 10
    assert max(map(len, parts)) < 40
    assert all(max(before) <= min(after) for before, after in pairwise(times))
    assert sum(map(len, parts)) == len(records) + 60


@pytest.mark.parametrize("parts", [1, 3])
def test_a_line_that_is_too_long_is_counted_and_skipped(growing, following, monkeypatch, parts):
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    for _ in range(parts):
        growing.raw("metrics.jsonl", b"x" * (3000 // parts))
        assert following.read_new() == News([])
    growing.raw("metrics.jsonl", b"x\n")
    growing.record(ended("peer0", 0, seconds=1.0))
    assert following.read_new() == News([ended("peer0", 0, seconds=1.0)])
    assert following.unread == 1


def test_files_that_do_not_exist_yet_are_empty(tmp_path):
    with Following(tmp_path) as following:
        assert following.read_new() == News([])
        replace(tmp_path / "metrics.jsonl", b"")
        assert following.read_new() == News([])
