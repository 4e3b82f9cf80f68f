""":class:`SplitLearner`, the learner of a network whose parts lie at peers with different columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.rows import Layout, Rows
from p2pfl.core.traits import LearnerTraits
from p2pfl.data.parties import Parties
from p2pfl.experiment.schema import LearningSettings
from p2pfl.learning.additive import Asking, Step, add_up, answer_questions
from p2pfl.learning.checks import find_device
from p2pfl.learning.learner import OwnBaselines
from p2pfl.learning.steps.optimisers import Recipe
from p2pfl.plugins.exact.tensor_model import Shapes
from p2pfl.plugins.vertical.aligned_table import AlignedTable, StandardisedColumns, kept_columns
from p2pfl.plugins.vertical.alignment import align
from p2pfl.plugins.vertical.label_protection import changed_labels
from p2pfl.plugins.vertical.matching import ABSENT
from p2pfl.plugins.vertical.party_network import PartyTraining, SplitSteps
from p2pfl.plugins.vertical.party_roles import MAX_PREDICTORS, check_fits
from p2pfl.plugins.vertical.split_network import FIGURES, TARGET, SplitNetwork
from p2pfl.plugins.vertical.split_training import SplitData, SplitRound
from p2pfl.plugins.vertical.vertical_learner import ColumnLearner
from p2pfl.plugins.vertical.vertical_models import SCORES

PLACE = "place"
"""Tensor of a party: for each row of its table, its place in the common order counted from 1; 0 for none."""

LABELS = "labels"
"""Tensor of the label holder: for each row of its table, the label that networks learn from."""


class SplitLearner(ColumnLearner[SplitNetwork]):
    """Learner of a split network.

    The first round aligns the rows. All that goes on from round to round is the private part of a party's row, so that
    its checkpoint holds it: the network and its optimiser, the common order, and changed labels.

    Parameters
    ----------
    parties, model, peers, run, seed, test
        As of :class:`~p2pfl.plugins.vertical.vertical_learner.ColumnLearner`.
    steps
        Steps of a round.
    rounds
        Number of rounds, for the baselines.
    """

    traits: ClassVar[LearnerTraits] = LearnerTraits(additive=True, private=True)
    _begun = (-1, 0)  # the last round of this learner, and how often it has begun

    def __init__(
        self,
        parties: Parties,
        model: SplitNetwork,
        *,
        peers: Sequence[str],
        run: str,
        seed: int,
        test: float,
        steps: SplitSteps,
        rounds: int,
    ) -> None:
        self.steps, self.rounds = steps, rounds
        super().__init__(parties, model, peers=peers, run=run, seed=seed, test=test)

    def shapes(self, peer: str) -> Shapes:
        """Return the shapes of the private tensors of a local party."""
        party = self.parties.party(peer)
        shapes = self._training(peer).shapes | {PLACE: (len(party),)}
        shapes |= dict.fromkeys(("mean", "deviation"), (party.features.shape[1],))
        if peer == self.parties.label:
            shapes |= {LABELS: (len(party),), TARGET: (2,), SCORES: (len(self.model.scores),)}
        return shapes

    def asking(self, row: torch.Tensor, *, round: int) -> Asking:
        """Return the questions of the first round, before which there is no private model."""
        del row
        return self.asking_from(self.start(self.peers), peers=self.peers, round=round)

    def asking_from(self, rows: Rows, *, peers: Sequence[str], round: int) -> Asking:
        """Return the questions of a round that starts from the models ``[R, P]`` of local peers."""
        last, begun = self._begun
        self._begun = round, begun + 1 if round == last else 1
        check_fits(self._begun[1], of=f"round {round}")
        before = {}
        if rows[0][0]:  # training rows, the first figure of every peer
            before = {peer: self.tensors(row, peer=peer) for peer, row in zip(peers, rows, strict=True)}
            table = self.table(rows[0], before)
        else:
            aligned = yield from align(self.parties, self._source, run=f"{self.run} {round}".encode())
            table = AlignedTable(self.parties, cache(aligned.positions), aligned.rows, self.seed, self.test)
        label, labels = self.parties.label, cache(partial(self._labels, before))
        training = cache(lambda peer: self._training(peer, round=round, tensors=before.get(peer)))
        playing = SplitRound(self._data(table, label, self.roles.features, labels), self.steps, training, round=round)
        yield from playing.ask()
        loss = yield from playing.loss()
        outputs = yield from playing.test()
        figures = torch.tensor([len(table.trained), len(table.held_out), loss], dtype=torch.float64)

        def own(peer: str) -> torch.Tensor:
            if peer not in self.parties.own:
                return self._packed(figures, Layout((), ()), {})
            columns, rows = table.standardised(peer), len(self.parties.party(peer))
            tensors = playing.settle(peer).tensors() | {PLACE: _places(table.positions(peer), rows)}
            tensors |= {"mean": columns.mean, "deviation": self._units(columns)}
            if peer == label:
                tensors |= {LABELS: labels().astype(np.float64), TARGET: self._target(table)}
                tensors |= {SCORES: self._scores(table, outputs())}
            return self._packed(figures, self._layouts[peer], tensors)

        return Step(self._packed(figures, Layout((), ()), {}), loss, own=own)

    def kept(self, row: torch.Tensor, *, peer: str) -> dict[str, torch.Tensor]:
        """Return the tensors of a peer's model, for the file that it keeps."""
        return super().kept(row, peer=peer) | {FIGURES: row[: len(self.model.figures)].clone()}

    def baselines(self, models: Mapping[str, torch.Tensor]) -> OwnBaselines:
        """Return the scores of one network of the label holder's columns, and of one of all columns in one place.

        Both take the steps that the parties take together, and learn from the labels as they are.
        """
        label = self.parties.label
        if label not in models or not self.test:
            return OwnBaselines({})
        before = {peer: self.tensors(row, peer=peer) for peer, row in models.items() if peer in self.parties.own}
        table = self.table(models[label], before)
        alone = {label: self._train_alone(table, [label])}
        if {*before} != {*self.parties.names}:
            return OwnBaselines(alone)
        return OwnBaselines(alone, self._train_alone(table, self.parties.names))

    def scores_without_others(self, models: Mapping[str, torch.Tensor]) -> dict[str, float]:
        """Return the scores of the split network with zeros in place of the other parties' embeddings.

        Parameters
        ----------
        models
            Models ``[P]`` by peer, of which that of the label holder is read.
        """
        label = self.parties.label
        before = {label: self.tensors(models[label], peer=label)}
        table = self.table(models[label], before)
        training = self._training(label, tensors=before[label])
        scores = self._scores(table, training.outputs(self.embedding(models, label, test=True)))
        return dict(zip(self.model.scores, scores.tolist(), strict=True))

    def predictors(self, peer: str) -> int:
        """Return all that may be shown of a row: embeddings show columns, and gradients what is predicted from them."""
        return MAX_PREDICTORS if peer in self.parties.names else 0

    def embedding(self, models: Mapping[str, torch.Tensor], peer: str, *, test: bool = False) -> torch.Tensor:
        """Return a party's part of the embedding of the training rows, or of the test rows, ``[n, k]``.

        Parameters
        ----------
        models
            Models ``[P]`` by peer, of which that of the party is read.
        peer, test
            The party, and whether the rows are those of test.
        """
        before = {peer: self.tensors(models[peer], peer=peer)}
        data = self._data(self.table(models[peer], before), self.parties.label, (), lambda: before[peer][LABELS])
        return self._training(peer, tensors=before[peer]).embedding(data.columns(peer, test=test))

    def table(self, row: torch.Tensor, before: Mapping[str, Mapping[str, Floats]]) -> AlignedTable:
        """Return the common rows of a run that has begun.

        Parameters
        ----------
        row
            Any peer's model ``[P]``, whose figures all peers have.
        before
            Private models of local parties.
        """
        samples, held_out = row[:2].long().tolist()
        positions = cache(partial(_positions_of, before, samples + held_out))
        return AlignedTable(self.parties, positions, samples + held_out, self.seed, self.test)

    def _train_alone(self, table: AlignedTable, owners: Sequence[str]) -> dict[str, float]:
        """Return the scores of one network of the columns of some parties after all rounds."""
        label = self.parties.label
        party = self.parties.party(label)
        data = self._data(table, label, (), lambda: party.targets, owners=owners)
        width, own = data.columns(label).shape[1], len(owners) == 1
        tensors: Mapping[str, Floats] | None = None
        for round in range(self.rounds):
            network = self.model.network(
                width,
                outputs=self.model.outputs(party),
                seed=self.seed,
                peer=label,
                bottom=party.bottom if own else None,
            )
            training = PartyTraining(network, self.steps, peer=label, round=round, tensors=tensors)
            playing = SplitRound(data, self.steps, {label: training}.__getitem__, round=round)
            answer_questions(playing.ask(), lambda question: add_up(question, [label]))
            tensors = playing.settle(label).tensors()
        outputs = training.outputs(training.embedding(data.columns(label, test=True)))
        return dict(zip(self.model.scores, self._scores(table, outputs).tolist(), strict=True))

    def _training(self, peer: str, *, round: int = 0, tensors: Mapping[str, Floats] | None = None) -> PartyTraining:
        """Return the network of a local party in a round."""
        party = self.parties.party(peer)
        outputs = self.model.outputs(party) if peer == self.parties.label else None
        columns = len(kept_columns(party))
        network = self.model.network(columns, outputs=outputs, seed=self.seed, peer=peer, bottom=party.bottom)
        return PartyTraining(network, self.steps, peer=peer, round=round, tensors=tensors)

    def _data(
        self,
        table: AlignedTable,
        label: str,
        features: tuple[str, ...],
        labels: Callable[[], npt.NDArray[Any]],
        *,
        owners: Sequence[str] = (),
    ) -> SplitData:
        """Return the rows of a round; the columns of the label holder are those of ``owners``, if there are some."""

        @cache
        def columns(peer: str, *, test: bool = False) -> torch.Tensor:
            parts = [table.standardised(owner) for owner in owners or [peer]]
            each = [
                (part.test if test else part.train) * (part.deviation / self._units(part))[part.kept] for part in parts
            ]
            return torch.from_numpy(np.concatenate(each, axis=1)).to(self.steps.dtype).to(self.steps.device)

        @cache
        def targets() -> torch.Tensor:
            chosen = labels()[table.positions(label)[table.trained]]
            if self.model.task == "classification":
                return torch.from_numpy(chosen.astype(np.int64)).to(self.steps.device)
            mean, deviation = self._target(table)
            return torch.from_numpy((chosen - mean) / deviation).to(self.steps.dtype).to(self.steps.device)

        loss = self.model.loss(protected=not owners)
        rows, tested = len(table.trained), len(table.held_out)
        return SplitData(label, features, rows, tested, self.model.width, columns, targets, loss)

    def _labels(self, before: Mapping[str, Mapping[str, Floats]]) -> npt.NDArray[Any]:
        """Return the targets of all rows of the label holder's table, changed where they are protected."""
        label = self.parties.label
        if before:
            return before[label][LABELS]
        party = self.parties.party(label)
        if self.model.label_epsilon is None:
            return party.targets
        return changed_labels(self.parties, self.model.response(self.model.outputs(party)), self._source)

    def _units(self, columns: StandardisedColumns) -> Floats:
        """Return the units in which a network takes the columns of a party, ``[F]``."""
        if self.model.standardise:
            return columns.deviation
        spread = columns.deviation[columns.kept] * columns.train.std(axis=0)  # 0 of a constant column
        return np.full(len(columns.mean), math.sqrt(float((spread**2).mean())) or 1.0 if spread.size else 1.0)

    def _target(self, table: AlignedTable) -> Floats:
        """Return the mean and the deviation of the targets, by which numbers are scaled."""
        if self.model.task == "classification":
            return np.array([0.0, 1.0])
        targets = table.targets()
        return np.array([targets.mean(), targets.std() or 1.0])

    def _scores(self, table: AlignedTable, outputs: torch.Tensor) -> Floats:
        """Return the scores of outputs for the test rows."""
        mean, deviation = self._target(table)
        scores = self.model.score(outputs.cpu().double().numpy() * deviation + mean, table.targets(test=True))
        return np.array([scores[name] for name in self.model.scores])


def split_steps(learning: LearningSettings, *, seed: int, absent: float) -> SplitSteps:
    """Return the steps of a split network."""
    schedule = learning.scheduling
    recipe = Recipe(
        learning.optimizer,
        learning.rate,
        learning.options,
        schedule.name,
        schedule.options,
        schedule_by=schedule.by,
        warmup=schedule.warmup,
    )
    return SplitSteps(
        recipe,
        batch=None if learning.batch == "all" else learning.batch,
        epochs=learning.epochs,
        steps=learning.steps,
        seed=seed,
        absent=absent,
        dtype=torch.float64 if learning.dtype == "float64" else torch.float32,
        device=find_device(learning.device),
    )


def _places(positions: Ints, rows: int) -> Floats:
    """Return for each row of a table its place in the common order, counted from 1; 0 for none.

    Examples
    --------
    >>> _places(np.array([2, -1, 0]), 4).tolist()
    [3.0, 0.0, 1.0, 0.0]
    """
    places = np.zeros(rows)
    known = np.flatnonzero(positions != ABSENT)
    places[positions[known]] = known + 1
    return places


def _positions_of(before: Mapping[str, Mapping[str, Floats]], count: int, peer: str) -> Ints:
    """Return the rows of a party in the common order, the inverse of :func:`_places`."""
    places = before[peer][PLACE].astype(np.int64)
    positions = np.full(count, ABSENT)
    known = np.flatnonzero(places)
    positions[places[known] - 1] = known
    return positions
