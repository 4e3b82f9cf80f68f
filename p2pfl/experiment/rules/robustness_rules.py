"""Rules of robust aggregation and of attacks."""

from __future__ import annotations

from p2pfl.experiment.rules.rule import Composition, accelerated, each


def _averaged(it: Composition) -> str:
    found = {"learning.consensus": it.experiment.learning.consensus, "data.scale": it.experiment.data.scale}
    return next((key for key, given in found.items() if given), "")


CONTESTED = (
    *each(
        (
            lambda it: it.mode.masks,
            (
                'with privacy.mode = "{mode}", under which masks cancel only in the average, so no single model can '
                "be recognised as Byzantine"
            ),
        ),
        (
            lambda it: it.mode.sums,
            'with privacy.mode = "{mode}", under which peers receive sums and no single model',
        ),
        (lambda it: it.algorithm.needs_plain_averages, "with {algorithm}, which {why}"),
        (lambda it: it.algorithm.asynchronous, "with {algorithm}, which merges models of different cycles by age"),
        (
            lambda it: it.weighted,
            "with {why}, because a Byzantine peer would inflate its own weight",
        ),
        (accelerated, 'with gossip.acceleration = "{why}", which expects linear mixing'),
        (_averaged, "with {why}, which takes a plain average that one malicious peer could spoil"),
        (
            lambda it: it.differences,
            'with compression.name = "{codec}", under which peers send differences and no models',
        ),
        keys=("robustness.rule", "attack.name"),
        remedy="change one of the two",
    ),
    *each(
        (lambda it: it.codec, 'with compression.name = "{codec}", which encodes true models'),
        keys=("attack.name",),
        remedy='leave one of the two out, or set attack.name to "label_flip"',
    ),
)
"""Robust rules and attacks: both need single, true models that are averaged plainly."""
