"""Names of an experiment file and their classes, which declare everything else about themselves."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any, TypeVar

from p2pfl.core import imports
from p2pfl.core.errors import ExperimentError
from p2pfl.core.registry import find_entry_points, load
from p2pfl.core.traits import AVERAGING, UNDECLARED, CodecTraits, ModelTraits, ModeTraits, RuleTraits, Traits

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Classes and functions by name: those of p2pfl, and those that installed packages register by entry points.

    Parameters
    ----------
    key
        The key of the experiment file that takes one of the names.
    package
        The package below which the built-in classes are.
    places
        Each name and its ``module:Class`` below the package.
    optional
        True if ``none`` is a name as well.
    group
        Group of entry points of further names; empty if there are none. A name of p2pfl stays p2pfl's.

    Examples
    --------
    >>> ALGORITHMS.kind("dpsgd").__name__
    'DPSGD'
    >>> "dpsgd" in list(ALGORITHMS)
    True
    """

    key: str
    package: str = ""
    places: Mapping[str, str] = field(default_factory=dict)
    optional: bool = True
    group: str = ""

    def __iter__(self) -> Iterator[str]:
        yield from self.places
        yield from (name for name in self._registered if name not in self.places)

    def __len__(self) -> int:
        return len({*self.places, *self._registered})

    def __contains__(self, name: object) -> bool:
        return name in self.places or name in self._registered

    @property
    def _registered(self) -> Mapping[str, EntryPoint]:
        return find_entry_points(self.group) if self.group else {}

    def check(self, name: str) -> None:
        """Refuse a name that is neither in the catalogue nor of the form ``package.module:Class``.

        Raises
        ------
        ExperimentError
            The name is unknown; the message contains the nearest known name.
        """
        names = [*["none"] * self.optional, *self]
        if ":" in name or name in names:
            return
        near = difflib.get_close_matches(name, names, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        listed = f"one of {', '.join(map(_quote, names))} or to " if names else ""
        raise ExperimentError(f'{self.key} is "{name}"; set it to {listed}"package.module:Class"{hint}')

    def kind(self, name: str) -> Callable[..., Any]:
        """Return the class of a name, or the one that ``package.module:Class`` names.

        Raises
        ------
        ExperimentError
            The name is unknown, or the class cannot be imported.
        InputError
            The class of an entry point cannot be imported.
        """
        self.check(name)
        if ":" not in name and name not in self.places:
            kind: Callable[..., Any] = load(self.group, name)
            return kind
        return import_reference(name if ":" in name else f"{self.package}.{self.places[name]}", key=self.key)

    def make(self, name: str, given: Mapping[str, Any]) -> Any:
        """Make an object of a class from those of the ``given`` values for which it has parameters."""
        kind = self.kind(name)
        known = _parameters(kind)
        return kind(**{key: value for key, value in given.items() if key in known})

    def takes(self, name: str, parameter: str) -> bool:
        """Return whether a class has a parameter."""
        return parameter in _parameters(self.kind(name))

    def name_of(self, made: object) -> str:
        """Return the name of an object's class: the one in the catalogue, or ``package.module:Class``.

        Examples
        --------
        >>> from p2pfl.algorithms import DPSGD
        >>> ALGORITHMS.name_of(DPSGD())
        'dpsgd'
        """
        reference = f"{type(made).__module__}:{type(made).__qualname__}"
        known = {name: entry.value for name, entry in self._registered.items()}
        known |= {name: f"{self.package}.{each}" for name, each in self.places.items()}
        return next((name for name, each in known.items() if each == reference), reference)


def _quote(name: str) -> str:
    return f'"{name}"'


@cache
def _parameters(kind: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the parameters of a class; a mode is made in every round."""
    return frozenset(inspect.signature(kind).parameters)


ALGORITHMS = Catalogue(
    "learning.algorithm",
    "p2pfl.algorithms",
    {
        "fedavg": "fedavg:FedAvg",
        "fedsgd": "fedavg:FedSGD",
        "dpsgd": "dpsgd:DPSGD",
        "fedprox": "fedprox:FedProx",
        "scaffold": "scaffold:SCAFFOLD",
        "fednova": "fednova:FedNova",
        "fedavgm": "fedopt:FedAvgM",
        "fedadam": "fedopt:FedAdam",
        "fedyogi": "fedopt:FedYogi",
        "fedadagrad": "fedopt:FedAdagrad",
        "diloco": "diloco:DiLoCo",
        "fine_tuning": "fine_tuning:FineTuning",
        "ditto": "ditto:Ditto",
        "pfedme": "pfedme:PFedMe",
        "per_fedavg": "per_fedavg:PerFedAvg",
        "fedper": "fedper:FedPer",
        "fedbn": "fedper:FedBN",
        "fedrep": "fedrep:FedRep",
        "multitask": "multitask:MultiTask",
        "propagation": "propagation:Propagation",
        "ifca": "ifca:IFCA",
        "gradient_tracking": "tracking:GradientTracking",
        "d2": "diffusion:D2",
        "exact_diffusion": "diffusion:ExactDiffusion",
        "qg_dsgdm": "quasi_global:QGDSGDm",
        "sgp": "push:SGP",
        "relay_sgd": "relay:RelaySGD",
        "choco": "choco:Choco",
        "gossip_learning": "gossip_learning:GossipLearning",
        "power_gossip": "power_gossip:PowerGossip",
        "partial": "partial_sharing:PartialSharing",
        "exact": "exact:Exact",
    },
    optional=False,
    group="p2pfl.algorithms",
)

MODELS = Catalogue("model.name", optional=False, group="p2pfl.models")
"""Models that follow from exact totals; all others are torch modules."""

SAVED_MODELS = Catalogue("model", optional=False, group="p2pfl.saved_models")
"""Models that files alone have, such as the part of a model that one peer keeps."""

TOPOLOGIES = Catalogue("topology.kind", optional=False, group="p2pfl.topologies")
"""Functions that make graphs, besides the kinds of :data:`p2pfl.topology.BUILDERS`."""

ADDITIVE = "exact"
"""The algorithm of models that follow from exact totals."""


def declared_traits(part: object, neutral: T) -> T:
    """Return the traits of a part or its class; neutral ones where a class of your own declares none."""
    traits: T = getattr(part, "traits", neutral)
    return traits


def model_traits(name: str) -> ModelTraits:
    """Return what a registered model declares; the neutral traits for other models, which are not imported."""
    return declared_traits(MODELS.kind(name), ModelTraits()) if name in MODELS else ModelTraits()


def exact_traits(name: str) -> ModelTraits:
    """Return what a model of totals declares, which may be a class of your own; neutral traits of unknown names.

    A partitioning may have models of its own; other unknown names are refused elsewhere.
    """
    return declared_traits(MODELS.kind(name), ModelTraits()) if name in MODELS or ":" in name else ModelTraits()


CODECS = Catalogue(
    "compression.name",
    "p2pfl.core",
    {
        "float16": "codecs:Half",
        "bfloat16": "codecs:Half",
        "quantise": "codecs:Quantise",
        "qsgd": "codecs:QSGD",
        "top_k": "sparse_codecs:TopK",
        "random_k": "sparse_codecs:RandomK",
    },
)

RULES = Catalogue(
    "robustness.rule",
    "p2pfl.algorithms.robust",
    {
        "clipped_gossip": "rules:ClippedGossip",
        "self_centred_clipping": "rules:SelfCentredClipping",
        "trimmed_mean": "rules:TrimmedMean",
        "median": "rules:Median",
        "krum": "rules:Krum",
        "multi_krum": "rules:multi_krum",
    },
)

ATTACKS = Catalogue(
    "attack.name",
    "p2pfl.algorithms.robust",
    dict.fromkeys(
        ("sign_flip", "scaled", "random", "label_flip", "alie", "ipm", "dissensus"),
        "attacks:Attack",
    ),
    group="p2pfl.attacks",
)
"""Attacks that :class:`p2pfl.algorithms.robust.Attack` implements, and functions that it calls."""

MODES = Catalogue(
    "privacy.mode",
    "p2pfl.experiment",
    {
        "none": "modes:NoPrivacy",
        "independent": "modes:Independent",
        "pairwise": "modes:Pairwise",
        "secagg": "modes:SecAgg",
    },
    optional=False,
)


STATES: Mapping[str, int] = {
    **dict.fromkeys(
        ("d2", "exact_diffusion", "gradient_tracking", "qg_dsgdm", "choco", "ditto", "pfedme", "fedavgm", "diloco"), 1
    ),
    **dict.fromkeys(("fedadam", "fedyogi", "fedadagrad", "power_gossip"), 2),
    "scaffold": 3,
}
"""Further numbers per parameter that an algorithm keeps, by its name."""


def traits_of(name: str) -> Traits:
    """Return what an algorithm declares about itself, by its name.

    Returns
    -------
    Traits
        Those of its class; :data:`p2pfl.core.traits.UNDECLARED` where a class of your own declares none.

    Raises
    ------
    ExperimentError
        The algorithm is unknown or cannot be imported.

    Examples
    --------
    >>> traits_of("dpsgd").default_steps
    1
    """
    if name == "fedavg":
        return AVERAGING  # the default needs no torch to be read; a test holds that these are FedAvg's
    return declared_traits(ALGORITHMS.kind(name), UNDECLARED)


def codec_traits(name: str) -> CodecTraits | None:
    """Return what a codec declares, by its name; ``None`` for ``none``."""
    return None if name == "none" else declared_traits(CODECS.kind(name), CodecTraits())


def rule_traits(name: str) -> RuleTraits | None:
    """Return what a robust rule declares, by its name; ``None`` for ``none``."""
    return None if name == "none" else declared_traits(RULES.kind(name), RuleTraits())


def mode_traits(name: str) -> ModeTraits:
    """Return what a privacy mode declares, by its name."""
    return declared_traits(MODES.kind(name), ModeTraits())


def import_reference(reference: str, *, key: str) -> Callable[..., Any]:
    """Return the class or function that ``package.module:name`` names, the value of a key of the experiment file.

    Raises
    ------
    ExperimentError
        It cannot be imported or called.
    """
    return imports.import_callable(reference, key=key, refused=ExperimentError)
