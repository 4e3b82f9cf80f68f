"""Rules of rounds: who takes part, what travels, when they begin, and when they end."""

from __future__ import annotations

import math

from p2pfl.core.traits import DataTraits
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.rules.settings_rule import SettingsRule, When, is_set
from p2pfl.experiment.timetable import Timetable

DEVICES = "simulation.devices"


def _devices(when: When) -> When:
    return lambda it: it.clients is not None and when(it)


def _slow_by_samples(it: Composition) -> bool:
    return it.clients is not None and it.clients.sample_seconds > 0


DEVICED = tuple(
    SettingsRule(DEVICES, _devices(when), because, remedy, got="a table of clients")
    for when, because, remedy in (
        (
            lambda it: it.algorithm.full_participation,
            "with {algorithm}, all of whose peers take part in each round",
            "leave it out, or take an algorithm with participants, such as fedavg",
        ),
        (
            lambda it: it.graph is not None and not it.graph.uniform,
            "on {kind}, where clients that are away would have to pass on models",
            'set topology.kind = "complete", or leave it out',
        ),
        (
            lambda it: it.experiment.privacy.participation < 1,
            "with privacy.participation below 1, whose epsilon assumes that devices never decide who takes part",
            "set privacy.participation = 1 and learning.fraction instead, whose epsilon charges every round",
        ),
        (
            lambda it: it.claims and _slow_by_samples(it),
            "with private noise and sample_seconds, by which the samples of one client decide whether others count",
            "leave out sample_seconds or the noise",
        ),
        (
            lambda it: it.mode.sums,
            'with privacy.mode = "{mode}", because a sum over few participants reveals their models',
            'leave it out, or set privacy.mode to "pairwise" with privacy.clip and privacy.noise',
        ),
        (
            lambda it: it.experiment.simulation.absence > 0 or it.experiment.learning.dropped > 0,
            "with simulation.absence or stragglers that are dropped, which say otherwise who takes part",
            "leave one of them out",
        ),
    )
)
"""Clients that come, go and take their time."""


MAX_ALL_TO_ALL = 128
"""Live peers up to which each may send to all others: a round of 64 on a complete graph keeps two cores busy for 3 s,
and a round of 128 four times as long."""


def _many(it: Composition) -> bool:
    """Return whether more peers run live than can each send to all others."""
    return it.live and it.graph is not None and it.graph.peers > MAX_ALL_TO_ALL


RARE = (
    SettingsRule(
        "learning.algorithm_options.fragments",
        lambda it: it.fragments > max(1, it.experiment.horizon),
        "with rounds = {it.experiment.horizon}, because each round sends one fragment and some would never be sent",
        "set it to at most the number of rounds",
    ),
    SettingsRule(
        "learning.algorithm_options.overlap",
        lambda it: it.experiment.horizon == 1 and it.value("learning.algorithm_options.overlap") in ("start", "late"),
        "with rounds = 1, because the models that travel are those before the only training",
        'set rounds to 2 or more, or overlap to "none"',
    ),
)
"""Rounds in which parts of models travel, or models before their training."""


def _endless(when: When, because: str, remedy: str) -> SettingsRule:
    """Return a rule about rounds without an end."""
    return SettingsRule("rounds", lambda it: it.experiment.endless and when(it), because, remedy)


WITHOUT_END = (
    _endless(
        lambda it: it.algorithm.additive,
        "with {algorithm}, whose totals make the model in a number of rounds",
        "set it to a number",
    ),
    _endless(
        lambda it: it.data != DataTraits(),
        'with data.split = "{it.experiment.data.split}", whose training has a number of rounds',
        "set it to a number",
    ),
    _endless(
        lambda it: it.experiment.learning.scheduling.name is not None,
        "with learning.schedule, whose rates are those of a number of rounds",
        "leave the schedule out (its warmup may stay), or set rounds to a number",
    ),
    _endless(
        lambda it: it.experiment.learning.example_noise,
        "with learning.example_noise, because each round costs privacy of the samples and none is the last",
        "set rounds to a number",
    ),
    _endless(
        lambda it: it.mode.sums,
        'with privacy.mode = "{mode}", whose whole numbers grow with the rounds',
        'set rounds to a number, or privacy.mode to "pairwise"',
    ),
    _endless(
        lambda it: it.claims and it.experiment.privacy.epsilon is None,
        "with private noise and no privacy.epsilon, because each round costs privacy and nothing says when to stop",
        "set privacy.epsilon, with which the peers stop once it is spent, or set rounds to a number",
    ),
    _endless(
        lambda it: it.experiment.privacy.epsilon is not None and not it.experiment.privacy.noise,
        "with privacy.epsilon and no privacy.noise, which would follow from the number of rounds",
        "set privacy.noise, or set rounds to a number",
    ),
)
"""Rounds without an end."""


def _asleep(when: When, because: str, remedy: str) -> SettingsRule:
    """Return a rule about a device that leaves the others from time to time."""

    def applies(it: Composition) -> object:
        pace = it.experiment.transport.pace
        return it.live and pace and (pace.awake or pace.bytes) and when(it)

    return SettingsRule("transport.pace", applies, because, remedy, got="a pace with awake or bytes")


def _awake_briefly(it: Composition) -> bool:
    """Return whether a window of this device may end before the members of a round admit it and play the next."""
    table = Timetable.of(it.experiment.transport.pace)
    return min((window.seconds for window in table.awake), default=math.inf) < 2 * table.every


PACED = (
    SettingsRule(
        "transport.pace",
        lambda it: it.live and it.experiment.transport.pace and it.algorithm.asynchronous,
        "with {algorithm}, whose peers run cycles of their own",
        "leave it out, or take an algorithm whose peers wait for each other",
        got="a pace",
    ),
    _asleep(
        lambda it: it.mode.masks and it.experiment.privacy.departures != "go_on",
        'with privacy.departures = "{it.experiment.privacy.departures}", under which all wait for a peer that leaves',
        'leave them out, or set privacy.departures to "go_on"',
    ),
    _asleep(
        lambda it: it.mode.masks and _awake_briefly(it),
        'with privacy.mode = "{mode}" and hours shorter than twice "every", because the members of one round admit a '
        "device to the next",
        "lengthen the hours of awake",
    ),
    _asleep(lambda it: it.algorithm.additive, "with {algorithm}, whose totals need all peers", "leave them out"),
    _asleep(
        lambda it: it.mode.sums,
        'with privacy.mode = "{mode}", whose sums need the same senders in all rounds',
        'leave them out, or set privacy.mode to "pairwise" with privacy.departures = "go_on"',
    ),
    *(
        _asleep(is_set(key), f"with {key}, on which all peers decide together", "leave one of them out")
        for key in ("learning.stop", "learning.patience", "learning.consensus", "data.scale")
    ),
)
"""Pauses between rounds, and devices that sleep."""


CROWDED = (
    SettingsRule(
        "topology.kind",
        lambda it: _many(it) and it.graph is not None and it.graph.complete,
        f"with {{it.graph.peers}} live peers, because each sends to all others, which ends at {MAX_ALL_TO_ALL}",
        'take a graph of few neighbours, such as "random_regular" with topology.degree = 4, or p2pfl simulate',
    ),
)
"""Numbers of live peers at which messages to all others end."""
