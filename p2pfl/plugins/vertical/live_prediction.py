"""Predictions of a vertical model for new rows, live: each party keeps its table, and the label holder receives sums.

The rows of the label holder are aligned with the tables of the other parties as in training. The label holder receives
one total: for each row that all know, the sum of what the others add to its prediction, a part of the linear predictor,
the sides of their splits, or a part of the embedding. For all other rows, its own model predicts. A feature holder
learns for which of its rows it was asked, and a helper the sizes of all overlaps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np

from p2pfl import topology as graphs
from p2pfl.algorithms import Exact
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import DataError, InputError, ModelError, PrivacyError
from p2pfl.core.files import DRIVE, OWNER_ONLY, read_bounded
from p2pfl.core.files import replace as replace_file
from p2pfl.core.tensors import torch
from p2pfl.data.parties import Parties, Party
from p2pfl.experiment import Experiment, Plan, plain
from p2pfl.experiment.composing import compose
from p2pfl.experiment.parts.peer_graph import peers_of, remaining
from p2pfl.learning.additive import Asking, Questions, Step
from p2pfl.plugins.vertical.alignment import AlignedRows, align
from p2pfl.plugins.vertical.keys import PersonKey, read_keys
from p2pfl.plugins.vertical.matching import ABSENT
from p2pfl.plugins.vertical.private_messages import collect, state, state_several
from p2pfl.plugins.vertical.short_session import SessionLearner
from p2pfl.plugins.vertical.split_network import SplitNetwork
from p2pfl.plugins.vertical.statement import listed
from p2pfl.plugins.vertical.vertical_descent import VerticalDescent
from p2pfl.plugins.vertical.vertical_glm import VerticalGLM
from p2pfl.plugins.vertical.vertical_lasso import VerticalLasso
from p2pfl.plugins.vertical.vertical_prediction import JoinedPredictions, PartyFile, predict_rows
from p2pfl.plugins.vertical.vertical_regression import FRACTION, MAX_PREDICTOR
from p2pfl.plugins.vertical.vertical_trees import VerticalBoosting

LINEAR_DISCLOSURE = (
    "the sum of the others' parts of the linear predictor of each of its rows; if it knows the columns of as many "
    "people as the others have columns, and of one more, it can compute their coefficients"
)
"""Description of what the label holder receives of linear models."""

DISCLOSURES: Mapping[str, str] = {
    **dict.fromkeys((VerticalGLM.name, VerticalLasso.name, VerticalDescent.name), LINEAR_DISCLOSURE),
    VerticalBoosting.name: (
        "on which side of each split of the others each of its rows lies, and so an interval of their useful columns"
    ),
    SplitNetwork.name: (
        "the sum of the others' embeddings of each of its rows, from which it can reconstruct columns if it knows "
        "those of some people"
    ),
}
"""Description of what the label holder receives of each of its rows, by model."""

SUFFIX = "-prediction"
"""Ending of the name of a session, so that no peer takes it for the run that learns."""

DAY = timedelta(days=1)
"""Time over which the rows that a feature holder answers are counted."""

MAX_LOG = 2**28
"""Largest size in bytes of the record of what a feature holder has answered."""

DIGEST_BYTES = 4
"""Bytes of the digest of a model by which the label holder sees whether parts fit together."""


@dataclass(frozen=True)
class AnswerLog:
    """Record of the predictions to which a feature holder has contributed, in a file that stays with it.

    Parameters
    ----------
    path
        The file, with a line of JSON for each request, and for each answer.
    most
        Number of rows that may be asked for within a day.
    """

    path: Path
    most: int

    def left(self, now: datetime) -> int:
        """Return the number of rows that may still be asked for.

        Parameters
        ----------
        now
            Time in UTC.
        """
        if not self.path.exists():
            return self.most
        lines = [
            json.loads(line) for line in read_bounded(self.path, largest=MAX_LOG).split(b"\n")[:-1]
        ]  # a crash may have cut off the last one
        recent: list[int] = [line.get("asked", 0) for line in lines if datetime.fromisoformat(line["time"]) > now - DAY]
        return max(self.most - sum(max(asked, 0) for asked in recent), 0)

    def note(self, now: datetime, *, asked: int | None = None, rows: Sequence[int] | None = None) -> None:
        """Append the number of rows that somebody asks for, or the rows of an answer, after the last complete line."""
        if self.path.exists():
            lines = read_bounded(self.path, largest=MAX_LOG)
            if not lines.endswith(b"\n"):
                replace_file(self.path, lines[: lines.rfind(b"\n") + 1], mode=OWNER_ONLY)
        facts = {"time": now.isoformat(), "asked": asked, "rows": rows}
        line = json.dumps({name: fact for name, fact in facts.items() if fact is not None})
        DRIVE.append(self.path, line.encode() + b"\n", mode=OWNER_ONLY)


class PredictionLearner(SessionLearner):
    """Learner of a session that predicts; its number is that of the rows that all parties know.

    Parameters
    ----------
    parties
        Roles and keys, and the new rows of the local parties.
    files
        Parts of the model at the local parties, with their new rows.
    logs
        Records of the local feature holders.
    run
        Name of the session.
    now
        Clock in UTC.
    """

    def __init__(
        self,
        parties: Parties,
        files: Mapping[str, PartyFile],
        logs: Mapping[str, AnswerLog],
        *,
        run: str,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(run=run)
        self.parties, self.files, self.logs, self._now = parties, files, logs, now
        self.features = tuple(peer for peer in parties.names if peer != parties.label)
        self.asked = list[int]()  # copies share both lists
        self.results = list[JoinedPredictions]()

    def asking(self, row: torch.Tensor, *, round: int) -> Asking:
        """Return the questions of a prediction."""
        del row
        label = self.parties.label
        asked, width = (yield from state_several(self._request, size=2, peers=[label])).tolist()
        self.asked.append(asked)
        if asked < 0 or width < 0:
            raise PrivacyError(
                f"{label} asks for {asked:,} rows of {width:,} numbers; it does not follow the protocol, so do not "
                "answer it again"
            )
        yield from self._agree(width)
        yield from self._admit(asked)
        agreed = replace(self.parties, sizes={label: asked})
        aligned = yield from align(agreed, self._source, run=f"{self.run} {round}".encode())
        for peer, log in self.logs.items():
            rows = aligned.positions(peer)
            log.note(self._now(), rows=np.sort(rows[rows != ABSENT]).tolist())
        whole = self.parties.rows == "labelled"
        part, size = partial(self._part, aligned, whole=whole), aligned.rows * (width + whole)
        message = yield from collect(part, size=size, to=label, among=self.features)
        if label in self.files:
            self.results.append(self._predicted(aligned, message.read(label), whole=whole))
        return Step(torch.tensor([aligned.common], dtype=torch.float64), over=True)

    def _request(self, peer: str) -> Ints:
        """Return the number of rows of the label holder, and of the numbers that others add to a prediction."""
        return np.array([len(self.parties.party(peer)), self.files[peer].width])

    def _agree(self, width: int) -> Questions[None]:
        """End the session where parties have parts of different models."""
        label, size = self.parties.label, len(self.features)

        def digest(peer: str) -> Ints:
            return np.array([_digest(self.files[peer], each) if each == peer else 0 for each in self.features])

        message = yield from collect(digest, size=size, to=label, among=self.features)

        def differing(peer: str) -> Ints:
            known = np.array([_digest(self.files[peer], each) for each in self.features])
            unequal: Ints = (message.read(peer) != known).astype(np.int64)
            return unequal

        differs = yield from state_several(differing, size=size, peers=[label])
        for peer, other in zip(self.features, differs.tolist(), strict=True):
            if other or (peer in self.files and self.files[peer].width != width):
                raise DataError(
                    f"{peer} has a part of another model than {label}; name the run directories of the same run"
                )

    def _admit(self, asked: int) -> Questions[None]:
        """End the session where a feature holder does not answer so many rows; else its record counts them."""
        now = self._now()
        left = yield from state(lambda peer: self.logs[peer].left(now), peers=self.features)
        for peer, rows in zip(self.features, left.tolist(), strict=True):
            if asked > rows:
                raise DataError(
                    f"{peer} answers {rows:,} more rows within 24 hours, but {self.parties.label} asks for {asked:,}; "
                    f"ask for fewer, or have {peer} raise --most"
                )
        for log in self.logs.values():
            log.note(now, asked=asked)

    def _part(self, aligned: AlignedRows, peer: str, *, whole: bool) -> Ints:
        """Return the part that a feature holder adds to predictions, and which rows it knows if ``whole``."""
        if peer not in self.features:
            return np.zeros(0, np.int64)  # of an empty total
        rows = aligned.positions(peer)
        part = self.files[peer].predictor_at(rows)
        if part.size and not np.abs(part).max() < MAX_PREDICTOR:
            raise ModelError(
                f"{peer} adds {np.abs(part).max():.3g} to a prediction, beyond what a sum can hold; check the units of "
                "its columns"
            )
        points = np.rint(part * FRACTION).astype(np.int64).ravel()
        known = (rows != ABSENT).astype(np.int64) << self.features.index(peer)
        return np.concatenate([points, known]) if whole else points

    def _predicted(self, aligned: AlignedRows, total: Ints, *, whole: bool) -> JoinedPredictions:
        """Return the predictions of the label holder's rows."""
        own, places = self.files[self.parties.label], aligned.positions(self.parties.label)
        foreign, known = np.zeros_like(own.predictor), [list[str]() for _ in range(len(own))]
        size = aligned.rows * own.width
        sums = total[:size].reshape(aligned.rows, *foreign.shape[1:]) / FRACTION
        if sums.size and np.abs(sums).max() > len(self.features) * MAX_PREDICTOR:
            raise PrivacyError(
                f"{self.parties.label} receives numbers that {listed(self.features)} cannot add to predictions, so a "
                "party does not follow the protocol; predict without it"
            )
        foreign[places] = sums
        everybody = (1 << len(self.features)) - 1
        there = total[size:] if whole else np.full(aligned.rows, everybody)
        for place, bits in zip(places.tolist(), there.tolist(), strict=True):
            features = [peer for number, peer in enumerate(self.features) if bits >> number & 1]
            known[place] = [self.parties.label, *features]
        return predict_rows(own, foreign, known)


def plan_prediction(
    experiment: Experiment,
    files: Mapping[str, PartyFile],
    logs: Mapping[str, AnswerLog],
    *,
    now: Callable[[], datetime],
) -> tuple[Plan, PredictionLearner]:
    """Return the plan of a session that predicts, and its learner.

    Parameters
    ----------
    experiment
        Experiment of the run.
    files, logs
        Parts of the model with new rows, and records, of the local parties.
    now
        Clock in UTC.

    Raises
    ------
    InputError
        The run has no keys of people.
    """
    options, peers = experiment.data.options, remaining(experiment, peers_of(experiment))
    keys = run_keys(experiment)
    label, helper = options["label"], options.get("helper")
    own = {
        peer: Party(np.zeros((len(file), 0)), tuple(tuple(values) for values in file.keys))
        for peer, file in files.items()
    }
    parties = Parties(
        tuple(sorted(peer for peer in peers if peer != helper)),
        label,
        helper,
        tuple(key.name for key in keys),
        own,
        least=0,
        rows="labelled" if options.get("rows") == "labelled" else "common",
    )
    name = f"{experiment.name}{SUFFIX}"
    learner = PredictionLearner(parties, files, logs, run=name, now=now)
    settings = {key: value for key, value in plain(experiment).items() if key in {"transport", "trust"}}
    made = compose(
        Exact(),
        learner,
        graphs.Topology.complete(peers),
        rounds=1,
        seed=experiment.seed,
        name=name,
        settings={**settings, "privacy": {"mode": experiment.privacy.mode}},
        live=True,
    )
    statement, learned = _disclosure(parties, DISCLOSURES[experiment.model.name])
    return replace(made, protection=replace(made.protection, totals=statement, learned=learned)), learner


def _disclosure(parties: Parties, shown: str) -> tuple[str, Mapping[str, str]]:
    """Return the statement of a session, and what each observer learns."""
    label, helper = parties.label, parties.helper
    common = "which of its rows each party has" if parties.rows == "labelled" else "which of its rows all parties have"
    asked = f"for which of its rows {label} asks"
    counts = f"for how many rows {label} asks, how many rows each party has, and how many all have, by key"
    learned = {f"{label}, the label holder": f"{common}; {shown}"}
    learned |= {f"{peer}, a feature holder": asked for peer in parties.names if peer != label}
    helped = ""
    if helper is not None:
        learned[f"{helper}, the helper"] = overlaps = "the sizes of all overlaps, and which keys repeat"
        helped = f"; {helper}, the helper, learns {overlaps}"
    statement = (
        f"no row leaves its owner; {label} receives {shown}; asked again, the model shows the same, but another model "
        f"of the same people shows more; {label} learns {common}; each feature holder learns {asked}{helped}; every "
        f"peer learns {counts}"
    )
    return statement, learned | {"every peer": counts}


def run_keys(experiment: Experiment) -> Sequence[PersonKey]:
    """Return the keys of people of a run whose parties can predict live.

    Raises
    ------
    InputError
        It has no keys, or predictions would show rows, or what the run hides.
    """
    options = experiment.data.options
    if "keys" not in options or "label" not in options:
        raise InputError(
            f'"{experiment.name}" has no keys of people, so parties cannot find new ones; predict with a run on '
            'data.name = "vertical"'
        )
    if experiment.model.name not in DISCLOSURES:
        raise InputError(
            f'live predictions of model.name = "{experiment.model.name}" would show rows of the parties, such as by '
            "distances to all training rows; predict with the files of all parties in one place, such as p2pfl predict "
            'RUN "new/{peer}.csv"'
        )
    if options.get("rows") == "hidden":
        raise InputError(
            f'"{experiment.name}" hides which people are common, but live predictions show who is known to the others; '
            'predict with the files of all parties in one place, such as p2pfl predict RUN "new/{peer}.csv"'
        )
    return read_keys(options["keys"])


def _digest(file: PartyFile, peer: str) -> int:
    """Return a digest of what the label holder and a feature holder both know of a model."""
    known = b"".join(each.astype("<f8").tobytes() for each in file.block.known_to_both(file.tensors, peer))
    return int.from_bytes(hashlib.sha256(known).digest()[:DIGEST_BYTES], "little")
