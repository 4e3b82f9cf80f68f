""":func:`audit`, which runs all attacks on one experiment, and its verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from p2pfl.core.errors import ModelError
from p2pfl.core.imports import kind_of
from p2pfl.data import Federation
from p2pfl.experiment import Experiment, Plan
from p2pfl.experiment.accounts import admitted_exactly
from p2pfl.experiment.approval import check_consent
from p2pfl.experiment.file.reading import check, plain
from p2pfl.experiment.parts.learner_parts import learner
from p2pfl.learning import TorchLearner
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.plugins.audit.accounting_claims import accounts
from p2pfl.plugins.audit.attacks.canaries import CANARY_COUNT, Canaries, plant
from p2pfl.plugins.audit.attacks.first_tree import Exposure, exposures
from p2pfl.plugins.audit.attacks.game import GAME_TRIALS, GameResult, play
from p2pfl.plugins.audit.attacks.inversion import ATTACKED_SAMPLES, Inversion, invert
from p2pfl.plugins.audit.attacks.membership_inference import ATTACKED_ROUNDS, SHADOW_COUNT, Inference, infer
from p2pfl.plugins.audit.attacks.model_differences import subtract_models
from p2pfl.plugins.audit.attacks.run_differences import subtract_runs
from p2pfl.plugins.audit.attacks.text_canaries import TakesTexts, TextCanaries, TorchTexts, plant_texts
from p2pfl.plugins.audit.claims import ExactClaim, Result
from p2pfl.plugins.audit.column_attacks import attack_columns
from p2pfl.plugins.audit.dp_sgd_claims import check_training
from p2pfl.plugins.audit.label_attacks import attack_labels
from p2pfl.plugins.audit.live.restarts import ROUND_COUNT as LIVE_ROUNDS
from p2pfl.plugins.audit.live.restarts import check_releases
from p2pfl.plugins.audit.live.secure_sums import sums
from p2pfl.plugins.audit.noise_claims import check_stacked_noise
from p2pfl.plugins.audit.pipeline import FIRST_RUN, Fresh, Observer, Target
from p2pfl.plugins.audit.release_claims import KEY_COUNT, check_release
from p2pfl.plugins.audit.small_cell_attacks import attack_cells
from p2pfl.plugins.audit.total_attacks import totals
from p2pfl.privacy.accounting.examples import SampledSteps
from p2pfl.privacy.accounting.spending import Cost, spent
from p2pfl.privacy.keys import SecretSource, Source


@dataclass(frozen=True)
class Effort:
    """Amount of work that the attacks may do.

    Parameters
    ----------
    trials
        Games of each player.
    canaries
        Approximate number of canaries.
    rounds, shadows
        Rounds and shadow models of membership inference.
    samples
        Samples of inversion.
    keys
        Number of keys, no two of which may be equal.
    live
        Rounds of each live run; 0 skips live runs.
    """

    trials: int = GAME_TRIALS
    canaries: int = CANARY_COUNT
    rounds: int = ATTACKED_ROUNDS
    shadows: int = SHADOW_COUNT
    samples: int = ATTACKED_SAMPLES
    keys: int = KEY_COUNT
    live: int = LIVE_ROUNDS


@dataclass(frozen=True)
class AccountedBound:
    """Upper bound of the accountant on what an observer can learn.

    Parameters
    ----------
    observer, colluders, victim
        Names of the observer, the peers that help it, and the victim.
    mu
        Bound for one release; infinite without a guarantee.
    epsilon, delta, rounds
        Bound for all rounds.
    """

    observer: str
    colluders: tuple[str, ...]
    victim: str
    mu: float
    epsilon: float
    delta: float
    rounds: int


@dataclass(frozen=True)
class Audit:
    """Results of all attacks on one experiment.

    Parameters
    ----------
    name, mode
        Name of the experiment, and its privacy mode.
    clip, noise, mask
        Settings that protect the models.
    promises, claims, games, canaries, inferences, inversions, texts
        Results by attack.
    exposures
        What the totals of the first boosted tree show, by the number of peers in them.
    smaller
        Sentence that explains if the attacks ran on fewer peers than the experiment has.
    """

    name: str
    mode: str
    clip: float
    noise: float
    mask: float
    promises: tuple[AccountedBound, ...]
    claims: tuple[ExactClaim, ...]
    games: tuple[GameResult, ...] = ()
    canaries: tuple[Canaries, ...] = ()
    inferences: tuple[Inference, ...] = ()
    inversions: tuple[Inversion, ...] = ()
    texts: tuple[TextCanaries, ...] = ()
    exposures: tuple[Exposure, ...] = ()
    smaller: str | None = None

    @property
    def promised(self) -> bool:
        """True if the experiment claims differential privacy."""
        return any(math.isfinite(promise.mu) for promise in self.promises)

    @property
    def broken(self) -> list[str]:
        """Return a sentence for each claim that does not hold."""
        results: Sequence[Result] = (*self.claims, *self.games, *self.canaries, *self.inferences, *self.texts)
        return [each.fault for each in results if each.broken]

    @property
    def parts(self) -> list[str]:
        """Parts of the system that have claims, in order."""
        return [*dict.fromkeys(claim.part for claim in self.claims)]

    def results(self) -> dict[str, Any]:
        """Return everything for machines; infinite numbers become ``None``."""
        table = asdict(self)
        for name in ("claims", "games", "canaries", "inferences", "texts"):
            for row, part in zip(table[name], getattr(self, name), strict=True):
                row["broken"] = part.broken
        for row, part in zip(table["inversions"], self.inversions, strict=True):
            row["recognised"] = part.recognised
        plain: dict[str, Any] = _finite(table | {"promised": self.promised, "broken": self.broken})
        return plain


def audit(
    plan: Plan,
    *,
    fresh: Fresh | None = None,
    effort: Effort | None = None,
    seed: int = 0,
    now: datetime | None = None,
) -> Audit:
    """Attack the release of an experiment, and compare the results with its accountant.

    Parameters
    ----------
    plan
        Resolved experiment. If the data of one peer are here, its rows are dealt out among all.
    fresh
        Function that makes the source of secrets of each attacked run; by default the source that peers use.
    effort
        Amount of work of the attacks.
    seed
        Seed of coins, directions and samples.
    now
        Time in UTC, for policies of the data; that of the computer by default.

    Returns
    -------
    Audit
        Results of all attacks.

    Raises
    ------
    InputError
        The data have an account, and the plan may not stay outside of it; or their policy refuses it.

    Examples
    --------
    >>> from p2pfl.experiment import plan, read
    >>> from p2pfl.privacy.keys import SeededSource
    >>> resolved = plan(read({"topology": {"peers": 4}, "privacy": {"mode": "pairwise"}}))
    >>> least = Effort(trials=2000, canaries=40, rounds=1, shadows=2, samples=1, keys=100, live=0)
    >>> audit(resolved, fresh=SeededSource, effort=least).broken
    []
    """
    fresh, effort = fresh or _secret, effort or Effort()
    check_consent(plan.written, plan.federation.peers, today=(now or datetime.now(UTC)).date())
    admitted_exactly(plan.experiment, plan.federation.peers, unaccounted=plan.unaccounted)
    here, plan = plan, _dealt(plan)
    protection = plan.protection
    guarantees = protection.observers()
    target, observers = _aim(plan, fresh=fresh, seed=seed)
    settings = target.settings
    if protection.totals:  # no models are released
        claims = totals(plan, fresh=fresh, trials=effort.trials, seed=seed) + attack_cells(plan)
        claims += [] if protection.claimed else subtract_runs(here, seed=seed) + subtract_models(plan, seed=seed)
        claims += attack_columns(plan, fresh=fresh, seed=seed) + attack_labels(plan, fresh=fresh, seed=seed)
    else:
        claims = check_release(replace(target, settings=protection.settings), keys=effort.keys)
        claims += check_stacked_noise(protection.settings, fresh=fresh)
        claims += _live(plan, rounds=effort.live) if effort.live else []
    claims += [*accounts(plan, stated=guarantees), *check_training(plan, fresh=fresh)]
    single = protection.sums is None and not protection.totals
    return Audit(
        name=plan.experiment.name,
        mode=protection.wanted.mode,
        clip=settings.clip,
        noise=settings.noise,
        mask=settings.mask,
        promises=tuple(_promise(observer, plan, delta=protection.wanted.delta) for observer in observers),
        claims=tuple(claims),
        exposures=exposures(plan, seed=seed) if protection.totals else (),
        **(_attacks(plan, target, observers, effort=effort) if single else {}),
    )


def attack_texts(plan: Plan, *, fresh: Fresh, rounds: int = ATTACKED_ROUNDS, seed: int = 0) -> list[TextCanaries]:
    """Plant texts in the training samples of a peer; there are none where its model predicts no tokens.

    Parameters
    ----------
    plan
        Resolved experiment.
    fresh
        Function that makes the source of secrets of each attacked run.
    rounds
        Most rounds of training.
    seed
        Seed of texts and coins.

    Examples
    --------
    >>> from p2pfl.experiment import plan, read
    >>> from p2pfl.privacy.keys import SeededSource
    >>> attack_texts(plan(read({"topology": {"peers": 2}})), fresh=SeededSource)
    []
    """
    made = plan.learner.bare
    texts: TakesTexts | None = made if isinstance(made, TakesTexts) else None
    if isinstance(made, TorchLearner):
        texts = TorchTexts.of(plan.federation, lambda data: _learner(plan.experiment, data, source=fresh(FIRST_RUN)))
    if texts is None:
        return []
    target, observers = _aim(plan, fresh=fresh, seed=seed)
    rounds = min(rounds, plan.experiment.horizon)

    def stated(peer: str, delta: float) -> float:
        guarantee = None
        if isinstance(made, ExamplePrivateLearner):
            played = {peer: {SampledSteps(made.noise, *made.cost(peer)): rounds}}  # the peer trains in each
            guarantee = plan.examples(rounds, played=played, delta=delta)
        return math.inf if guarantee is None else float(guarantee["epsilon"])

    return plant_texts(
        target,
        observers,
        texts,
        samples=made.samples(plan.topology.peers).tolist(),
        stated=stated,
        delta=plan.protection.wanted.delta,
        steps=plan.gossip.steps,
        rounds=rounds,
    )


def _aim(plan: Plan, *, fresh: Fresh, seed: int) -> tuple[Target, list[Observer]]:
    """Return the release that is attacked, for peers that participate, and the observers of its guarantee."""
    protection = plan.protection
    settings = replace(protection.settings, participation=1.0)
    target = Target(settings, protection.graph, plan.weights, fresh, seed)
    return target, [Observer.of(each, graph=protection.graph, settings=settings) for each in protection.observers()]


def _dealt(plan: Plan) -> Plan:
    """Return a plan whose peers share the rows of the one peer whose data are here, if those of all are not."""
    own, peers = plan.federation, plan.topology.peers
    if own.parties is not None or len(own.peers) == len(peers):
        return plan
    (peer,) = own.peers
    train, validation, test = (
        {name: part[peer][number :: len(peers)] for number, name in enumerate(peers)}
        for part in (own.train, own.validation, own.test)
    )
    dealt = Federation(own.dataset, train, validation, test)
    return replace(plan, federation=dealt, learner=learner(plan.experiment, dealt))


def _live(plan: Plan, *, rounds: int) -> list[ExactClaim]:
    """Attack live peers that protect their models with the noise, masks, clip and adjacency of the experiment."""
    settings = replace(plan.protection.settings, participation=1.0)
    claims = [] if plan.protection.sums is None else sums(plan)
    if settings.hidden:
        claims += check_releases(settings, rounds=rounds)
    return claims


def _attacks(plan: Plan, target: Target, observers: Sequence[Observer], *, effort: Effort) -> dict[str, Any]:
    """Run the attacks of observers of single models."""
    federation, size, delta = plan.federation, plan.learner.layout.size, plan.protection.wanted.delta
    results: dict[str, Any] = {
        "games": tuple(play(target, observers, trials=effort.trials)),
        "canaries": tuple(plant(target, observers, size=size, delta=delta, count=effort.canaries)),
        "texts": tuple(attack_texts(plan, fresh=target.fresh, rounds=effort.rounds, seed=target.seed)),
    }
    if isinstance(plan.learner.bare, TakesTexts):  # the learner has the samples, and no others can be tried
        return results
    inferences = infer(
        target,
        observers,
        federation=federation,
        train=lambda federation: _learner(plan.experiment, federation),
        steps=plan.gossip.steps,
        rounds=min(effort.rounds, plan.experiment.horizon),
        shadows=effort.shadows,
    )
    one_step = _one_step(plan.experiment)
    inversions = invert(
        target,
        observers,
        federation=federation,
        train=lambda federation: _learner(one_step, federation),
        samples=effort.samples,
    )
    return results | {"inferences": tuple(inferences), "inversions": inversions}


def _promise(observer: Observer, plan: Plan, *, delta: float) -> AccountedBound:
    rounds, epsilon = plan.protection.affordable, math.inf
    if math.isfinite(observer.promised):
        cost = Cost(observer.promised, plan.protection.settings.participation)
        epsilon = spent({cost: rounds}, delta=delta)
    return AccountedBound(observer.name, observer.colluders, observer.victim, observer.promised, epsilon, delta, rounds)


def _learner(experiment: Experiment, federation: Federation, source: Source | None = None) -> TorchLearner:
    made = learner(experiment, federation, source=source)
    if not isinstance(made, TorchLearner):
        raise ModelError(f"{kind_of(made)} cannot be audited; use a torch model, or a TrainerLearner")
    return made


def _one_step(experiment: Experiment) -> Experiment:
    """Return the experiment with one step of gradient descent on one sample."""
    table = plain(experiment)
    table["learning"] |= {
        "algorithm": "fedavg",
        "optimizer": "sgd",
        "options": {},
        "rate": experiment.learning.rate or 0.1,
        "batch": 1,
        "epochs": 1,
        "steps": 1,
    }
    table["learning"].pop("schedule", None)
    return check(table)


def _secret(number: int) -> Source:
    del number
    return SecretSource()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
