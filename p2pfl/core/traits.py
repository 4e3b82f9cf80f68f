"""Traits: declarations of algorithms, codecs, privacy modes, robust rules and learners about themselves.

Each class has a class attribute ``traits``. The rules of an experiment read nothing else, so a class of your own
that declares its traits is validated like a built-in one. A trait that permits something is false by default; a trait
that forbids something is a text, empty by default, that gives the reason and completes
a sentence such as "..., which ...".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Requirements and offers of an algorithm.

    Parameters
    ----------
    linear
        True if peers release one model per round and only mix it, so that whatever others see is a linear function of
        releases. Secure sums need it.
    nonlinear
        Why it is not linear.
    convex
        True if what everybody has seen is a mean of released models, and so never larger than they are.
    full_participation
        True if all peers take part in each round and count alike.
    weighs_neighbours
        True if it divides by weights, or weighs the models it receives, although all peers take part.
    asynchronous
        True if each peer runs cycles of its own and waits for nobody.
    single_step
        True if it makes one gossip step per round, however gossip is configured.
    silent_rounds
        True if there are rounds in which nobody shows anything new.
    personal
        True if each peer ends with a model of its own.
    keeps_local
        True if tensors that the layout of the model calls local stay with each peer, trained and unreleased.
    needs_local
        True if it makes sense only for a model that has such tensors.
    idle_alike
        True if a peer that sits out a round has no weight in averages, takes no part in totals, and changes only by
        what it receives. Equal peers that sit out then stay equal, and simulations compute one of them.
    idle_weighs
        True if, unlike that, peers that sit out have their full weights in some averages.
    moments
        Names of the tensors of its state that sum up how the public models changed. Without them after the first round
        it takes the average itself, as a peer must that comes late.
    default_steps
        Local steps per round where none are configured; ``None`` for epochs.
    full_batch
        True if a round is one step on all samples.
    own_optimizer
        True if it takes gradient steps itself, however the optimiser is configured.
    plain_sgd_only
        True if its formula assumes that local steps are plain gradient descent.
    private_examples
        True if the accountant of DP-SGD describes its local steps.
    needs_difference_codec
        True if it is defined only with a codec that sends differences.
    needs_equal_steps
        Why all peers must make equally many steps under masks.
    needs_plain_averages
        Why a gossip step must be a plain average of the true models, so that neither robust rules nor attacks fit.
    needs_one_graph
        Why all gossip steps must use the same graph.
    needs_symmetric_weights
        Why both ends of an edge must weigh it alike.
    no_acceleration
        Why gossip cannot be accelerated.
    needs_gradients
        Why a learner must show its gradients.
    state_per_edge
        State that it keeps for each edge; its peers write a checkpoint after every round.
    additive
        True if peers compute the same model from totals alone and release no models.
    no_privacy
        Why its models cannot be hidden.
    no_compression
        Why its models cannot be compressed.

    Examples
    --------
    >>> Traits(linear=True, state_per_edge="keeps a vector for each edge").personal
    False
    """

    linear: bool = False
    nonlinear: str = "does not declare that it is linear"
    convex: bool = False
    full_participation: bool = False
    weighs_neighbours: bool = False
    asynchronous: bool = False
    single_step: bool = False
    silent_rounds: bool = False
    personal: bool = False
    keeps_local: bool = False
    needs_local: bool = False
    idle_alike: bool = False
    idle_weighs: bool = False
    moments: tuple[str, ...] = ()
    default_steps: int | None = None
    full_batch: bool = False
    own_optimizer: bool = False
    plain_sgd_only: bool = False
    private_examples: bool = False
    needs_difference_codec: bool = False
    needs_equal_steps: str = ""
    needs_plain_averages: str = ""
    needs_one_graph: str = ""
    needs_symmetric_weights: str = ""
    no_acceleration: str = ""
    needs_gradients: str = ""
    state_per_edge: str = ""
    additive: bool = False
    no_privacy: str = ""
    no_compression: str = ""


AVERAGING = Traits(linear=True, convex=True, private_examples=True, idle_alike=True)
"""The traits of FedAvg, the default algorithm; known here so that reading an experiment does not import torch."""

UNDECLARED = Traits(nonlinear="declares no traits", weighs_neighbours=True)
"""The traits assumed of a class that declares none: it may push, and it cannot be used with secure sums."""


@dataclass(frozen=True, kw_only=True)
class CodecTraits:
    """Requirements and offers of a codec.

    Parameters
    ----------
    differences
        True if it encodes differences from what was sent before, so that both ends keep the same past.
    alike
        True if equal rows of two peers are encoded alike, because nothing is drawn by their names. Simulations then
        compute one of the peers that sit out a round.

    Examples
    --------
    >>> CodecTraits(differences=True).alike
    False
    """

    differences: bool = False
    alike: bool = False


@dataclass(frozen=True, kw_only=True)
class RuleTraits:
    """Requirements and offers of a robust rule.

    Parameters
    ----------
    centred
        True if its centre is the peer's own model as it is, so that mixing with the nearest models first has no place.
    stacked
        True if it takes the models of several peers in one call, ``[R, n, P]`` and weights ``[R, n]``, on any device.

    Examples
    --------
    >>> RuleTraits(centred=True).stacked
    False
    """

    centred: bool = False
    stacked: bool = False


@dataclass(frozen=True, kw_only=True)
class ModeTraits:
    """Effects of a privacy mode on what leaves a peer.

    Parameters
    ----------
    hides
        True if models are moved to a fixed-point grid and hidden at all.
    masks
        True if pairwise masks are added, which cancel only in the mean over all peers.
    sums
        True if a peer receives sums over its neighbours and no single model.

    Examples
    --------
    >>> ModeTraits(hides=True, masks=True).sums
    False
    """

    hides: bool = False
    masks: bool = False
    sums: bool = False


@dataclass(frozen=True, kw_only=True)
class LearnerTraits:
    """Offers of a learner; one that declares nothing is asked for no more than ``fit``.

    Parameters
    ----------
    gradients
        True if it shows gradients, adds corrections to them and knows the size of its steps.
    known_steps
        True if ``[learning]`` describes its steps (rate, optimiser, epochs), from which masks are sized.
    any_data
        True if it trains on any data of the same shape: scaled features, or those of all peers together.
    torch_model
        True if its row is a torch module, which it has as ``model``.
    additive
        True if its model follows from exact totals alone, see :class:`p2pfl.learning.additive.Additive`.
    noisy
        True if it asks for one total a round and bounds the change by a sample, so that private noise works.
    converges
        True if further rounds change nothing in the end.
    private
        True if each peer ends with a private model of a size of its own, of which others learn nothing else.

    Examples
    --------
    >>> LearnerTraits(gradients=True).any_data
    False
    """

    gradients: bool = False
    known_steps: bool = False
    any_data: bool = False
    torch_model: bool = False
    additive: bool = False
    noisy: bool = False
    converges: bool = False
    private: bool = False


@dataclass(frozen=True, kw_only=True)
class DataTraits:
    """Requirements of a way in which data lie at peers.

    Parameters
    ----------
    columns
        True if peers hold different columns of the same people, so that a model is a sum of their blocks, and totals
        go to one peer alone.
    numpy_models
        Models that peers learn without torch.

    Examples
    --------
    >>> DataTraits().columns
    False
    """

    columns: bool = False
    numpy_models: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelTraits:
    """Offers of a model that follows from exact totals.

    Parameters
    ----------
    noisy
        True if it asks for one total a round, bounds the change by one sample, and takes nothing else from
        the data, so that private noise works.
    converges
        True if further rounds change nothing in the end.
    predicts
        False for a statistic, which has no scores.
    command
        Command of p2pfl that prints a saved model; empty if none does.
    test
        Share of the data that is held out for scores where ``data.test`` is not set.
    single
        True if it takes features in single precision, which need half the memory, as trees do.
    steps
        Keys of ``[learning]`` that describe its steps; most models have none.

    Examples
    --------
    >>> ModelTraits(command="coefficients").predicts
    True
    """

    noisy: bool = False
    converges: bool = False
    predicts: bool = True
    command: str = ""
    test: float = 0.2
    single: bool = False
    steps: tuple[str, ...] = ()
