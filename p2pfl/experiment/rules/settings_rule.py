"""One combination of settings that is refused, and conditions of such rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from p2pfl.experiment.composition import Composition

When = Callable[[Composition], object]
"""Condition of a rule: false, or a reason that may be part of its sentence."""


@dataclass(frozen=True)
class SettingsRule:
    """One combination of settings that is refused.

    Parameters
    ----------
    refuses
        Key of the experiment file whose value is refused.
    when
        Condition; what it returns is ``{why}`` in ``because``.
    because
        What the value does not work with, and why. ``{algorithm}``, ``{mode}``, ``{codec}``, ``{rule}`` and ``{kind}``
        are names, ``{it}`` is the composition.
    remedy
        Advice to the user.
    got
        Refused value if it is not that of the key, with names in braces like ``because``.

    Examples
    --------
    >>> from p2pfl.experiment.schema import Experiment, LearningSettings
    >>> rule = SettingsRule("learning.stop", lambda it: it.algorithm.personal, "with {algorithm}", "leave it out")
    >>> rule.refusal(Composition.of(Experiment(learning=LearningSettings(algorithm="ditto", stop=0.1))))
    'learning.stop = 0.1 does not work with ditto; leave it out'
    """

    refuses: str
    when: When
    because: str
    remedy: str = "leave one of the two out"
    got: str = ""

    def refusal(self, it: Composition) -> str | None:
        """Return the sentence that refuses a composition; ``None`` if the rule does not apply."""
        why = self.when(it)
        if not why:
            return None
        names = {
            "why": why,
            "it": it,
            "algorithm": it.experiment.learning.algorithm,
            "mode": it.experiment.privacy.mode,
            "codec": it.experiment.compression.name,
            "rule": it.experiment.robustness.rule,
            "kind": it.experiment.topology.kind,
        }
        value = it.value(self.refuses)
        if self.got:
            refused = f"{self.refuses}: {self.got.format(**names)} does not work"
        elif value is None:
            refused = f"{self.refuses} is not set, which does not work"
        else:
            refused = f"{self.refuses} = {_show_value(value)} does not work"
        return f"{refused} {self.because.format(**names)}; {self.remedy}"


def _show_value(value: Any) -> str:
    """Return a value as messages show it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def is_set(key: str) -> When:
    """Return the condition that a key has a value other than that of an attack on labels."""
    return lambda it: it.value(key) not in (None, False, 0, "none", "label_flip")


def each(*cases: tuple[When, str], keys: tuple[str, ...], remedy: str) -> tuple[SettingsRule, ...]:
    """Return a rule for each key and each case; it applies if the key is set and the case holds."""

    def applies(key: str, when: When) -> When:
        asked = is_set(key)
        return lambda it: asked(it) and when(it)

    return tuple(SettingsRule(key, applies(key, when), why, remedy) for key in keys for when, why in cases)


def acceleration(it: Composition) -> object:
    """Return the name of the acceleration, false if there is none."""
    return it.experiment.gossip.acceleration != "none" and it.experiment.gossip.acceleration
