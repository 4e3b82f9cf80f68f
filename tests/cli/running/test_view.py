"""What people see, as text."""

import multiprocessing

import pytest

from p2pfl.cli import tables
from p2pfl.cli.running import view
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Progress
from p2pfl.network.peer.launch import swarm
from p2pfl.network.peer.updates import Alive, Done, Failed
from p2pfl.results import Record, Run

PEERS = ("peer0", "peer1", "peer2")


@pytest.fixture(scope="module")
def resolved():
    small = {"rounds": 4, "topology": {"kind": "complete", "peers": 3}, "data": {"name": "wine"}}
    return plan(read(small))


def record(peer, *, round=0, accuracy=0.5, missed=()):
    return Record(
        peer=peer,
        round=round,
        scores={"loss": 1.0, "accuracy": accuracy},
        training_loss=1.0,
        distance=0.5,
        bytes_out=1500,
        bytes_in=0,
        seconds_training=0.0,
        seconds_waiting=0.0,
        received=2,
        missed=list(missed),
    )


def learning(peer, *waiting):
    return Progress(peer, "learning", 0, waiting)


def test_a_log_has_one_line_for_each_round_when_all_peers_have_ended_it(resolved, capsys):
    lines = view.Lines(resolved, peers=3, quiet=False)
    for peer in PEERS:
        lines.observe(Progress(peer, "joining", 0, ()))
    assert capsys.readouterr().err == ""
    for peer in PEERS:
        lines.observe(Progress(peer, "gathering", 0, ("peer0",)))
        lines.observe(learning(peer, "peer1"))
    heading, privacy, begins = capsys.readouterr().err.splitlines()
    assert heading.startswith("experiment: 3 peers on complete, wine (iid), ")
    assert privacy.startswith("privacy: models are encrypted")
    assert begins == "all 3 peers are there, learning begins"
    lines.observe(record("peer0", accuracy=0.25))
    lines.observe(record("peer1", accuracy=0.5))
    lines.observe(record("peer0", round=1))
    assert capsys.readouterr().err == ""
    lines.observe(record("peer2", accuracy=0.75, missed=["peer1", "peer1"]))
    assert capsys.readouterr().err == (
        "round 1/4: loss 1.000, accuracy 0.500, distance 0.5 (mean of 3 peers), without all models of peer1\n"
    )


def test_rounds_that_a_peer_skips_do_not_stay_in_memory(resolved):
    lines = view.Lines(resolved, peers=2, quiet=True)
    for round in range(1000):
        lines.observe(record("peer0", round=round))
    assert len(lines.rounds) <= view.MAX_OPEN_ROUNDS + 1
    assert 999 in lines.rounds


def test_a_peer_that_is_done_waits_for_nobody(resolved, capsys):
    lines = view.Lines(resolved, peers=1, quiet=False)
    lines.observe(learning("peer0"))
    for _ in range(2):
        lines.observe(Progress("peer0", "done", 3, (), connected=False))
    assert "waiting" not in capsys.readouterr().err
    for _ in range(2):
        lines.observe(Progress("peer0", "learning", 3, (), connected=False))
    assert "waiting for the broker, which cannot be reached" in capsys.readouterr().err


def test_a_log_leaves_out_a_distance_that_measures_masks(capsys):
    table = {"rounds": 4, "topology": {"kind": "complete", "peers": 3}, "data": {"name": "wine"}}
    masked = plan(read(table, changes=["privacy.mode=pairwise", "gossip.steps=1"]))
    lines = view.Lines(masked, peers=1, quiet=False)
    lines.observe(record("peer0"))
    assert "round 1/4: loss 1.000, accuracy 0.500 (peer0)\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "heads"), [("pairwise", ["accuracy", "training"]), ("none", ["accuracy", "distance"])]
)
def test_the_rounds_of_a_run_leave_it_out_as_well(capsys, mode, heads):
    table = {"topology": {"kind": "complete", "peers": 3}, "data": {"name": "wine"}, "privacy": {"mode": mode}}
    run = Run(read(table, changes=["gossip.steps=1"]))
    run.metrics.append(record("peer0"))
    tables.history(run)
    assert capsys.readouterr().out.split()[2:4] == heads


def test_a_log_says_that_what_to_compare_with_is_trained_once_all_peers_have_ended(resolved, capsys):
    lines = view.Lines(resolved, peers=3, quiet=False)
    for peer in PEERS:
        assert capsys.readouterr().err == ""
        lines.observe(Done(peer, {}, None))
    assert capsys.readouterr().err.strip() == view.COMPARING


def test_a_peer_on_a_device_says_that_it_trains_alone_only_if_it_does(resolved, capsys):
    for compares, said in ((True, f"{view.ALONE}\n"), (False, "")):
        view.Lines(resolved, peers=1, quiet=False, compares=compares).observe(Done("peer0", {}, None))
        assert capsys.readouterr().err == said


def test_a_log_says_whom_a_peer_waits_for_only_if_it_does_not_move_on(resolved, capsys):
    lines = view.Lines(resolved, peers=3, quiet=False)
    lines.observe(learning("peer0", "peer1"))
    capsys.readouterr()
    lines.observe(learning("peer0", "peer1", "peer2"))
    lines.observe(Alive("peer0"))
    lines.observe(learning("peer0", "peer1"))
    assert capsys.readouterr().err == ""
    lines.observe(learning("peer0", "peer1"))
    lines.observe(learning("peer0", "peer1"))
    assert capsys.readouterr().err == "peer0: round 1, waiting for peer1\n"


def test_a_single_peer_says_at_once_whom_it_waits_for(resolved, capsys):
    lines = view.Lines(resolved, peers=1, quiet=False)
    lines.observe(Progress("peer0", "gathering", 0, ("peer1", "peer2")))
    lines.observe(Progress("peer0", "gathering", 0, ("peer2",)))
    lines.observe(learning("peer0"))
    said = capsys.readouterr().err.splitlines()[2:]
    assert said == [
        "peer0: gathering, waiting for peer1, peer2",
        "peer0: gathering, waiting for peer2",
        "peer0 and its neighbours are there, learning begins",
    ]


def test_a_single_peer_says_which_neighbours_come_and_go_while_it_learns(resolved, capsys):
    lines = view.Lines(resolved, peers=1, quiet=False)
    lines.observe(Progress("peer0", "gathering", 0, (), ("peer1",)))
    for there in (("peer1", "peer2"), ("peer1", "peer2"), ("peer3",), ("peer1", "peer3")):
        lines.observe(Progress("peer0", "learning", 0, (), there))
    lines.observe(Progress("peer0", "leaving", 4, (), ()))
    said = capsys.readouterr().err.splitlines()[-3:]
    assert said == ["peer1, peer2 are gone", "peer3 is there", "peer1 is there"]


SUMMARY = {
    "name": "test",
    "peers": 2,
    "rounds": 3,
    "steps": 1,
    "metric": "accuracy",
    "alone": 0.5,
    "together": 0.75,
    "pooled": 0.875,
    "per_peer": {"ada": {"alone": 0.25, "together": 0.75}, "bob": {"alone": 0.75, "together": 0.75}},
    "start_s": 1.0,
    "wall_s": 2.0,
    "total_s": 3.0,
    "training_s": 1.0,
    "peer_memory": 30_000_000,
    "bytes_written": 5_000,
    "bytes_sent": 1_000_000,
    "missed": 2,
    "privacy": {"statement": "rows are sealed"},
}


def test_the_summary_answers_what_learning_together_gave(capsys, tmp_path):
    tables.summary(SUMMARY, tmp_path)
    said = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    memory, written = "30.0 MB of private memory a peer", "5.0 kB written by a peer in a round since its last start"
    for line in (
        "What learning together gave (accuracy)",
        "ada 0.250 0.750 +0.500",
        "mean 0.500 0.750 +0.250",
        "one model on all data 0.875",
        f"3 rounds of 1 gossip step in 2.0 s, 1.0 s to start, 1.0 MB sent by 2 peers, {memory}, {written}",
        "2 models did not arrive in time",
        "privacy: rows are sealed",
        f"run directory: {tmp_path}",
    ):
        assert line in said


def test_a_process_without_a_sign_of_life_is_named(monkeypatch):
    ours, theirs = multiprocessing.Pipe()
    monkeypatch.setattr(swarm, "SILENCE", 0.0)
    monkeypatch.setattr(swarm, "GRACE", 0.001)
    theirs.send(Alive("peer0"))
    events = swarm._Swarm(pipes={ours: ("peer0",)}).events()
    assert next(events) == Alive("peer0")
    failed = next(events)
    assert isinstance(failed, Failed)
    assert failed.peer == "peer0"
    assert failed.error == "ProcessStuck"
    ours.close()
    theirs.close()


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def test_the_log_of_a_service_has_one_line_a_minute_and_names_who_was_missed_in_between(resolved, capsys, monkeypatch):
    monkeypatch.setenv("INVOCATION_ID", "0f")  # as systemd sets it
    clock = Clock()
    lines = view.Lines(resolved, peers=1, quiet=False, clock=clock)
    lines.observe(record("peer0"))
    for now, round, missed in ((1.0, 1, ("peer1",)), (61.0, 2, ()), (62.0, 3, ())):
        clock.now = now
        lines.observe(record("peer0", round=round, missed=missed))
    first, minute, last = capsys.readouterr().err.splitlines()
    assert first.startswith("round 1/4")
    assert minute.startswith("round 3/4")
    assert minute.endswith("without all models of peer1")
    assert last.startswith("round 4/4")
    assert "without" not in last


def test_outside_of_a_service_every_round_has_its_line(resolved, capsys, monkeypatch):
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    lines = view.Lines(resolved, peers=1, quiet=False, clock=Clock())
    for round in range(3):
        lines.observe(record("peer0", round=round))
    assert len(capsys.readouterr().err.splitlines()) == 3
