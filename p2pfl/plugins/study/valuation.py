"""Values of the data of each peer: what a model gains by them, averaged over coalitions of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from p2pfl.algorithms.baselines import score_alone
from p2pfl.core.encodings import Floats
from p2pfl.core.errors import InputError
from p2pfl.core.process import one_thread
from p2pfl.data import Federation
from p2pfl.experiment import Plan
from p2pfl.experiment.accounts import admitted_exactly
from p2pfl.learning import Pools
from p2pfl.learning.learner import SharesValue
from p2pfl.plugins.study.semivalues import MAX_EXACT_PEERS, sampled_banzhaf, sampled_shapley, semivalue
from p2pfl.results.comparisons.comparison import lower_is_better
from p2pfl.results.spending.ledger import check_runs, record_runs
from p2pfl.simulation import simulate

VALUE_METHODS = ("shapley", "banzhaf", "loo")
"""Values by name: Shapley's, Banzhaf's, and what leaving a peer out costs."""

COALITIONS_AT_ONCE = 1024
"""Coalitions that are trained at once."""

INTERVAL_ERRORS = 1.959963984540054
"""Standard errors from a value to the end of its 95 % interval."""


@dataclass(frozen=True)
class Value:
    """Value of the data of a peer.

    Attributes
    ----------
    peer, samples
        Name, and number of training samples.
    value
        By how much the score rises.
    low, high
        95 % interval of what drawing coalitions leaves open; ``None`` where all of them were trained.
    alone
        Score of the model of its data alone; ``None`` if nobody asked.
    """

    peer: str
    samples: int
    value: float
    low: float | None
    high: float | None
    alone: float | None


@dataclass(frozen=True)
class Valuation:
    """Values of all peers.

    Attributes
    ----------
    method, metric
        Kind of value, and score; a score that is better if smaller counts negative.
    values
        Values of the peers.
    everybody, nobody
        Score of the model of all data, and of the untrained one.
    coalitions
        Number of models that were trained.
    exact
        True if the values follow from the totals of one run, and no model was trained for them.
    """

    method: str
    metric: str
    values: tuple[Value, ...]
    everybody: float
    nobody: float
    coalitions: int
    exact: bool = False


def valuation(
    plan: Plan,
    *,
    method: str = "shapley",
    draws: int = 200,
    metric: str | None = None,
    alone: bool = False,
    unaccounted: bool = False,
    now: datetime | None = None,
) -> Valuation:
    r"""Return the values of the peers of an experiment.

    A coalition is trained as one model on the data of its members, and scored on the test data of all peers. All
    coalitions are rows of one simulation. They train without masks and noise, whatever the plan protects, so no account
    of the data can count them.

    .. math:: \phi_i = \sum_{S \not\ni i} w(|S|) \bigl(U(S \cup i) - U(S)\bigr), \qquad
              w_\text{Shapley}(s) = \frac{s! (N - s - 1)!}{N!}, \quad w_\text{Banzhaf}(s) = 2^{1 - N}

    Parameters
    ----------
    plan
        Plan with the data of all peers.
    method
        One of :data:`VALUE_METHODS`.
    draws
        Permutations (Shapley, in pairs of one and its reverse) or coalitions (Banzhaf) that are drawn with more than
        ten peers.
    metric
        Score; by default that of the summary of a run.
    alone
        True if each peer's own model is scored, too.
    unaccounted
        True if the values may stay outside of the account, see :func:`p2pfl.experiment.accounts.admitted_exactly`.
    now
        Time in UTC for the account, which lists the values of a model from exact totals; that of the computer by
        default.

    Raises
    ------
    InputError
        The method or the score is unknown, the learner cannot train on the data of several peers, or the data have an
        account.

    References
    ----------
    Ghorbani and Zou, Data Shapley, ICML 2019; Wang and Jia, Data Banzhaf, AISTATS 2023; Castro, Gómez and Tejada,
    Polynomial calculation of the Shapley value based on sampling, Computers & Operations Research 36, 2009.
    """
    if method not in VALUE_METHODS:
        raise InputError(f'there is no value "{method}"; choose from {", ".join(VALUE_METHODS)}')
    admitted_exactly(plan.experiment, plan.federation.peers, unaccounted=unaccounted)
    bare = plan.learner.bare
    if isinstance(bare, SharesValue):
        return _shared_value(plan, bare, method=method, unaccounted=unaccounted)
    accepting, now = replace(plan, unaccounted=plan.unaccounted or unaccounted), now or datetime.now(UTC)
    check_runs(accepting, plan.federation.peers, now=now)
    game = Game(plan, metric=metric)
    record_runs(accepting, plan.federation.peers, now=now)
    count = len(game.peers)
    if method == "loo":
        whole = (1 << count) - 1
        scores = game([whole, *(whole ^ (1 << peer) for peer in range(count))])
        estimates, errors = scores[0] - scores[1:], None
    elif count <= MAX_EXACT_PEERS:
        estimates, errors = semivalue(game(range(1 << count)), peers=count, method=method), None
    elif method == "shapley":
        estimates, errors = sampled_shapley(game, peers=count, draws=draws, seed=plan.experiment.seed)
    else:
        estimates, errors = sampled_banzhaf(game, peers=count, draws=draws, seed=plan.experiment.seed)
    sizes = plan.learner.samples(game.peers).tolist()
    ends = [(None, None)] * count if errors is None else _ends(estimates, errors)
    own = game([1 << peer for peer in range(count)]).tolist() if alone else [None] * count
    values = tuple(
        Value(peer, size, float(value), low, high, score)
        for peer, size, value, (low, high), score in zip(game.peers, sizes, estimates, ends, own, strict=True)
    )
    everybody, nobody = game([(1 << count) - 1, 0])
    return Valuation(method, game.metric, values, float(everybody), float(nobody), game.trained)


def _shared_value(plan: Plan, learner: SharesValue, *, method: str, unaccounted: bool) -> Valuation:
    """Return the values of columns, which follow from the totals of one run."""
    if method != "shapley":
        raise InputError(f'columns of the same people have no value "{method}"; leave --method out')
    shares = learner.shares(simulate(plan, baselines=False, unaccounted=unaccounted).models)
    sizes = dict(zip(shares, plan.learner.samples([*shares]).tolist(), strict=True))
    values = tuple(Value(peer, sizes[peer], share, None, None, None) for peer, share in shares.items())
    return Valuation(method, learner.value_metric, values, sum(shares.values()), 0.0, 1 << len(shares), exact=True)


class Game:
    """Scores of coalitions of the peers of an experiment, each of which is trained once.

    Parameters
    ----------
    plan
        Plan with the data of all peers.
    metric
        Score; by default that of the summary of a run.
    """

    def __init__(self, plan: Plan, *, metric: str | None) -> None:
        bare = plan.learner.bare
        if not isinstance(bare, Pools):
            raise InputError(
                "a learner of your own cannot train on the data of several peers; give it a method `pooled`, as "
                "p2pfl.learning.Pools has it"
            )
        self._learner, self._rounds = bare, plan.experiment.horizon
        self.peers = plan.topology.peers
        self._federation = plan.federation
        parts = {id(part): part for part in plan.federation.test.values()}
        self._test = np.unique(np.concatenate(list(parts.values())))
        self._holders = sum(1 << index for index, peer in enumerate(self.peers) if len(self._federation.train[peer]))
        self._scores: dict[int, float] = {}
        nothing = self._train([])
        names = [name for name in nothing if name != "loss"]
        self.metric = metric or next(iter(names), "loss")
        if not nothing:
            raise InputError(
                "the value of data is what they add to a score, and no samples are held out; set data.test above 0"
            )
        if self.metric not in nothing:
            raise InputError(f'there is no score "{self.metric}"; choose from {", ".join(nothing) or "none"}')
        self._sign = -1.0 if lower_is_better(self.metric) else 1.0
        self._empty = float(nothing[self.metric][0])

    @property
    def trained(self) -> int:
        """Number of coalitions that were trained."""
        return len(self._scores)

    def __call__(self, coalitions: Iterable[int]) -> Floats:
        """Return the scores of coalitions; higher is better."""
        asked = [each & self._holders for each in coalitions]  # who has no samples changes no model
        new = [each for each in dict.fromkeys(asked) if each and each not in self._scores]
        for low in range(0, len(new), COALITIONS_AT_ONCE):
            block = new[low : low + COALITIONS_AT_ONCE]
            scores = self._train(block)[self.metric]
            self._scores.update(zip(block, scores.tolist(), strict=True))
        return np.array([self._sign * self._scores.get(each, self._empty) for each in asked])

    def _members(self, coalition: int) -> list[str]:
        return [peer for index, peer in enumerate(self.peers) if coalition >> index & 1]

    def _train(self, coalitions: Sequence[int]) -> Mapping[str, Floats]:
        """Return the scores of trained coalitions by name; those of the untrained model if there are none."""
        names = [f"coalition{each:x}" for each in coalitions] or ["nobody"]
        empty = np.empty(0, dtype=np.int64)
        train, validation = dict.fromkeys(names, np.arange(1)), dict.fromkeys(names, empty)
        for name, coalition in zip(names, coalitions, strict=False):
            members = self._members(coalition)
            train[name] = np.sort(np.concatenate([self._federation.train[peer] for peer in members]))
            validation[name] = np.sort(np.concatenate([self._federation.validation[peer] for peer in members]))
        own = Federation(self._federation.dataset, train, validation, dict.fromkeys(names, self._test))
        rounds = self._rounds if coalitions else 0
        with one_thread():
            learner = self._learner.pooled(own, peers=1, rounds=self._rounds)
            scores = score_alone(learner, tuple(names), rounds=rounds)
        return {name: score.double().numpy() for name, score in scores.items()}


def _ends(values: Floats, errors: Floats) -> list[tuple[float, float]]:
    return [
        (value - INTERVAL_ERRORS * error, value + INTERVAL_ERRORS * error)
        for value, error in zip(values, errors, strict=True)
    ]
