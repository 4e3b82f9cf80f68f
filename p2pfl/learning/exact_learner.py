""":class:`ExactLearner`, a learner whose model follows from exact totals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Self

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.explanations import Explained
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.core.traits import LearnerTraits
from p2pfl.data import Federation, IntArray
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Asking, Questions, Step, answer_questions
from p2pfl.learning.exact_model import Comparing, ExactModel, Own, Part, Personal, Tallied, Tensors
from p2pfl.learning.histograms import histograms, length, score_histograms
from p2pfl.learning.learner import SequentialLearner
from p2pfl.learning.losses import PerSample, accuracy, cross_entropy, squared_error
from p2pfl.learning.metrics import concordance
from p2pfl.learning.set_scores import FunctionScore, SetScore, r2
from p2pfl.learning.shared_keys import count_shared_keys
from p2pfl.learning.small_cells import CellCheck
from p2pfl.privacy.keys import Source

CONCORDANCE = FunctionScore(
    lambda outputs, targets: concordance(outputs[:, 0].numpy(), targets.numpy()), name="concordance"
)
"""Concordance of log risks and times, all of which are compared."""

SCORING: Mapping[str, dict[str, PerSample | SetScore]] = {
    "classes": {"loss": cross_entropy, "accuracy": accuracy},
    "numbers": {"loss": squared_error, "r2": r2},
    "risks": {"concordance": CONCORDANCE},
    "tallied risks": {"concordance": CONCORDANCE},
    "nothing": {},
}
"""Scores by what a model predicts, as functions of outputs and targets."""


class ExactLearner(SequentialLearner):
    """Learner of a model that is a public function of totals.

    A peer that learns alone asks itself: its totals are its own answers. So the baselines ``alone`` and ``pooled`` run
    the same code as peers that learn together, and the model of all peers equals that of their pooled data bit for bit.

    Parameters
    ----------
    model
        Model that asks for totals and follows from them.
    federation
        Samples of each peer.

    Examples
    --------
    >>> from p2pfl.data import gather
    >>> from p2pfl.plugins.exact import Boosting
    >>> data = gather({"ada": (torch.rand(40, 2), torch.arange(40) % 2)}, seed=0)
    >>> learner = ExactLearner(Boosting(features=2, classes=2, rounds=3, min_samples_leaf=1), data)
    >>> rows = learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows
    >>> sorted(learner.evaluate(rows, peers=["ada"]))
    ['accuracy', 'loss']
    """

    def __init__(self, model: ExactModel, federation: Federation) -> None:
        self.model, self.federation, self.layout = model, federation, model.layout
        self.gradients_missing = f"{model.name} has no gradients; choose the algorithm exact"
        self._source: Source | None = None
        elsewhere = federation.elsewhere  # a worker of a simulation holds a part of the peers
        self._everyone = tuple(federation.peers if elsewhere is None else elsewhere.sizes)
        self._least = 1
        own = model.traits
        self.traits = LearnerTraits(
            any_data=True, torch_model=True, additive=True, noisy=own.noisy, converges=own.converges
        )
        self._parts: dict[int, tuple[IntArray, Part]] = {}
        self._shared_keys = list[int]()  # one number, once it is known; copies share the list
        if federation.keys and own.noisy:
            raise ModelError(
                f"data.options.key_across counts persons without noise, but {model.name} adds noise; leave it out"
            )
        kind = torch.float32 if own.single else torch.float64
        self._features = federation.dataset.features.flatten(1).to(kind).numpy()  # [n, F]
        targets = federation.dataset.targets
        if targets.dim() > 1:
            raise ModelError(
                f"a model that follows from totals predicts one target for each sample, not {tuple(targets.shape[1:])} "
                "of them; train a torch model"
            )
        _check_units(model, federation)
        self._targets = (targets.double() if targets.is_floating_point() else targets).numpy()  # [n]

    @property
    def whole(self) -> frozenset[str]:
        """Names of the scores that compare samples with each other, so that those of peers have no mean."""
        return frozenset({"loss", *self.scoring} if isinstance(self.model, Tallied) else ())

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the parameters."""
        return torch.float64

    def on(self, federation: Federation) -> Self:
        """Return the same learner on other data of the same shape."""
        other = type(self)(self.model, federation)
        if self._source is not None:
            other._source, other._everyone = self._source, self._everyone  # noqa: SLF001
        other._least = self._least  # noqa: SLF001
        return other

    def drawing(self, source: Source) -> Self:
        """Return the learner itself; :meth:`checking_cells` hides its counts."""
        del source
        return self

    def checking_cells(self, source: Source, *, peers: Sequence[str], least: int) -> Self:
        """Return the learner that hides from ``peers`` which cells are small, and wants ``least`` samples in each."""
        other = copy(self)
        if peers:
            other._source, other._everyone = source, tuple(peers)  # noqa: SLF001
        other._least = least  # noqa: SLF001
        return other

    def pooled(self, federation: Federation, *, peers: int, rounds: int) -> Self:
        """Return the learner of one peer that holds the data of all; it takes as many rounds as they do."""
        del peers, rounds
        return self.on(federation)

    def start(self, peers: Sequence[str]) -> Rows:
        """Return the model before the first round for every peer, ``[R, P]``."""
        return self._row(self.model.start()).repeat(len(peers), 1)  # [R, P]

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples of each peer, ``[R]`` int64."""
        return self.federation.samples(peers)

    def asking(self, row: torch.Tensor, *, round: int) -> Asking:
        """Return the questions of a round that starts from the model ``[P]``; the model itself counts its rounds."""
        tensors = self.tensors(row)
        if not round and (len(self._everyone) > 1 or self.model.merges):
            check = CellCheck(self.raw, self._everyone, self.wanted, self._source)
            tensors = yield from self.model.check_cells(tensors, check)
        if len(self._everyone) > 1:
            yield from self.model.check_rows(tensors, CellCheck(self.own, self._everyone, self.wanted, self._source))
        if not round and self.federation.keys:
            self._shared_keys[:] = yield from self._shared()
        return (yield from self._asking(self.model, tensors))

    @property
    def shared_keys(self) -> int | None:
        """Number of people of a peer that another peer has, too; ``None`` if it is not known."""
        return next(iter(self._shared_keys), None)

    def _shared(self) -> Questions[list[int]]:
        """Return the number of persons that several peers have; nothing where a process has a part of the peers."""
        keys = self.federation.keys
        if self._source is not None:
            return [(yield from count_shared_keys(keys.__getitem__, peers=self._everyone, source=self._source))]
        if self.federation.elsewhere is not None:
            return []
        sets = [set(own) for own in keys.values()]  # of a simulation, which hides nothing
        return [sum(map(len, sets)) - len(set[str]().union(*sets))]

    def train(self, row: torch.Tensor, *, peer: str, round: int) -> tuple[torch.Tensor, float]:
        """Return the model of a peer that learns alone, which takes its own answers for totals.

        A peer whose own data determine no model, for example because they separate two classes, keeps its last one;
        its loss is NaN.
        """
        try:
            step = alone(self._asking_alone(row, peer=peer, round=round), peer)
        except LearningError:
            return row, math.nan
        return step.row, step.loss or 0.0

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return scores by name, each ``[R]`` float64: ``loss`` with ``accuracy`` or ``r2``.

        There are none of statistics, and none where no sample is held out. Equal models on the same samples are
        evaluated once.
        """
        if self.model.scored == "nothing" or (part == "test" and not self.federation.tests):
            return {}
        positions = [getattr(self.federation, part)[peer] for peer in peers]
        personal = isinstance(self.model, Personal)
        shared = not personal and all(each is positions[0] for each in positions)
        if shared and len(rows) > 1 and bool((rows == rows[0]).all()):
            once = self.evaluate(rows[:1], peers=peers[:1], part=part)
            return {name: score.repeat(len(rows)) for name, score in once.items()}  # [R]
        each = [
            self._scores(row, self._part(held), peer=peer)
            for row, held, peer in zip(rows, positions, peers, strict=True)
        ]
        return {name: torch.stack([scores[name] for scores in each]) for name in each[0]}  # [R]

    @property
    def scoring(self) -> Mapping[str, PerSample | SetScore]:
        """Scores by name, as functions of outputs and targets; a model can have a loss of its own."""
        lost = self.model.lost
        return SCORING[self.model.scored] | ({} if lost is None else {"loss": lost})

    def outputs(self, row: torch.Tensor, *, peer: str, part: str = "test") -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs ``[n, C]`` of a model ``[P]`` on a peer's samples and their targets."""
        held = self._part(getattr(self.federation, part)[peer])
        return torch.from_numpy(self._predicted(row, held, peer=peer)), torch.from_numpy(held.targets)

    def explained(self, row: torch.Tensor) -> Explained | None:
        """Return what a model ``[P]`` says of its features; ``None`` of statistics, or of a fit that goes on."""
        description = self.federation.dataset.description
        fields = description.columns or tuple(Field(f"x{number}") for number in range(self._features.shape[1]))
        classes = tuple(map(str, description.classes or range(self.federation.dataset.classes or 0)))
        return self.model.explained(self.tensors(row), fields=fields, classes=classes)

    def tallies(self, rows: Rows, *, peers: Sequence[str]) -> torch.Tensor:
        """Return histograms of what each model predicts for the test part of its peer, ``[R, T]`` int64."""
        if isinstance(self.model, Tallied):
            held = zip(rows, (self._part(self.federation.test[peer]) for peer in peers), strict=True)
            return torch.stack([torch.from_numpy(self.model.tally(self.tensors(row), part)) for row, part in held])
        classes = self.federation.dataset.classes
        counts = torch.zeros(len(rows), 0 if classes is None else length(classes), dtype=torch.int64)  # [R, T]
        if classes is None or self.model.scored != "classes":
            return counts
        for number, peer in enumerate(peers):
            part = self._part(self.federation.test[peer])
            outputs = torch.from_numpy(self.model.predicted(self.tensors(rows[number]), part))  # [n, C]
            counts[number] = histograms(outputs, torch.from_numpy(part.targets))
        return counts

    def tallied(self, row: torch.Tensor, total: Ints, *, copies: int) -> dict[str, float]:
        """Return the scores of a model ``[P]`` that follow from the sum of its :meth:`tallies` over all peers.

        Parameters
        ----------
        row
            The model.
        total
            The sum, ``[T]``.
        copies
            How often each sample counts.
        """
        if isinstance(self.model, Tallied):
            return self.model.tallied(self.tensors(row), total)
        return score_histograms(total, copies=copies)

    def own(self, peer: str) -> Own:
        """Return the samples of a peer, which only the answer of a question and scores may read."""
        parts = (self.federation.train, self.federation.validation, self.federation.test)
        return Own(*(self._part(part[peer]) for part in parts))

    def compared(self, peer: str) -> tuple[str, ...]:
        """Return sentences for a peer alone on how its samples differ from those of the others; nothing if unknown."""
        if not isinstance(self.model, Comparing):
            return ()
        return self.model.compared(self.own(peer), self.federation.dataset.description)

    def owned(self, row: torch.Tensor, *, peer: str) -> dict[str, torch.Tensor]:
        """Return one row ``[P]`` with the effects of a peer's own, under their names; nothing if it has none."""
        if not isinstance(self.model, Personal):
            return {}
        effects = self.model.owned(self.tensors(row), self.own(peer))
        own = {name: torch.from_numpy(np.asarray(value, np.float64)) for name, value in effects.items()}
        return self.state_dict(row) | own if own else {}

    def tensors(self, row: torch.Tensor) -> Tensors:
        """Return the tensors of a row ``[P]`` as arrays, which must not be changed."""
        parts = self.layout.split(row.detach().to("cpu", torch.float64).unsqueeze(0))
        return {name: part[0].numpy() for name, part in parts.items()}

    def wanted(self, peer: str) -> int:
        """Return the least number of samples in a cell that a peer of this site wants."""
        del peer
        return max(self.model.least, self._least)

    def _asking(self, model: ExactModel, tensors: Tensors) -> Asking:
        outcome = yield from model.advance(tensors, self.own)
        return Step(self._row(outcome.tensors), outcome.loss, outcome.over)

    def _asking_alone(self, row: torch.Tensor, *, peer: str, round: int) -> Asking:
        """Return the questions to a peer that learns alone, which merges small cells as all would."""
        tensors = self.tensors(row)
        if not round and self.model.merges:
            tensors = yield from self.model.check_cells(tensors, CellCheck(self.raw, (peer,), self.wanted, None))
        return (yield from self._asking(self.model.alone, tensors))

    def raw(self, peer: str) -> Own:
        """Return the samples of a peer with features in their own units."""
        description, own = self.federation.dataset.description, self.own(peer)

        def raw(part: Part) -> Part:
            return Part(part.features * description.deviation + description.mean, part.targets)

        return Own(raw(own.train), raw(own.validation), None if own.test is None else raw(own.test))

    def _row(self, tensors: Tensors) -> torch.Tensor:
        parts = {name: torch.from_numpy(np.asarray(tensors[name], np.float64)) for name in self.layout.names}
        return self.layout.join({name: part.unsqueeze(0) for name, part in parts.items()})[0]  # [P]

    def _part(self, positions: IntArray) -> Part:
        """Return the samples at some positions; the same object for the same array, so that results can be kept."""
        cached = self._parts.get(id(positions))
        if cached is None:
            cached = positions, Part(self._features[positions], self._targets[positions])
            self._parts[id(positions)] = cached  # holds the array, so that no other one takes its place
        return cached[1]

    def _predicted(self, row: torch.Tensor, part: Part, *, peer: str) -> Floats:
        """Return what a model predicts for samples of a peer, ``[n, C]`` or ``[n, 1]``."""
        if isinstance(self.model, Personal):
            return self.model.personal(self.tensors(row), self.own(peer), part)
        return self.model.predicted(self.tensors(row), part)

    def _scores(self, row: torch.Tensor, part: Part, *, peer: str) -> dict[str, torch.Tensor]:
        """Return the scores of a model on samples of a peer; NaN without samples."""
        if not len(part.targets):
            return dict.fromkeys({"loss": None, **self.scoring}, torch.tensor(torch.nan, dtype=torch.float64))
        if self.model.scored == "tallied risks" and isinstance(self.model, Tallied):
            tensors = self.tensors(row)
            scores = self.model.tallied(tensors, self.model.tally(tensors, part))
            return {
                name: torch.tensor(scores.get(name, math.nan), dtype=torch.float64) for name in ("loss", "concordance")
            }
        outputs = torch.from_numpy(self._predicted(row, part, peer=peer))  # [n, C] or [n, 1]
        targets = torch.from_numpy(part.targets)  # [n]
        if self.model.scored == "classes":
            hits = (outputs.argmax(-1) == targets).double()  # [n]
            return {"loss": torch.nn.functional.cross_entropy(outputs, targets), "accuracy": hits.mean()}
        if self.model.scored == "risks":
            ordered = concordance(outputs[:, 0].numpy(), part.targets)
            scores = {"loss": 1 - ordered, "concordance": ordered}
            return {name: torch.tensor(score, dtype=torch.float64) for name, score in scores.items()}
        squares = (outputs[:, 0] - targets).square().mean()
        spread = targets.var(correction=0)
        lost = self.model.lost
        loss = squares if lost is None else lost(outputs, targets).mean()
        return {"loss": loss, "r2": torch.where(spread > 0, 1 - squares / spread, 0.0)}


def _check_units(model: ExactModel, federation: Federation) -> None:
    """Refuse to scale columns that must keep their units, such as offsets."""
    description = federation.dataset.description
    for position in model.unscaled:
        shift, scale = (
            np.broadcast_to(each, (position + 1,)) if np.ndim(each) == 0 else np.asarray(each)
            for each in (description.mean, description.deviation)
        )
        if shift[position] != 0 or scale[position] != 1:
            raise ModelError(
                f"{model.name} takes an offset, an exposure or weights from a column that is scaled, so it would "
                'have other units; use data.name = "table" without data.scale, mean and deviation'
            )


def alone(asking: Asking, peer: str) -> Step:
    """Return the result of a round in which one peer takes its own answers for totals."""
    return answer_questions(asking, lambda question: question.answer(peer))
