"""Scores of a simulation after each round: of as many peers as counted operations allow, and of the mean model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from p2pfl.algorithms import Averaging, State
from p2pfl.algorithms.baselines import Baseline, baseline, score_alone
from p2pfl.core.draws import draw
from p2pfl.core.rows import Rows, to_device
from p2pfl.data import Federation, IntArray
from p2pfl.data.federation import PARTS
from p2pfl.experiment import Plan
from p2pfl.experiment.schema import EvaluationSettings
from p2pfl.learning import Learner, learner_traits
from p2pfl.learning.torch_learner import TorchLearner
from p2pfl.results.content import Evaluated
from p2pfl.simulation.cohort import Cohort
from p2pfl.simulation.own_state import mean_model
from p2pfl.simulation.round_records import RecordedPeers
from p2pfl.simulation.sharding import Shard

SHARE = 0.2
"""Largest share of the operations of training that evaluation takes by default."""

FREE = 10**10
"""Products of a weight and a number that a run may always spend on evaluation: about a second of one core."""

FEWEST_PEERS = 16
"""Smallest number of peers that is evaluated by default while fewer rounds suffice."""

BACKWARD = 3
"""Cost of a step of training in forward passes: one forward, one for the gradients of weights, one for inputs."""


@dataclass(frozen=True)
class Scope:
    """Peers and rounds that are evaluated.

    Attributes
    ----------
    every
        Rounds from one evaluation to the next.
    peers
        Number of evaluated peers; ``None`` for all.
    """

    every: int = 1
    peers: int | None = None

    @property
    def full(self) -> bool:
        """True if every peer is evaluated on all samples after every round."""
        return self == Scope()


def scope(plan: Plan) -> Scope:
    """Return how much a simulation of a plan evaluates.

    Examples
    --------
    >>> from p2pfl.experiment import plan, read
    >>> table = {"topology": {"peers": 500}, "model": {"name": "linear"}, "rounds": 1000}
    >>> scope(plan(read(table | {"evaluation": {"every": 5}})))
    Scope(every=5, peers=None)
    >>> scope(plan(read(table)))
    Scope(every=1, peers=43)
    """
    wanted, names = plan.experiment.evaluation, plan.topology.peers
    if wanted != EvaluationSettings():
        peers = None if wanted.peers is None or wanted.peers >= len(names) else wanted.peers
        return Scope(wanted.every or 1, peers)
    bare = plan.learner.bare
    if not isinstance(bare, TorchLearner):
        return Scope()  # its operations cannot be counted
    learning = plan.experiment.learning
    share = learning.fraction * (1 - learning.straggling / 2) * (1 - plan.experiment.simulation.absence)
    trained = bare.samples_a_round(names) * share
    free = FREE / max(1, bare.products * plan.experiment.horizon)
    held = sum(int(plan.federation.counts(part, names).sum()) for part in PARTS[1:])
    return _affordable(held, len(names), budget=max(SHARE * BACKWARD * trained, free))


def _affordable(total: int, count: int, *, budget: float) -> Scope:
    """Return the largest scope whose samples in a round fit into the budget, given those that all peers hold."""
    if total <= budget:
        return Scope()
    fewest = min(FEWEST_PEERS, count)
    affordable = int(budget * count / total)
    if affordable >= fewest:
        return Scope(peers=affordable)
    peers = None if fewest == count else fewest
    return Scope(math.ceil(fewest * total / count / max(budget, 1)), peers)


class Evaluator:
    """Evaluation of the models of a simulation.

    Parameters
    ----------
    plan
        Plan with the data of all peers.
    shard
        Peers that this process simulates; all of them by default.

    Attributes
    ----------
    scope
        How much is evaluated after each round but the last.
    chosen
        Places of the evaluated peers among those of the shard; ``None`` for all.
    """

    def __init__(self, plan: Plan, shard: Shard | None = None) -> None:
        self.plan, self.scope = plan, scope(plan)
        self.shard = shard or Shard(plan.topology.peers)
        self.asked = plan.experiment.evaluation != EvaluationSettings()
        self.names = self.shard.peers
        self.validates = plan.validates
        self.shared = plan.federation.common
        self._judged: tuple[Rows, dict[str, torch.Tensor]] | None = None
        count = self.scope.peers
        self.chosen: IntArray | None = None
        self.some = self.names
        if count is not None:
            among = np.zeros(len(self.shard.everyone), bool)  # [N]
            among[draw(plan.experiment.seed, "evaluated peers").permutation(len(among))[:count]] = True
            self.chosen = np.flatnonzero(self.shard.own(among))
            self.some = tuple(self.names[index] for index in self.chosen)

    def stated(self, drawn: int | None) -> Evaluated | None:
        """Return what was evaluated after each round, for the summary; ``None`` if it was everything.

        Parameters
        ----------
        drawn
            Number of peers that are drawn for a round, if only these are evaluated.
        """
        if drawn is not None:
            return Evaluated(self.scope.every, drawn)
        peers, count = self.scope.peers, len(self.shard.everyone)
        return None if self.scope.full else Evaluated(self.scope.every, count if peers is None else peers)

    def judge(self, rows: Rows) -> torch.Tensor:
        """Return the losses of all peers on all samples of their validation parts, ``[R]``.

        The scores of these rows are not computed again until :meth:`judge` gets others.
        """
        scores = self.plan.learner.evaluate(rows, peers=self.names, part="validation")
        self._judged = rows, scores
        return scores["loss"]

    def full(self, rows: Rows) -> list[dict[str, float]]:
        """Return the scores of all peers on all samples."""
        return self._assess(rows, self.names, validation=self._judged_scores(rows))

    def members(self, round: int, state: State, listed: RecordedPeers, *, whole: bool) -> list[dict[str, float]]:
        """Return the scores of some peers after a round; empty in rounds without evaluation.

        Parameters
        ----------
        round
            The round.
        state
            State of all peers of the process.
        listed
            The peers, such as those that are drawn for the round.
        whole
            Whether to evaluate in any round.
        """
        if not (whole or self.scope.full or (round + 1) % self.scope.every == 0):
            return [{} for _ in listed.peers]
        return self._assess(listed.models(state), listed.peers, validation=None)

    def _judged_scores(self, rows: Rows, where: torch.Tensor | None = None) -> dict[str, torch.Tensor] | None:
        """Return the scores that were computed to judge these rows, of some of the peers, if they were."""
        if self._judged is None or self._judged[0] is not rows:
            return None
        return {name: each if where is None else each[where.to(each.device)] for name, each in self._judged[1].items()}

    def test_scores(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Return the scores of a peer on its test part, out of those on all parts."""
        return {
            name: value for name, value in scores.items() if not (self.validates and name.startswith("validation_"))
        }

    def after(self, round: int, rows: Rows) -> list[dict[str, float]]:
        """Return the scores of each peer after a round; empty for a peer that is not evaluated.

        Where all models are equal and all peers have the same test samples, one evaluation serves all peers, so by
        default it is in full.
        """
        if self.scope.full or (not self.asked and self.shared and self.shard.alike(rows)):
            return self.full(rows)
        if (round + 1) % self.scope.every:
            return [{} for _ in self.names]
        if self.chosen is None:
            return self._assess(rows, self.names, validation=self._judged_scores(rows))
        where = to_device(torch.from_numpy(self.chosen), rows.device)
        scored = self._assess(rows[where], self.some, validation=self._judged_scores(rows, where))
        by_name = dict(zip(self.some, scored, strict=True))
        return [by_name.get(name, {}) for name in self.names]

    def _assess(
        self, rows: Rows, peers: tuple[str, ...], *, validation: dict[str, torch.Tensor] | None
    ) -> list[dict[str, float]]:
        """Return scores on the test part, and with a validation part also those under ``validation_...``."""
        if not peers:
            return []
        learner = self.plan.learner
        scores = learner.evaluate(rows, peers=peers)
        if self.validates:
            validation = learner.evaluate(rows, peers=peers, part="validation") if validation is None else validation
            scores = scores | {f"validation_{name}": values for name, values in validation.items()}
        each = by_peer(scores) if scores else [{} for _ in peers]
        if learner_traits(learner).private:  # some of whose peers have no scores
            each = [{name: value for name, value in own.items() if not math.isnan(value)} for own in each]
        return each


class RoundScores:
    """Scores after each round, and the peers that have them.

    Parameters
    ----------
    evaluator
        Evaluator of the models.
    shard
        Peers that this process simulates.
    average
        Average that draws the participants of each round, if only these have scores, see
        :func:`p2pfl.simulation.cohort.recorded_average`; otherwise ``None``.
    first
        First round of a run that goes on from a checkpoint: participants of earlier ones have scores in the end.

    Attributes
    ----------
    listed
        Peers with records of the round, and in the end with results.
    final
        Their scores after the last round, once these are known.
    """

    def __init__(self, evaluator: Evaluator, shard: Shard, *, average: Averaging | None, first: int = 0) -> None:
        self.evaluator, self.shard, self.average = evaluator, shard, average
        self.listed = RecordedPeers(shard.peers)
        self.final: list[dict[str, float]] | None = None
        self._took_part = None if average is None else _drawn_before(average, round=first)

    def after(self, round: int, state: State, computed: Shard, *, last: bool) -> list[dict[str, float]]:
        """Return the scores after a round, given the state of all peers and the peers that the round computed."""
        whole = self.evaluator.scope.full or last
        if self._took_part is not None and isinstance(computed, Cohort):
            numbers, own = computed.recorded
            self._took_part.update(numbers.tolist())
            self.listed = RecordedPeers.some(self.shard, numbers, own)
            return self.evaluator.members(round, state, self.listed, whole=last)
        evaluated = self.evaluator.full(state.rows) if whole else self.evaluator.after(round, state.rows)
        self.final = evaluated if whole else None
        return evaluated

    @property
    def stated(self) -> Evaluated | None:
        """Rounds and number of peers that were evaluated; ``None`` if it was everything."""
        return self.evaluator.stated(None if self.average is None else _count_recorded(self.average))

    @property
    def late(self) -> bool:
        """True if a run stopped early, or slow peers end their rounds later, so that records lack the last scores."""
        return self.final is None and self._took_part is None

    def end(self, state: State) -> list[dict[str, float]]:
        """Return the scores after the last round, of all that took part in one."""
        if self.final is None and self._took_part is not None:
            self.listed = RecordedPeers.some(self.shard, np.array(sorted(self._took_part), np.int64))
            self.final = self.evaluator.members(0, state, self.listed, whole=True)
        elif self.final is None:
            self.final = self.evaluator.full(state.rows)
        return self.final


def _drawn_before(average: Averaging, *, round: int) -> set[int]:
    """Return the numbers of the peers that had records of any round before one."""
    draws = (average.drawn(earlier) for earlier in range(round))
    return {number for drawn in draws for number in ([0] if drawn is None else drawn.tolist())}


def _count_recorded(average: Averaging) -> int:
    """Return how many peers have records of a round: one where all are drawn, and in secret some take part."""
    return average.invites if average.devices is not None or average.count < len(average.peers) else 1


def by_peer(evaluated: Mapping[str, torch.Tensor]) -> list[dict[str, float]]:
    """Return the scores ``[R]`` by name as one dictionary for each peer; this waits for the device.

    Examples
    --------
    >>> by_peer({"loss": torch.tensor([0.5, 2.0])})
    [{'loss': 0.5}, {'loss': 2.0}]
    """
    names = list(evaluated)
    columns = [values.cpu().double().tolist() for values in evaluated.values()]
    return [dict(zip(names, each, strict=True)) for each in zip(*columns, strict=True)]


Scores = dict[str, float]
"""Scores of a peer by name."""


def train_apart(shard: Shard, learner: Learner, peers: tuple[str, ...], *, rounds: int) -> Baseline:
    """Return the scores of peers that train without any communication, where this process leads.

    Parameters
    ----------
    shard
        Peers that this process trains.
    learner, peers, rounds
        Arguments of :func:`p2pfl.algorithms.baselines.baseline`.
    """
    if shard.workers == 1:
        return baseline(learner, peers, rounds=rounds)
    own = by_peer(score_alone(learner, shard.peers, rounds=rounds))
    listed = dict(zip(shard.everyone, shard.collect(own, Scores), strict=False))
    scores = {
        name: torch.tensor([listed[peer][name] for peer in peers], dtype=torch.float64)
        for name in (listed[peers[0]] if shard.leads else ())
    }
    return Baseline(scores, None)


MEAN_NAME = "mean"
"""Name of the peer that has the test data of all."""

MEAN_SHARE = 0.1
"""Largest share of the evaluation of the peers that the mean model takes by default."""


FEWEST_SAMPLES = 256
"""Smallest number of samples on which the mean model is evaluated by default."""


class MeanModel:
    """Evaluation of the mean of all models on the test data of all peers.

    By default it takes at most a tenth of the samples on which the peers are evaluated, unless these are few.

    Parameters
    ----------
    plan
        Plan of the run.
    shard
        Peers of this process; each process evaluates on the samples that it holds.
    scope
        How much of the peers is evaluated.

    Attributes
    ----------
    meaningful
        False where a mean of models is no model: of peers that end with models of their own or keep layers to
        themselves, of models from totals, and where some peers attack.
    """

    def __init__(self, plan: Plan, shard: Shard, scope: Scope) -> None:
        bare, traits = plan.learner.bare, plan.asked.algorithm
        own = traits.personal or traits.additive or bool(plan.learner.layout.local) or plan.attack is not None
        self.meaningful = isinstance(bare, TorchLearner) and not own
        self.shard, self.every = shard, scope.every
        if not isinstance(bare, TorchLearner) or own:
            return
        names = plan.topology.peers
        tested = int(plan.federation.counts("test", names).sum())
        evaluated = tested * (1 if scope.peers is None else scope.peers / len(names))
        free = FREE / max(1, bare.products * plan.experiment.horizon)
        most = int(max(FEWEST_SAMPLES, MEAN_SHARE * evaluated, MEAN_SHARE * free))
        if plan.experiment.evaluation != EvaluationSettings():
            most = tested
        union = plan.federation.of(*shard.peers).pooled(MEAN_NAME)
        few = union.test[MEAN_NAME]  # [n]
        if len(few) > most:
            few = few[np.sort(draw(plan.experiment.seed, "mean model").permutation(len(few))[:most])]
        self.whole = plan.learner.on(union)
        self.learner = plan.learner.on(Federation(union.dataset, union.train, union.validation, {MEAN_NAME: few}))
        self.counts = len(union.test[MEAN_NAME]), len(few)

    def scores(self, round: int, state: State, *, whole: bool) -> dict[str, float]:
        """Return the scores of the mean of all models after a round; none in rounds without evaluation.

        Parameters
        ----------
        round
            The round.
        state
            State of the peers of this process.
        whole
            Whether to evaluate on all samples, as after the last round.
        """
        if not self.meaningful or not (whole or (round + 1) % self.every == 0):
            return {}
        learner, count = (self.whole, self.counts[0]) if whole else (self.learner, self.counts[1])
        local = mean_model(state, peers=len(self.shard.peers))
        row = self.shard.mean(local).unsqueeze(0).to(state.rows)  # [1, P]
        scores = learner.evaluate(row, peers=(MEAN_NAME,))
        parts = [float(each[0]) * count if count else 0.0 for each in scores.values()]
        *sums, total = self.shard.sums(torch.tensor([*parts, count], dtype=torch.float64)).tolist()
        return {name: each / total for name, each in zip(scores, sums, strict=True)} if total else {}
