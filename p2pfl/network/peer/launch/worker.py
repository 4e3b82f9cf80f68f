"""Peers in a process, as ``run`` spawns it, alone or several in one event loop; ``peer`` is a process with one.

The fork server imports this module, and torch with it, once; every process is a fork of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from p2pfl.algorithms import State
from p2pfl.algorithms.baselines import train_alone
from p2pfl.core.errors import InputError, P2PFLError, RefusedError, ResumeError, RunError, foremost
from p2pfl.core.files import CountingDrive
from p2pfl.core.process import one_heap, private_memory, raise_file_limit, set_threads
from p2pfl.core.rows import Rows
from p2pfl.experiment import Plan, check, plan
from p2pfl.learning import Learner
from p2pfl.learning.learner import ComparesItself
from p2pfl.network.peer.joining.incarnation import number_next_start
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.peer.launch.ended import results_of
from p2pfl.network.peer.launch.incarnations import Incarnations
from p2pfl.network.peer.launch.model_hook import ModelHook
from p2pfl.network.peer.launch.shared_loop import SharedLoop
from p2pfl.network.peer.peer import Peer
from p2pfl.network.peer.peer_telemetry import Telemetry
from p2pfl.network.peer.storage.checkpoint import CheckpointStore, Former
from p2pfl.network.peer.storage.credentials import Credentials, credentials
from p2pfl.network.peer.updates import Alive, Alone, Event, Failed, ModelDescription, Progress
from p2pfl.network.transport import Transport
from p2pfl.network.transport.topic_prefix import below
from p2pfl.privacy.keys import Identity, Roster, SecretSource
from p2pfl.results import Record
from p2pfl.results.comparisons.gain_intervals import gain_interval
from p2pfl.results.lock import Owner
from p2pfl.results.models.model_description import describe_file, describe_model, metadata
from p2pfl.results.notices.kinds import STALLED_REMEDY, Notice
from p2pfl.results.summary import scores as scores_of
from p2pfl.results.swarm.telemetry import Level

WATCH_INTERVAL = 0.25
"""Seconds between two looks at what a peer is doing."""

LIFE_SIGN_INTERVAL = 5.0
"""Seconds after which there is a sign of life although nothing has changed."""


async def live(
    resolved: Plan,
    name: str,
    *,
    urls: Sequence[str],
    folder: Path,
    owned: Credentials,
    notify: Callable[[Event], None],
    former: Former | None = None,
    compare: bool = False,
    clock: Callable[[], int] = time.time_ns,
    transport: Transport | None = None,
    memory: Callable[[], int | None] = private_memory,
    on_model: str | None = None,
) -> None:
    """Run one peer to its end and keep its checkpoints.

    Parameters
    ----------
    resolved
        The experiment, for this peer.
    name
        Which of its peers.
    urls
        Of the brokers.
    folder
        The run directory.
    owned
        Its identity and trust.
    notify
        Called with its records, with whatever it does next, and with its last word.
    former
        What an earlier incarnation left in the run directory, to go on from.
    compare
        True to train a model alone when the run has ended, to see what learning together gained.
    clock
        Returns the nanoseconds since 1970, by which starts are numbered.
    transport
        Transport to the broker, in place of ``urls``.
    memory
        Returns the bytes of this process that count as those of the peer.
    on_model
        Command that runs after each new model, see :class:`~p2pfl.network.peer.launch.model_hook.ModelHook`.

    Raises
    ------
    P2PFLError
        With the exit status of wrong input as long as learning had not begun.
    """
    one_heap()
    introduced = False

    def observe(done: Record, state: State) -> None:
        del state
        describe()
        notify(done)

    def describe() -> None:
        """Describe the saved model once; the features are scaled when the first round is over."""
        nonlocal introduced
        if not introduced:
            introduced = True
            notify(ModelDescription(name, describe_model(lives.peer.plan)))

    sharing, telemetry = resolved.experiment.telemetry, None
    if sharing.share != "none" and sharing.observers is not None:
        level: Level = "health" if sharing.share == "health" else "scores"
        telemetry = Telemetry(name, level=level, observers=Path(sharing.observers), notify=notify)
        notify = _both(notify, telemetry.observe)
    disk, source = CountingDrive(), SecretSource()
    transport = transport or connect(resolved.experiment, urls=urls, peer=name, notify=notify)
    incarnation = await _incarnation(
        resolved, name, transport=transport, owned=owned, former=former, clock=clock, notify=notify
    )
    hook, store = ModelHook(on_model, peer=name, notify=notify), CheckpointStore(folder / "peers", name, disk=disk)
    notify, store.written = _both(hook.observe, notify), hook.offer_from_thread
    store.about = lambda: metadata(describe_file(lives.peer.plan, name))

    def begun(former: Former | None, incarnation: int) -> Peer:
        return Peer(
            name,
            resolved,
            transport=transport,
            source=source,
            identity=owned.identity,
            trust=owned.trust,
            incarnation=incarnation,
            observe=observe,
            notice=notify,
            store=store,
            former=former,
            remember=owned.keep,
        )

    play = partial(_rounds, telemetry=telemetry)
    lives = Incarnations(begun, play, store, notify, begun(former, incarnation))
    watching = asyncio.create_task(_watch(lives, notify))
    try:
        async with hook:
            state = await lives.run()
            await asyncio.to_thread(owned.keep)
            describe()  # no round may have been left to play
            peer = lives.peer
            done = await asyncio.to_thread(results_of, peer, state, memory=memory(), written=disk.written)
    finally:
        watching.cancel()
    notify(peer.progress)  # a short last phase may have passed between two looks
    notify(done)
    await hook.finish()
    compare = compare and not peer.followed  # the others wait in the next run
    bare = peer.plan.learner.bare
    if compare and isinstance(bare, ComparesItself):
        alone = bare.baselines({name: state.rows[0]}).alone
        if name in alone:
            notify(Alone(name, dict(alone[name]), {}))
    elif compare:
        row = await _train_alone(peer.plan.learner, name, rounds=peer.done)
        notify(await asyncio.to_thread(_compare, peer.plan, name, alone=row, together=state.rows, scores=done.scores))


def _compare(plan: Plan, name: str, *, alone: Rows, together: Rows, scores: Mapping[str, float]) -> Alone:
    """Return the scores of a model that a peer has trained alone, and the intervals of what it gained."""
    apart = scores_of(plan.learner.evaluate(alone, peers=(name,)), 0)
    intervals = {
        key: gain_interval(
            plan.learner,
            name,
            metric=key,
            alone=alone[0],
            together=together[0],
            recorded=scores[key],
            seed=plan.experiment.seed,
        )
        for key in apart
        if key in scores
    }
    return Alone(name, apart, {key: each for key, each in intervals.items() if each is not None})


async def _train_alone(learner: Learner, name: str, *, rounds: int) -> Rows:
    """Return the model ``[1, P]`` that a peer trains alone; it can be cancelled after each round."""
    steps = train_alone(learner, (name,), rounds=rounds)
    rows = next(steps)
    while (trained := await asyncio.to_thread(next, steps, None)) is not None:
        rows = trained
    return rows


async def _incarnation(
    resolved: Plan,
    name: str,
    *,
    transport: Transport,
    owned: Credentials,
    former: Former | None,
    clock: Callable[[], int],
    notify: Callable[[Event], None],
) -> int:
    """Return the number of this start."""
    if resolved.experiment.transport.broker == "embedded":
        return clock()  # the broker was started with the run: it retains nothing of an earlier start
    living = asyncio.create_task(_live_on(name, notify))
    try:
        start = await number_next_start(
            below(transport, resolved.experiment.transport.prefix),
            swarm=resolved.experiment.name,
            peer=name,
            identity=owned.identity,
            trust=owned.trust,
            journal=None if former is None else former.journal,
            source=SecretSource(),
            clock=clock,
        )
    except RefusedError as error:
        error.status = InputError.status  # as of whatever goes wrong before the first round
        raise
    finally:
        living.cancel()
    if start.warning is not None:
        notify(start.warning)
    return start.incarnation


async def _live_on(name: str, notify: Callable[[Event], None]) -> None:
    """Give signs of life while the peer waits for the broker."""
    while True:
        notify(Alive(name))
        await asyncio.sleep(LIFE_SIGN_INTERVAL)


async def _rounds(peer: Peer, *, telemetry: Telemetry | None) -> State:
    """Run a peer, at which observers may look.

    What goes wrong before its first round is wrong input, unless it resumes a run.
    """
    async with peer:
        publishing = None
        if telemetry is not None:
            publishing = asyncio.create_task(telemetry.publish(peer.connection, source=SecretSource()))
        try:
            return await peer.run()
        except P2PFLError as error:
            if peer.phase in {"joining", "gathering"} and not isinstance(error, ResumeError):
                error.status = InputError.status
            raise
        finally:
            if publishing is not None:
                publishing.cancel()
                await asyncio.wait([publishing])
                if not publishing.cancelled():
                    publishing.result()  # raises what it did not expect


def _both(one: Callable[[Event], None], other: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return a function that calls two."""

    def called(event: Event) -> None:
        one(event)
        other(event)

    return called


async def _watch(lives: Incarnations, notify: Callable[[Event], None]) -> None:
    """Report what the peer does whenever that changes, and again where it does not move on at all."""
    loop = asyncio.get_running_loop()
    reported: Progress | None = None
    gossip_step = lives.peer.mailbox.gossip_step
    due = loop.time()
    stall = Stall(after=STALLED_REMEDY)
    while True:
        peer = lives.peer
        progress = stall.update(peer.progress, step=peer.mailbox.gossip_step, now=loop.time())
        if is_news(progress, reported) or loop.time() >= due:
            stuck = gossip_step == peer.mailbox.gossip_step
            notify(progress if progress != reported or stuck else Alive(peer.name))
            reported, gossip_step, due = progress, peer.mailbox.gossip_step, loop.time() + LIFE_SIGN_INTERVAL
        await asyncio.sleep(WATCH_INTERVAL)


def is_news(progress: Progress, reported: Progress | None) -> bool:
    """Return whether to report what a peer does now, and not only with the next sign of life.

    A peer that gathers reports each time that twice as many neighbours are there: under masks they are all peers, and
    names of all in as many reports would keep the others from starting.

    Examples
    --------
    >>> names = tuple(f"peer{number}" for number in range(9))
    >>> reports = [Progress("ada", "gathering", 0, names[count:], names[:count]) for count in range(10)]
    >>> [is_news(each, reports[3]) for each in reports]
    [False, False, False, False, False, False, True, True, True, True]
    >>> is_news(replace(reports[9], waiting=()), reports[8])
    True
    """
    if reported is None or not progress.phase == reported.phase == "gathering" or not progress.waiting:
        return progress != reported
    state = progress.connected, progress.stalled
    return state != (reported.connected, reported.stalled) or len(progress.present) >= max(1, 2 * len(reported.present))


class Stall:
    """Time that a peer has waited in the same gossip step.

    Parameters
    ----------
    after
        Seconds of waiting after which the peer counts as stalled.

    Examples
    --------
    >>> stall, waits = Stall(after=1.0), Progress("ada", "learning", 3, ("bob",))
    >>> [stall.update(waits, step=(3, 0), now=now).stalled for now in (0.0, 0.5, 1.0)]
    [False, False, True]
    >>> stall.update(waits, step=(3, 1), now=1.5).stalled
    False
    """

    def __init__(self, *, after: float) -> None:
        self._after = after
        self._place: tuple[str, tuple[int, int]] | None = None  # phase and gossip step of the wait
        self._since = 0.0

    def update(self, progress: Progress, *, step: tuple[int, int], now: float) -> Progress:
        """Return what the peer does, with ``stalled`` set if it has waited long enough.

        Parameters
        ----------
        progress
            Present activity of the peer.
        step
            Round and gossip step that it is in.
        now
            Time in seconds.
        """
        position = (progress.phase, step) if progress.waiting or not progress.connected else None
        if position != self._place:
            self._place, self._since = position, now
        return replace(progress, stalled=position is not None and now - self._since >= self._after)


@dataclass(frozen=True)
class Errand:
    """Instructions for the processes of all peers of a run.

    Attributes
    ----------
    table, urls, folder
        Experiment with its calibrated noise, addresses of its brokers, and run directory.
    written
        Experiment as the user has written it.
    unaccounted
        Whether owners accept what their accounts refuse.
    threads
        Number of threads of a process.
    roster
        Public keys of this run, where its folder has the private ones.
    resume
        Round with which all go on, if there is one; ``None`` in a new run.
    owner
        Lock that keeps others out of the folder for as long as a process lives.
    """

    table: Mapping[str, Any]
    urls: Sequence[str]
    folder: Path
    unaccounted: bool
    threads: int
    roster: Mapping[str, bytes] | None
    resume: tuple[int | None] | None
    owner: Owner
    written: Mapping[str, Any]


def main(names: Sequence[str], errand: Errand, pipe: Connection) -> None:
    """Entry of a spawned process with one or more peers: everything they have to say goes through ``pipe``."""
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    set_threads(errand.threads)
    raise_file_limit()
    speaking = threading.Lock()  # peers also notify from threads

    def notify(event: Event) -> None:
        with speaking, contextlib.suppress(BrokenPipeError):  # the parent is gone, and so are we in a moment
            pipe.send(event)

    try:
        with _reporting(names[0], notify):  # of what concerns all
            resolved = plan(check(errand.table), only=names, unaccounted=True)  # the swarm has passed the account
            resolved = replace(resolved, unaccounted=errand.unaccounted, unpinned=check(errand.written))
        with asyncio.Runner(loop_factory=choose_loop(names, errand.threads, notify)) as runner:
            runner.run(_live_together(names, resolved, errand, notify))
    except P2PFLError as error:
        raise SystemExit(error.status) from None


def choose_loop(
    names: Sequence[str], threads: int, notify: Callable[[Event], None]
) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what creates the event loop of some peers; ``None`` for the usual loop of asyncio.

    A shared loop slows its clock down, but the parent expects signs of life in its own time: each turn may give one.
    """
    if len(names) == 1:
        return None
    due = time.monotonic() + LIFE_SIGN_INTERVAL

    def turned(now: float) -> None:
        nonlocal due
        if now >= due:
            due = now + LIFE_SIGN_INTERVAL
            notify(Alive(names[0]))

    return partial(SharedLoop, threads + 1, turned=turned)


async def _live_together(names: Sequence[str], resolved: Plan, errand: Errand, notify: Callable[[Event], None]) -> None:
    """Run the peers of this process to their ends in one loop; the first that fails ends the others."""
    roster = None if errand.roster is None else Roster(errand.roster)

    @cache  # measuring it takes milliseconds, and the first peer ends when all are there
    def memory() -> int | None:
        whole = private_memory()
        return None if whole is None else whole // len(names)

    async def begin(name: str) -> None:
        with _reporting(name, notify):
            if roster is None:
                owned = credentials(resolved.experiment.trust, peer=name)
            else:
                owned = Credentials(Identity.load(errand.folder / "keys" / f"{name}.pem"), roster)
            left = None if errand.resume is None else earlier(errand.folder, name, notify=notify).at(*errand.resume)
            await live(
                resolved,
                name,
                urls=errand.urls,
                folder=errand.folder,
                owned=owned,
                notify=notify,
                former=left,
                memory=memory,
            )

    try:
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(begin(name), name=name)
                await asyncio.sleep(0)  # one in each turn of the loop, so that it answers the broker meanwhile
    except BaseExceptionGroup as group:
        raise foremost(group) from None


@contextlib.contextmanager
def _reporting(name: str, notify: Callable[[Event], None]) -> Iterator[None]:
    """Report the error that ends a peer."""
    try:
        yield
    except P2PFLError as error:
        notify(Failed(name, str(error), error.status, type(error).__name__))
        raise
    except Exception as error:  # the parent prints one sentence; a defect of ours keeps its traceback
        notify(Failed(name, f"{type(error).__name__}: {error}", RunError.status, type(error).__name__))
        raise


def earlier(folder: Path, name: str, *, notify: Callable[[Notice], None]) -> Former:
    """Return what an earlier incarnation of a peer left in a run directory; report what cannot be used."""
    store = CheckpointStore(folder / "peers", name)
    former = store.former()
    for notice in store.damaged:
        notify(notice)
    return former


def _end_with(pipe: Connection) -> None:
    """End this process when the other end of the pipe closes: the parent is gone, be it by ``kill -9``."""
    with contextlib.suppress(OSError):
        pipe.poll(None)  # it never says anything
    os._exit(1)
