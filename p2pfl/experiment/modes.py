"""Privacy modes: one class defines what leaves a peer, what that rules out, and what it guarantees.

A mode of your own has ``name``, ``traits``, ``unused``, ``wrap``, ``effective`` and ``statement`` as these have;
``privacy.mode = "package.module:Class"`` makes it from those keys of ``[privacy]`` for which it has parameters; all
other keys count as unused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, Protocol, TypedDict, Unpack

from p2pfl.core.errors import ExperimentError
from p2pfl.core.traits import ModeTraits
from p2pfl.experiment import schema
from p2pfl.experiment.catalogue import MODES
from p2pfl.privacy import Settings

if TYPE_CHECKING:
    from p2pfl.core.neighbourhood import Neighbourhood
    from p2pfl.privacy.keys import Source
    from p2pfl.privacy.release import MaskSource

NOISE_STAYS = "private noise stays in the models"
MASK_KEYS = ("mask", "mask_graph", "departures")
LEFT = {
    "wait": (
        "if the model of a peer is missing, the others wait for it and play the round again, or end with the "
        "parameters from before the round if it does not return"
    ),
    "go_on": (
        "if a peer disappears, or does not report for too long, the others play the round again without it, and then "
        "private noise alone hides its update of that round from whoever holds its model"
    ),
    "bare": (
        "if a peer disappears, or does not report for too long, the others play the round again without it, and then "
        "its exact update of that round is visible to whoever holds its model, because there is no private noise"
    ),
    "stop": "if the model of a peer is missing for good, the others end with the parameters from before the round",
}
"""Consequences of ``privacy.departures``; "bare" stands for "go_on" without private noise."""


class WrapOptions(TypedDict):
    """Keyword arguments of :meth:`Mode.wrap`, for modes that pass them on."""

    settings: Settings
    masks: MaskSource | None
    source: Source
    round: int
    charge: NotRequired[Callable[[], None] | None]


class Mode(Protocol):
    """Protection of the models that leave a peer."""

    traits: ClassVar[ModeTraits]

    @property
    def name(self) -> str:
        """Name in the experiment file."""
        ...

    @property
    def unused(self) -> Mapping[str, str]:
        """Keys of ``[privacy]`` that have no effect, each with the reason."""
        ...

    def wrap(
        self,
        net: Neighbourhood,
        *,
        settings: Settings,
        masks: MaskSource | None,
        source: Source,
        round: int,
        charge: Callable[[], None] | None = None,
    ) -> Neighbourhood:
        """Return the neighbourhood of a round that protects models before they leave.

        :func:`p2pfl.privacy.private` explains the parameters.
        """
        ...

    def effective(self, settings: Settings) -> Mode:
        """Return the mode that is in effect with these settings."""
        ...

    def statement(self, *, claimed: bool, whose: str = "") -> str:
        """Return what the mode guarantees besides an epsilon, in words.

        Parameters
        ----------
        claimed
            True if the run claims differential privacy.
        whose
            Peers whose data the claim does not cover, if it covers that of others.

        Returns
        -------
        str
            Clauses of a sentence.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class NoPrivacy:
    """No protection of models from neighbours; they are encrypted against the broker.

    Examples
    --------
    >>> NoPrivacy().traits.hides
    False
    """

    traits: ClassVar[ModeTraits] = ModeTraits()
    name: ClassVar[str] = "none"
    unused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (key for key in schema.PrivacySettings.__struct_fields__ if key != "mode"), 'privacy.mode is "none"'
    )

    def wrap(self, net: Neighbourhood, **options: Unpack[WrapOptions]) -> Neighbourhood:
        """Return the neighbourhood as it is."""
        del options
        return net

    def effective(self, settings: Settings) -> Mode:
        """Return the mode itself."""
        del settings
        return self

    def statement(self, *, claimed: bool, whose: str = "") -> str:
        """Return what is promised, in words."""
        del claimed, whose
        return (
            "models are encrypted against the broker, and every neighbour can read them; over several gossip steps or "
            "rounds, other peers can compute them from the mixtures that they receive"
        )


@dataclass(frozen=True, kw_only=True)
class Independent:
    """Clipped updates with private noise of each peer, which stays in the models.

    Parameters
    ----------
    clip, noise, bits, participation, epsilon, delta, colluders, adjacency, budget
        Keys of :class:`p2pfl.experiment.schema.PrivacySettings`.

    Examples
    --------
    >>> Independent(epsilon=8.0).traits
    ModeTraits(hides=True, masks=False, sums=False)
    """

    clip: float = math.inf
    noise: float = 0.0
    bits: int = 20
    participation: float = 1.0
    epsilon: float | None = None
    delta: float = 1e-5
    colluders: int = 1
    adjacency: Literal["zero-out", "replace"] = "zero-out"
    budget: str | None = None

    traits: ClassVar[ModeTraits] = ModeTraits(hides=True)
    name: ClassVar[str] = "independent"
    unused: ClassVar[Mapping[str, str]] = dict.fromkeys(MASK_KEYS, 'privacy.mode is "independent", without masks')

    def wrap(self, net: Neighbourhood, **options: Unpack[WrapOptions]) -> Neighbourhood:
        """Return the neighbourhood through :func:`p2pfl.privacy.private`."""
        from p2pfl.privacy import private  # noqa: PLC0415 (it imports torch)

        return private(net, **options)

    def effective(self, settings: Settings) -> Mode:
        """Return the mode itself; no protection if there is no noise."""
        return self if settings.noise else NoPrivacy()

    def statement(self, *, claimed: bool, whose: str = "") -> str:
        """Return what is promised, in words."""
        return NOISE_STAYS if claimed else f"{NOISE_STAYS}; {unclaimed(whose)}"


@dataclass(frozen=True, kw_only=True)
class Pairwise(Independent):
    """Masks of pairs of peers: noise that one adds and the other subtracts hides models and cancels in the mean.

    Parameters
    ----------
    mask, mask_graph, partners, departures
        Keys of :class:`p2pfl.experiment.schema.PrivacySettings`, like all others.

    Examples
    --------
    >>> Pairwise(mask=1.0).traits.masks
    True
    """

    mask: float | None = None
    mask_graph: Literal["same", "complete"] = "same"
    partners: int | None = None
    departures: Literal["wait", "go_on", "stop"] = "wait"

    traits: ClassVar[ModeTraits] = ModeTraits(hides=True, masks=True)
    name: ClassVar[str] = "pairwise"
    unused: ClassVar[Mapping[str, str]] = {}

    def effective(self, settings: Settings) -> Mode:
        """Return the mode itself; private noise alone if there are no masks."""
        return self if settings.mask else Independent().effective(settings)

    def statement(self, *, claimed: bool, whose: str = "") -> str:
        """Return what is promised, in words."""
        hides = "masks hide each update among those of its honest neighbours that count and cancel in the mean"
        bare = self.departures == "go_on" and not self.noise
        left = LEFT["bare" if bare else self.departures]
        return f"{hides}; {left}" if claimed else f"{hides}; {unclaimed(whose)}; {left}"


@dataclass(frozen=True, kw_only=True)
class SecAgg(Independent):
    """Secure sums: each peer receives the exact sum of its neighbours' models and no single model.

    Parameters
    ----------
    clip, noise, bits, participation, epsilon, delta, colluders, adjacency, budget
        Keys of :class:`p2pfl.experiment.schema.PrivacySettings`.

    Examples
    --------
    >>> SecAgg().traits.sums
    True
    """

    traits: ClassVar[ModeTraits] = ModeTraits(hides=True, sums=True)
    name: ClassVar[str] = "secagg"
    unused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        MASK_KEYS, 'privacy.mode is "secagg", whose masks are uniform, one for each two neighbours'
    )

    def effective(self, settings: Settings) -> Mode:
        """Return the mode itself, which does not depend on noise."""
        del settings
        return self

    def statement(self, *, claimed: bool, whose: str = "") -> str:
        """Return what is promised, in words."""
        hides = (
            "each peer receives the exact sum of its neighbours' models and no single one; masks hide them from the "
            "broker, and are as secret as their keys, so this protection rests on cryptography, not on noise"
        )
        left = "values that hardly change from round to round show in many sums"
        return f"{hides}; {NOISE_STAYS}" if claimed else f"{hides}; {unclaimed(whose)}; {left}"


def unclaimed(whose: str = "") -> str:
    """Return the sentence that no differential privacy is claimed."""
    return f"no differential privacy is claimed{whose}, which needs a clip and noise"


def mode_of(wanted: schema.PrivacySettings) -> Mode:
    """Return the mode of a section ``[privacy]``; a key at its default leaves the parameter that of the mode's class.

    Examples
    --------
    >>> mode_of(schema.PrivacySettings(mode="pairwise", colluders=2)).name
    'pairwise'
    """
    keys, usual = schema.PrivacySettings.__struct_fields__, schema.PrivacySettings()
    given = {key: getattr(wanted, key) for key in keys if getattr(wanted, key) != getattr(usual, key)}
    made: Mode = MODES.make(wanted.mode, given)
    return made


def section(mode: Mode) -> schema.PrivacySettings:
    """Return the section ``[privacy]`` of a mode.

    Raises
    ------
    ExperimentError
        A parameter that is not a key of the section has another value than its default, which would be lost.

    Examples
    --------
    >>> section(Independent(noise=0.1)).noise
    0.1
    """
    made: Any = mode  # a dataclass
    known = {}
    for each in fields(made):
        value = getattr(made, each.name)
        if each.name in schema.PrivacySettings.__struct_fields__:
            known[each.name] = value
        elif value != each.default:
            raise ExperimentError(
                f"{type(mode).__name__} has a parameter {each.name}, which is not a key of [privacy]; "
                "name it like one of the keys, such as noise, or set its default in a subclass"
            )
    return schema.PrivacySettings(mode=MODES.name_of(mode), **known)
