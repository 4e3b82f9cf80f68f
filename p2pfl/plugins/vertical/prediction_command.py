"""``p2pfl predict --live``: the label holder asks, and the other peers answer until they are stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
from msgspec.structs import replace

from p2pfl.cli import terminal
from p2pfl.cli.running.running_commands import brokers_of_peer
from p2pfl.core.errors import InputError, P2PFLError, PeerError, RunError
from p2pfl.experiment import Experiment
from p2pfl.experiment.schema import TransportSettings
from p2pfl.network.peer.updates import Event, Progress
from p2pfl.plugins.vertical.live_prediction import AnswerLog, plan_prediction, run_keys
from p2pfl.plugins.vertical.short_session import join_session
from p2pfl.plugins.vertical.vertical_prediction import (
    JoinedPredictions,
    PartyFile,
    block_files,
    predict_rows,
    read_party_file,
)
from p2pfl.results import Run
from p2pfl.results.notices.kinds import Notice

MAX_LATE_SESSIONS = 10
"""Sessions for which a label holder may come too late, as others are still in that of an earlier request."""

SESSION_PAUSE = 3.0
"""Seconds between two sessions: a peer that joins while others still leave the first one is too late for it."""

LOG = "{peer}.answered.jsonl"
"""Name of the record of a feature holder, beside its part of the model."""


def take_part(
    folder: Path, table: str | None, *, name: str | None, brokers: Sequence[str], most: int, unaccounted: bool
) -> JoinedPredictions:
    """Predict live, or answer requests until the command is stopped.

    Parameters
    ----------
    folder
        Run directory of the local peer.
    table
        Path of its new rows; ``None`` at a helper.
    name
        Name of the peer; ``None`` for the only one in the run directory.
    brokers
        Addresses of brokers, in place of those of the experiment.
    most
        Number of rows that a feature holder answers in 24 hours.
    unaccounted
        True if a table that has an account is read all the same.

    Returns
    -------
    JoinedPredictions
        Predictions at the label holder; other peers return by an interrupt alone.

    Raises
    ------
    InputError
        The peer, its file or its table is missing, or does not fit; or a feature holder does not answer.
    """
    run = Run.load(folder)
    peer = name or _only_peer(folder)
    experiment = run.experiment
    if brokers:
        broker = brokers[0] if len(brokers) == 1 else tuple(brokers)
        experiment = _with_transport(experiment, replace(experiment.transport, broker=broker))
    helper, keys = experiment.data.options.get("helper"), run_keys(experiment)
    if (peer == helper) != (table is None):
        wanted = "has no rows; write - for its table" if peer == helper else "needs the table of its new rows"
        raise InputError(f"{peer} {wanted}")
    if peer == helper:
        _serve(experiment, peer, {}, most=most, folder=folder)
    path = block_files(run).get(peer)
    if path is None or table is None:
        raise InputError(f"{folder} has no part of the model of {peer}; name the run directory of this peer")
    file = read_party_file(path, table, keys, unaccounted=unaccounted)
    if not file.block.label:
        _serve(experiment, peer, {peer: file}, most=most, folder=folder)
    return _ask(experiment, peer, file)


class _Notes:
    """Lines for people: who learns what and notices, each once, and for whom the peer waits."""

    def __init__(self) -> None:
        self._printed = set[str]()
        self._waiting: tuple[str, ...] = ()

    def observe(self, event: Event) -> None:
        """Print what is new."""
        if isinstance(event, Progress) and event.phase == "gathering" and event.waiting != self._waiting:
            self._waiting = event.waiting
            if event.waiting:
                terminal.note(f"p2pfl: {event.peer} waits for {', '.join(event.waiting)}")
        if isinstance(event, Notice):
            self.state(str(event))

    def state(self, sentence: str) -> None:
        """Print a sentence, unless it was printed before."""
        if sentence not in self._printed:
            self._printed.add(sentence)
            terminal.note(f"p2pfl: {sentence}")


def _only_peer(folder: Path) -> str:
    """Return the name of the only peer in a run directory."""
    names = sorted(path.name.removesuffix(".safetensors") for path in folder.glob("peers/*.safetensors"))
    if len(names) != 1:
        raise InputError(f"{folder} has the models of {', '.join(names) or 'no peer'}; name one peer with --name")
    return names[0]


def _with_transport(experiment: Experiment, transport: TransportSettings) -> Experiment:
    return replace(experiment, transport=transport)


def _ask(experiment: Experiment, peer: str, file: PartyFile) -> JoinedPredictions:
    """Return the predictions of all parties, or those of the label holder's own model if a peer is away."""
    experiment = _with_transport(experiment, replace(experiment.transport, outage=0.0))
    notes = _Notes()
    for _ in range(MAX_LATE_SESSIONS):
        resolved, learner = plan_prediction(experiment, {peer: file}, {}, now=partial(datetime.now, UTC))
        notes.state(resolved.protection.totals)
        try:
            join_session(resolved, peer, urls=brokers_of_peer(experiment), notify=notes.observe)
        except PeerError as error:
            if not (error.absent or error.gone):
                raise
            terminal.note(f"p2pfl: {error}; all rows have the prediction of {peer} alone")
            return predict_rows(file, np.zeros_like(file.predictor), [()] * len(file))
        if learner.results:
            return learner.results[-1]  # an attempt that was played again has left another one
        time.sleep(SESSION_PAUSE)
    raise RunError("the other peers do not end an earlier request; restart them, and ask again")


def _serve(experiment: Experiment, peer: str, files: dict[str, PartyFile], *, most: int, folder: Path) -> NoReturn:
    """Answer one request after the other, until the command is interrupted."""
    gather = replace(experiment.transport.gathering, seconds=float("inf"))
    experiment = _with_transport(experiment, replace(experiment.transport, gather=gather))
    logs = {name: AnswerLog(folder / "peers" / LOG.format(peer=name), most) for name in files}
    urls, notes = brokers_of_peer(experiment), _Notes()
    while True:
        resolved, learner = plan_prediction(experiment, files, logs, now=partial(datetime.now, UTC))
        notes.state(resolved.protection.totals)
        try:
            join_session(resolved, peer, urls=urls, notify=notes.observe)
        except P2PFLError as error:
            if not (learner.asked or (isinstance(error, PeerError) and error.gone)):
                raise
            terminal.note(f"p2pfl: no answer, because {error}")
        else:
            if learner.asked:  # it may have come too late for the session of an earlier request
                terminal.note(f"p2pfl: {peer} has answered a request for {learner.asked[-1]:,} rows")
        time.sleep(SESSION_PAUSE)
