"""Live peers that are recorded, and play it again."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from p2pfl.cli import main
from p2pfl.core.errors import InputError, RunError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.session_log import LoggedSource, SessionLog
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.network.virtual.network import Conditions, WorldTransport
from p2pfl.network.virtual.replay import replayed
from p2pfl.network.virtual.timed_learner import Timed
from p2pfl.privacy.keys import FirstUse, Identity, SecretSource
from swarms import SMALL
from worlds.__main__ import main as command

pytestmark = pytest.mark.slow

LINE = Conditions(latency=0.05, jitter=0.05, loss=0.05, overtaken=0.2)
FOUR = ["topology.kind=complete", "topology.peers=4", "rounds=2"]


def recorded(experiment, folder, *, slow=0.0):
    """Run all peers over a lossy line; the last of them is slow. Return what they recorded, and their records."""
    (folder / "keys").mkdir()
    loop, found = VirtualLoop(), {}
    names = plan(experiment).topology.peers

    async def one(name, transport):
        resolved = plan(experiment, only=[name])
        takes = slow if name == names[-1] else 0.5
        identity = Identity.generate(SecretSource(), peer=name)
        identity.save(folder / "keys" / f"{name}.pem")
        log, records = SessionLog(folder / "recordings" / f"{name}.jsonl"), []
        peer = Peer(
            name,
            replace(resolved, learner=Timed(resolved.learner, takes=lambda *_: takes, spend=loop.spent)),
            transport=transport,
            source=LoggedSource(SecretSource(), log),
            identity=identity,
            trust=FirstUse(),
            observe=lambda record, _: (log.ended(record), records.append(record)),
        )
        async with peer:
            log.attach(peer)
            state = await peer.run()
        log.close(state.rows)
        found[log.path] = records

    async def all_():
        transport = WorldTransport(loop, {"": LINE}, seed=1)
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(one(name, transport))

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(all_())
    return found


@pytest.mark.sampled(fast=0, all=3)
@pytest.mark.parametrize(
    "changes",
    [
        [],
        ["privacy.mode=pairwise"],
        ["privacy.mode=secagg", "gossip.steps=1"],
        ["privacy.mode=independent", "privacy.noise=0.1", "privacy.clip=1"],
        ["learning.algorithm=dpsgd"],
        ["learning.algorithm=robust_sgp"],
        ["data.scale=true", "learning.consensus=true"],
        ["data.scale=true", "privacy.mode=pairwise"],
        ["learning.example_noise=1.0", "learning.batch=8"],
    ],
    ids=str,
)
def test_a_recorded_peer_ends_in_the_same_row_again(changes, tmp_path):
    experiment = read(SMALL, changes=[*FOUR, *changes])
    for path, records in recorded(experiment, tmp_path).items():
        again = replayed(path)
        assert again.same
        assert [each.scores for each in again.records] == [each.scores for each in records]


def test_whom_it_gave_up_it_gives_up_again(tmp_path):
    experiment = read(SMALL, changes=[*FOUR, "transport.patience=5"])
    found = recorded(experiment, tmp_path, slow=40.0)
    assert any(record.missed for records in found.values() for record in records)
    for path, records in found.items():
        again = replayed(path)
        assert again.same
        assert [each.missed for each in again.records] == [each.missed for each in records]


def test_a_recording_is_for_its_owner_alone(tmp_path):
    path = next(iter(recorded(read(SMALL, changes=FOUR), tmp_path)))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(InputError, match=" other users can read this recording; run chmod 600 "):
        replayed(path)


def test_what_draws_otherwise_is_told(tmp_path):
    path = next(iter(recorded(read(SMALL, changes=FOUR), tmp_path)))
    lines = [line for line in path.read_text().splitlines() if '"purpose":"exchange"' not in line]
    path.write_text("\n".join(lines))
    with pytest.raises(
        RunError,
        match=(
            "the peer draws 32 bytes of exchange in round 0, which the recording does not contain; replay it with "
            "the version of p2pfl that recorded it"
        ),
    ):
        replayed(path)


def killed(path, *, after, cut=0):
    """As a peer's recording is that was killed after so many messages had come, in the middle of a line perhaps."""
    lines = path.read_bytes().splitlines(keepends=True)
    came = [place for place, line in enumerate(lines) if b'"is":"received"' in line]
    kept = lines[: came[after] + 1]
    path.write_bytes(b"".join(kept) + lines[came[after] + 1][:cut])
    return sum(b'"is":"ended"' in line for line in kept)


@pytest.mark.parametrize("changes", [[], ["privacy.mode=pairwise"]], ids=str)
def test_the_recording_of_a_peer_that_was_killed_is_played_as_far_as_it_reaches(changes, tmp_path):
    path, records = next(iter(recorded(read(SMALL, changes=[*FOUR, *changes]), tmp_path).items()))
    whole = path.read_bytes()
    count = whole.count(b'"is":"received"')
    for after, cut in ((0, 1), (count // 3, 0), (2 * count // 3, 30)):
        path.write_bytes(whole)
        rounds = killed(path, after=after, cut=cut)
        again = replayed(path)
        assert (again.ended, again.cut) == (False, cut > 0)
        assert [each.scores for each in again.records] == [each.scores for each in records][:rounds]


def test_the_command_says_that_the_last_line_was_cut_and_where_the_recording_stops(tmp_path, monkeypatch, capsys):
    path = next(iter(recorded(read(SMALL, changes=FOUR), tmp_path)))
    killed(path, after=20, cut=9)
    monkeypatch.setattr("sys.argv", ["world", "--replay", str(path)])
    assert command() == 0
    said = capsys.readouterr().err
    assert "the last line of the recording was cut: what comes before it is played" in said
    assert "where the recording stops before the peer had ended: there is no last row to compare" in said


@pytest.mark.parametrize(
    ("experiment", "why"),
    [
        (
            "rounds = = 2",
            r"the experiment of the recording is not valid TOML \(Invalid value .*\); record it again",
        ),
        ("ronds = 2", 'unknown key "ronds"'),
    ],
)
def test_a_recording_of_an_experiment_that_is_none_is_told_in_one_sentence(experiment, why, tmp_path):
    path = next(iter(recorded(read(SMALL, changes=FOUR), tmp_path)))
    lines = path.read_bytes().splitlines()
    [place] = [place for place, line in enumerate(lines) if b'"is":"about"' in line]
    lines[place] = msgspec.json.encode(msgspec.json.decode(lines[place]) | {"experiment": experiment})
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match=why) as caught:
        replayed(path)
    assert "\n" not in str(caught.value)


def test_what_is_no_recording_is_told(tmp_path):
    path = tmp_path / "some.jsonl"
    with pytest.raises(InputError, match=r" cannot be read \(No such file or directory\); name a file of recordings/"):
        replayed(path)
    path.touch(mode=0o600)
    with pytest.raises(InputError, match="the recording has 0 lines, but no peer that joined; record it again"):
        replayed(path)
    path.write_text("hello\n")
    with pytest.raises(InputError, match="a line is not part of a recording"):
        replayed(path)


def test_a_recording_begins_with_the_run(capsys):
    assert main(["run", "--resume", "runs/some", "--record"]) == InputError.status
    assert "--record does not work with --resume" in capsys.readouterr().err
