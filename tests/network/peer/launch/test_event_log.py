"""What of a run is written down, and when."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from p2pfl.experiment import Experiment
from p2pfl.network.peer import Progress
from p2pfl.network.peer.launch.event_log import EventLog
from p2pfl.network.peer.launch.worker import is_news
from p2pfl.network.peer.updates import Alive, Done, Failed
from p2pfl.results import Record, Run
from p2pfl.results.notices.kinds import PeerFailed, PeerFinished, PhaseBegan, PresenceChanged, WaitBegan, WaitEnded

BEGAN = datetime(2026, 11, 23, tzinfo=UTC)
COST = {"training_loss": 1.0, "distance": 0.0, "bytes_out": 0, "bytes_in": 0}
RECORD = Record(
    peer="ada", round=3, scores={"loss": 1.0}, **COST, seconds_training=0.0, seconds_waiting=0.0, received=1
)


def logged(*events, apart=1.0):
    """Return the run after some events, one a second."""
    run = Run(Experiment())
    times = (BEGAN + timedelta(seconds=apart * number) for number in range(100))
    log = EventLog(run, now=lambda: next(times))
    for event in events:
        if isinstance(event, Record):
            log.record(event)
        else:
            log.observe(event)
    return run


def ada(*waiting, phase="learning", round=3, stalled=False, present=(), connected=True):
    return Progress("ada", phase, round, waiting, present, connected, stalled)


def kinds(run):
    return [type(event) for event in run.events]


def test_a_phase_is_written_down_once():
    run = logged(ada(phase="gathering", round=0), ada(round=0), ada(round=1), ada(round=2, phase="leaving"))
    assert [(event.phase, event.round) for event in run.events] == [("gathering", 0), ("learning", 0), ("leaving", 2)]


def test_a_short_wait_is_not_written_down():
    run = logged(ada(), ada("bob"), ada(round=4), ada("bob", round=4))
    assert kinds(run) == [PhaseBegan]


def test_a_long_wait_is_written_down_with_its_changes_and_its_end():
    stalled = [ada("bob", "cy", stalled=True), ada("bob", "cy", stalled=True), ada("cy", stalled=True)]
    run = logged(ada(), ada("bob", "cy"), *stalled, ada(), ada(round=4))
    waits = [event.neighbours for event in run.events if isinstance(event, WaitBegan)]
    assert waits == [("bob", "cy"), ("cy",)]
    assert kinds(run) == [PhaseBegan, WaitBegan, WaitBegan, WaitEnded]


def test_a_wait_that_changes_often_is_written_down_once_a_second():
    names = [f"peer{number}" for number in range(8)]
    run = logged(*(ada(*names[number:], stalled=True) for number in range(8)), apart=0.25)
    waits = [event.neighbours[0] for event in run.events if isinstance(event, WaitBegan)]
    assert waits == ["peer0", "peer4"]


def test_a_wait_for_the_broker_is_one_without_neighbours():
    [_, wait] = logged(ada(), ada(connected=False, stalled=True)).events
    assert (wait.neighbours, wait.connected) == ((), False)


def test_a_peer_that_ends_waits_no_longer():
    run = logged(ada("bob", stalled=True), Done("ada", {"loss": 1.0}, None), Failed("bob", "lost", 1))
    assert kinds(run) == [PhaseBegan, WaitBegan, WaitEnded, PeerFinished, PeerFailed]


def test_neighbours_that_come_and_leave_are_written_down():
    run = logged(ada(present=("bob", "cy")), ada(present=("bob", "cy")), ada(present=("bob", "dan")))
    moves = [(event.came, event.left) for event in run.events if isinstance(event, PresenceChanged)]
    assert moves == [(("bob", "cy"), ()), (("dan",), ("cy",))]


def test_lines_have_the_time_and_signs_of_life_are_no_lines():
    run = logged(ada(present=("bob",)), Alive("ada"), RECORD)
    assert [event.time for event in run.events] == [BEGAN, BEGAN]
    assert [record.time for record in run.metrics] == [BEGAN + timedelta(seconds=2)]


def test_a_peer_that_gathers_with_hundreds_reports_each_of_them_once_and_few_of_its_changes():
    names = tuple(f"peer{number:03}" for number in range(255))
    reports = [Progress("ada", "gathering", 0, names[count:], names[:count]) for count in range(256)]
    sent = [reports[0]]
    for present in reports:
        sent += [present] if is_news(present, sent[-1]) else []
    assert len(sent) == 10
    assert sent[-1].present == names
    assert not is_news(reports[3], reports[2])
    left = replace(reports[-1], present=names[1:])
    assert is_news(replace(left, phase="learning"), replace(reports[-1], phase="learning"))
