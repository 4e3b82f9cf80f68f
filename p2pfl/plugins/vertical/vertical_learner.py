""":class:`VerticalLearner`, the learner of peers that hold different columns of the same people."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.explanations import Explained
from p2pfl.core.rows import Layout, Rows
from p2pfl.core.tensors import torch
from p2pfl.core.traits import LearnerTraits
from p2pfl.data import Federation
from p2pfl.data.parties import Parties
from p2pfl.learning.additive import Asking, Step
from p2pfl.learning.learner import OwnBaselines, SequentialLearner
from p2pfl.plugins.exact.tensor_model import Shapes
from p2pfl.plugins.vertical.aligned_table import AlignedTable
from p2pfl.plugins.vertical.alignment import align, check_parties
from p2pfl.plugins.vertical.party_roles import MAX_PREDICTORS, PartyRoles, check_fits
from p2pfl.plugins.vertical.vertical_models import ALONE_SCORES, SCORES, ColumnModel, VerticalFit, VerticalModel
from p2pfl.privacy.keys import SecretSource, Source

OwnTensors = Mapping[str, Floats]
"""Tensors of a private model by name."""

Model = TypeVar("Model", bound=ColumnModel)


class ColumnLearner(SequentialLearner, Generic[Model]):
    """Base of learners of a model of columns that lie at different peers.

    The row of a peer has the public figures, and then its private model, packed.

    Parameters
    ----------
    parties
        Roles and keys, and the tables of the local parties.
    model
        Model of all columns.
    peers
        Names of the local peers, a helper included.
    run
        Name of the run, on which pseudonyms depend.
    seed
        Seed of the draw of test rows.
    test
        Share of the common rows that are held out for scores.
    """

    max_predictors: ClassVar[int] = MAX_PREDICTORS
    value_metric: ClassVar[str] = "r2 of the training rows"
    gradients_missing = "models of columns at different peers have none"

    def __init__(
        self, parties: Parties, model: Model, *, peers: Sequence[str], run: str, seed: int, test: float
    ) -> None:
        check_parties(parties)
        self.parties, self.model, self.run = parties, model, run
        self.roles = PartyRoles(parties.names, parties.label, parties.helper)
        self.peers, self.seed, self.test = tuple(peers), seed, test
        self._source: Source = SecretSource()
        self._table: list[AlignedTable] = []  # of the last round, in copies as well
        for peer, party in parties.own.items():
            model.check(peer, party, self.roles)
        self._layouts = {peer: self._own_layout(peer) for peer in self.peers}
        widest = max((each.size for each in self._layouts.values()), default=0)
        self.layout = Layout(("figures", "own"), ((len(model.figures),), (widest,)))

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the parameters."""
        return torch.float64

    def on(self, federation: Federation) -> Self:
        """Raise :class:`ModelError`, as columns are scaled by their owners.

        Raises
        ------
        ModelError
            Always.
        """
        del federation
        raise ModelError("columns at different peers are scaled by their owners; leave data.scale out")

    def drawing(self, source: Source) -> Self:
        """Return the learner that draws keys, orders and noise from a source."""
        other = copy(self)
        other._source = source  # noqa: SLF001
        return other

    def start(self, peers: Sequence[str]) -> Rows:
        """Return zeros for every peer, ``[R, P]``."""
        return torch.zeros(len(peers), self.layout.size, dtype=torch.float64)

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of rows of each peer's table, ``[R]`` int64."""
        own = self.parties.own
        return torch.tensor([len(own[peer]) if peer in own else 0 for peer in peers], dtype=torch.int64)  # [R]

    def train(self, row: torch.Tensor, *, peer: str, round: int) -> tuple[torch.Tensor, float]:
        """Return the model as it is: :meth:`baselines` has that of the label holder alone."""
        del peer, round
        return row, math.nan

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return the scores of the label holder by name, each ``[R]`` float64; NaN of other peers."""
        label = self.parties.label
        if part != "test" or label not in peers or not self.model.scores or not self.test:
            return {}
        index = list(peers).index(label)
        own = self.tensors(rows[index], peer=label)[SCORES]
        scores = torch.full((len(own), len(rows)), torch.nan, dtype=torch.float64)  # [S, R]
        scores[:, index] = torch.from_numpy(own)
        return dict(zip(self.model.scores, scores, strict=True))

    def tensors(self, row: torch.Tensor, *, peer: str) -> dict[str, Floats]:
        """Return the private model of a local peer in one row ``[P]``; nothing before the round."""
        layout = self._layouts[peer]
        packed = row[len(self.model.figures) :][: layout.size].unsqueeze(0)
        return {name: part[0].numpy() for name, part in layout.split(packed).items()}

    def kept(self, row: torch.Tensor, *, peer: str) -> dict[str, torch.Tensor]:
        """Return the tensors of a peer's model, for the file that it keeps."""
        if peer not in self.parties.own:
            return {"figures": row[: len(self.model.figures)].clone()}
        tensors = self.model.kept(self.tensors(row, peer=peer))
        return {name: torch.from_numpy(np.array(value, np.float64)) for name, value in tensors.items()}

    def described(self, peer: str | None = None) -> Mapping[str, Any]:
        """Return the description of a peer's model: its own columns, and nobody else's; or what all may know."""
        if peer is None:
            return self.model.described(None, label=False)
        party = self.parties.own.get(peer)
        if party is None:  # a helper has figures alone
            return {}
        return self.model.described(party, label=peer == self.parties.label)

    def explained(self, row: torch.Tensor) -> Explained | None:
        """Return the explanation of the one local peer's model ``[P]``; ``None`` of several peers, and of a helper."""
        if len(self.peers) != 1 or self.peers[0] not in self.parties.own:
            return None
        [peer] = self.peers
        return self.model.explained(
            self.tensors(row, peer=peer), self.parties.party(peer), label=peer == self.parties.label
        )

    def shares(self, models: Mapping[str, Mapping[str, torch.Tensor]]) -> Mapping[str, float]:
        """Return the share of each party in R²: Shapley's value over all subsets of parties, exactly.

        Raises
        ------
        ModelError
            The model has no R².

        References
        ----------
        Grömping, Relative importance for linear regression in R, Journal of Statistical Software 17, 2006.
        """
        stated = {peer: models[peer]["value"] for peer in self.parties.names if "value" in models[peer]}
        shares = {peer: float(value[0]) for peer, value in stated.items() if value.ndim == 1}  # trees have other ones
        if not shares or not all(map(math.isfinite, shares.values())):
            raise ModelError(
                'the value of columns is their share of R²; set model.name to "glm" and model.options.family to '
                '"gaussian"'
            )
        return shares

    def predictors(self, peer: str) -> int:
        """Return how many linear predictors of each row of a local party the run shows the label holder at most.

        What shows more of a row than a predictor counts as all that may be shown.
        """
        if peer not in self.roles.features:
            return 0
        tested = int(self.test > 0 and bool(self.model.scores) and self.parties.rows != "hidden")
        return MAX_PREDICTORS if self.model.predictors else tested

    def _own_layout(self, peer: str) -> Layout:
        if peer not in self.parties.own:
            return Layout((), ())
        shapes = self.shapes(peer)
        return Layout(tuple(shapes), tuple(shapes.values()))

    @abstractmethod
    def shapes(self, peer: str) -> Shapes:
        """Return the shapes of the private tensors of a local party."""

    def _packed(self, figures: torch.Tensor, layout: Layout, tensors: OwnTensors) -> torch.Tensor:
        """Return the row ``[P]`` of the public figures and a private model."""
        row = torch.zeros(self.layout.size, dtype=torch.float64)
        row[: len(figures)] = figures
        if layout.size:
            parts = {name: torch.from_numpy(np.array(tensors[name], np.float64)).unsqueeze(0) for name in layout.names}
            row[len(figures) : len(figures) + layout.size] = layout.join(parts)[0]
        return row


class VerticalLearner(ColumnLearner[VerticalModel]):
    """Learner of a model that takes one round.

    The round aligns the rows, fits the model, and sends the label holder what scores of the test rows take.
    """

    traits: ClassVar[LearnerTraits] = LearnerTraits(additive=True, converges=True, private=True)
    _begun = 0  # fits of this learner, which is another one once a peer begins again

    def shapes(self, peer: str) -> Shapes:
        """Return the shapes of the private tensors of a local party."""
        return self.model.shapes(self.parties.party(peer), label=peer == self.parties.label)

    def asking(self, row: torch.Tensor, *, round: int) -> Asking:
        """Return the questions of the round."""
        del row
        source = self._source
        aligned = yield from align(self.parties, source, run=f"{self.run} {round}".encode())
        table = AlignedTable(
            self.parties, aligned.positions, aligned.rows, self.seed, self.test, source, common=aligned.common
        )
        self._table[:] = [table]
        self._begun += 1
        check_fits(self._begun, of="this run")
        fit = yield from self.model.fit(table, self.roles, source)
        scores = yield from self.model.score(table, self.roles, fit)
        figures = torch.tensor([fit.figures[name] for name in self.model.figures], dtype=torch.float64)

        def own(peer: str) -> torch.Tensor:
            tensors = self._private(peer, table, fit, scores)
            return self._packed(figures, self._layouts[peer], tensors)

        return Step(self._packed(figures, Layout((), ()), {}), self.model.mean_loss(fit), over=True, own=own)

    def baselines(self, models: Mapping[str, torch.Tensor]) -> OwnBaselines:
        """Return the scores of the label holder's columns alone, and of all columns where they are in one place."""
        label, named = self.parties.label, dict[str, dict[str, float]]()
        if label not in models:
            return OwnBaselines({})
        if self.test and self.model.scores:
            alone = self.tensors(models[label], peer=label)[ALONE_SCORES]
            named[label] = dict(zip(self.model.scores, alone.tolist(), strict=True))
        if not self._table or {*self.parties.own} != {*self.parties.names}:
            return OwnBaselines(named)
        own = {peer: self.tensors(models[peer], peer=peer) for peer in self.parties.names if peer in models}
        pooled, difference = self.model.pooled(self._table[0], own)
        return OwnBaselines(named, pooled if self.test else None, difference)

    def _private(
        self, peer: str, table: AlignedTable, fit: VerticalFit, scores: Callable[[], OwnTensors]
    ) -> OwnTensors:
        """Return the private model of a local peer."""
        if peer not in self.parties.own:
            return {}
        tensors = self.model.own(peer, table, fit)
        return {**tensors, **scores()} if peer == self.parties.label else tensors
