"""Evidence of months: files that follow each other, a crash between two, and a check in bounded memory."""

import os
import tracemalloc

import pytest

from p2pfl.core.errors import StorageError
from p2pfl.core.files import Drive
from p2pfl.plugins.evidence.recorded_chain import PeerEvidence
from p2pfl.plugins.evidence.verification import find_chains, verify
from p2pfl.privacy.keys import Identity, key_text
from p2pfl.results.evidence import (
    Chain,
    PeerBegan,
    PeerEnded,
    RoundPlayed,
    RowSent,
    chain_files,
    last_digest,
    read_chain,
)

PEERS = ("ada", "bob")
IDENTITIES = {peer: Identity(bytes([number]) * 32) for number, peer in enumerate(PEERS, start=1)}


def began(peer, *, incarnation=0):
    stated = {"swarm": "s", "experiment": "", "statement": "", "versions": {}, "code": {}, "roster": ""}
    key = key_text(IDENTITIES[peer].public)
    return PeerBegan(peer=peer, incarnation=incarnation, key=key, data=None, charge=None, **stated)


def digest(peer, round, step):
    return f"{PEERS.index(peer)}{round:08}{step:055}"


def play(chain, peer, round, *, steps=2):
    """Append what an honest peer writes in a round of two peers."""
    other = PEERS[1 - PEERS.index(peer)]
    for step in range(steps):
        chain.append(RowSent(round, step, digest(peer, round, step)))
    received = {other: {f"{round}.{step}": digest(other, round, step) for step in range(steps)}}
    facts = {"totals": (), "row": "0" * 64, "spent": None, "incarnations": {other: 0}}
    chain.append(RoundPlayed(round=round, received=received, **facts))


def write(folder, *, rounds, segment):
    """Write the evidence of a run of two peers."""
    (folder / "peers").mkdir(parents=True)
    for peer in PEERS:
        chain = Chain(folder / "peers" / f"{peer}.evidence.jsonl", IDENTITIES[peer], segment=segment)
        chain.append(began(peer))
        for round in range(rounds):
            play(chain, peer, round)
        chain.append(PeerEnded(rounds, "0" * 64))
    return folder


def bytes_of(chain):
    return b"".join(file.read_bytes() for file in chain_files(chain))


def test_a_chain_in_many_files_has_the_lines_of_one_file_and_is_checked_as_one(tmp_path):
    one, many = write(tmp_path / "one", rounds=20, segment=1 << 30), write(tmp_path / "many", rounds=20, segment=4000)
    for peer in PEERS:
        whole, parts = (run / "peers" / f"{peer}.evidence.jsonl" for run in (one, many))
        assert bytes_of(parts) == whole.read_bytes()
        assert last_digest(parts) == last_digest(whole)
        sizes = [file.stat().st_size for file in chain_files(parts)]
        assert len(sizes) > 4
        assert all(4000 <= size < 5000 for size in sizes[:-1])
    assert verify(find_chains([many])) == verify(find_chains([one]))
    assert not verify(find_chains([many])).findings
    assert find_chains([chain_files(many / "peers" / "ada.evidence.jsonl")[2]])[0].peer == "ada"


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_file_of_a_chain_that_is_removed_or_changed_is_found(tmp_path, place):
    run = write(tmp_path / "run", rounds=20, segment=4000)
    file = chain_files(run / "peers" / "ada.evidence.jsonl")[place]
    whole = file.read_bytes()
    file.unlink()
    result = verify(find_chains([run]))
    broken = any("the chain breaks at entry" in each.sentence for each in result.findings)
    assert broken or any("the evidence of ada stops after" in each for each in result.open)
    file.write_bytes(whole.replace(b"0" * 50, b"1" * 50, 1))
    assert any("is not signed by its peer" in each.sentence for each in verify(find_chains([run])).findings)


class FailingDrive(Drive):
    """A disk that fails at one of its operations, as a crash does; half of what was to be appended is there."""

    def __init__(self, left):
        self.left = left

    def _count(self):
        self.left -= 1
        return self.left < 0

    def sync(self, path):
        if self._count():
            raise OSError(5, "Input/output error")
        super().sync(path)

    def append(self, path, data, *, mode):
        failed = self._count()
        super().append(path, data[: len(data) // 2] if failed else data, mode=mode)
        if failed:
            raise OSError(5, "Input/output error")


@pytest.mark.parametrize("left", range(24))
def test_a_crash_at_any_operation_loses_the_entry_in_writing_at_most(tmp_path, left):
    path, written = tmp_path / "peers" / "ada.evidence.jsonl", []
    path.parent.mkdir()
    chain = Chain(path, IDENTITIES["ada"], disk=FailingDrive(left), segment=1200)

    def go_on():
        for number in range(100):
            fact = RowSent(number, 0, digest("ada", number, 0)) if number else began("ada")
            chain.append(fact)
            written.append(fact)

    with pytest.raises(StorageError, match="cannot be written"):
        go_on()
    resumed = Chain(path, IDENTITIES["ada"], segment=1200)
    resumed.append(began("ada", incarnation=1))
    assert [entry.fact for _, entry in read_chain(path)] == [*written, began("ada", incarnation=1)]
    assert not [each for each in verify(find_chains([tmp_path])).findings if "breaks" in each.sentence]


class CachedDrive(Drive):
    """A disk that keeps what is appended in a cache, of which a loss of power may take any file's part."""

    def __init__(self):
        self.safe = {}

    def sync(self, path):
        super().sync(path)
        self.safe[path] = path.stat().st_size

    def lose_power(self, files, *, kept):
        for number, file in enumerate(files):
            if not kept >> number & 1:
                os.truncate(file, self.safe.get(file, 0))


@pytest.mark.parametrize("kept", range(8))
def test_a_loss_of_power_takes_the_end_of_a_chain_and_nothing_in_its_middle(tmp_path, kept):
    disk, path = CachedDrive(), tmp_path / "ada.evidence.jsonl"
    chain = Chain(path, IDENTITIES["ada"], disk=disk, segment=1200)
    for number in range(10):
        chain.append(RowSent(number, 0, digest("ada", number, 0)))
    before, files = bytes_of(path), chain_files(path)
    assert len(files) == 3
    disk.lose_power(files, kept=kept)
    assert before.startswith(bytes_of(path))
    assert files[-2].stat().st_size > 1200
    again = Chain(path, IDENTITIES["ada"], segment=1200)
    again.append(began("ada"))
    entries = [entry for _, entry in read_chain(path)]
    assert [entry.number for entry in entries] == [*range(len(entries))]


@pytest.mark.slow
def test_memory_of_a_check_does_not_grow_with_the_rounds_by_more_than_where_they_are(tmp_path):
    peaks = []
    for rounds in (30, 130):
        run = write(tmp_path / str(rounds), rounds=rounds, segment=1 << 14)
        verify(find_chains([run]))  # caches of the interpreter are filled
        tracemalloc.start()
        assert not verify(find_chains([run])).findings
        last_digest(run / "peers" / "ada.evidence.jsonl")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    a_round = sum(len(bytes_of(run / "peers" / f"{peer}.evidence.jsonl")) for peer in PEERS) / 130
    assert (peaks[1] - peaks[0]) / 100 < a_round / 4


def test_rounds_that_are_read_one_at_a_time_are_those_of_the_chain(tmp_path):
    run = write(tmp_path / "run", rounds=9, segment=3000)
    own = PeerEvidence(run / "peers" / "bob.evidence.jsonl")
    assert [*own.played] == [*range(9)]
    assert own.sent(4) == {step: {digest("bob", 4, step)} for step in range(2)}
    assert own.played[4].received == {"ada": {f"4.{step}": digest("ada", 4, step) for step in range(2)}}
    assert 9 not in own.played
    assert own.played.get(9) is None
    assert own.sent(9) == {}
