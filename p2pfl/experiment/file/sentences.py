"""Sentences about keys of the experiment file: values of the wrong type, and keys that have no effect."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from msgspec import inspect

from p2pfl.core.errors import ExperimentError
from p2pfl.core.traits import UNDECLARED, Traits
from p2pfl.experiment.catalogue import MODES, mode_traits, model_traits, traits_of
from p2pfl.experiment.schema import (
    MAX_FLOAT,
    DeviceSettings,
    Experiment,
    PrivacySettings,
    ScheduleSettings,
    Section,
    TopologySettings,
)


def mismatch(message: str, table: Mapping[str, Any], section: type[Section] = Experiment) -> str:
    """Return one sentence for a validation error of msgspec: the key, its value, and what to set it to.

    Parameters
    ----------
    message
        Message of msgspec.
    table
        The table that it validated.
    section
        The section that the table should be.

    Returns
    -------
    str
        The sentence; the message itself if it names no key.

    Examples
    --------
    >>> mismatch("Expected `int` >= 1 - at `$.rounds`", {"rounds": 0})
    'rounds is 0; set it to a whole number >= 1 or "endless"'
    >>> mismatch("Invalid enum value 'sane' - at `$.privacy.mask_graph`", {"privacy": {"mask_graph": "sane"}})
    'privacy.mask_graph is "sane"; set it to "complete" or "same"; did you mean "same"?'
    """
    match = re.search(r" - at `\$\.([\w.]+)", message)
    if match is None:  # the table itself, which is one by now
        return message
    key = match[1].rstrip(".")
    value: Any = table
    kind: inspect.Type = inspect.type_info(section)
    for part in key.split("."):
        value = value[part]
        options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
        for struct in options:
            if isinstance(struct, inspect.StructType):
                kind = next(field.type for field in struct.fields if field.name == part)
    choices = [choice for choice in _choices(kind) if isinstance(choice, str)]
    near = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    hint = f'; did you mean "{near[0]}"?' if near else ""
    empty = " that is not empty" if value == "" and not choices else ""
    return f"{key} is {show_value(value)}; set it to {_words(kind)}{empty}{hint}"


def words(kind: Any) -> str:
    """Return what values a type annotation accepts, in words.

    Examples
    --------
    >>> words(bool)
    'true or false'
    """
    return _words(inspect.type_info(kind))


def idle(experiment: Experiment) -> dict[str, str]:
    """Return the keys that differ from their default but have no effect, each with the reason.

    Examples
    --------
    >>> from p2pfl.experiment.schema import LearningSettings
    >>> idle(Experiment(learning=LearningSettings(algorithm="dpsgd", epochs=3)))
    {'learning.epochs': 'dpsgd makes learning.steps steps per round, 1 by default'}
    """
    traits, usual = _traits(experiment.learning.algorithm), Experiment()
    reasons = _unlearned(experiment, traits) | _undescribed(experiment) | _unmixed(experiment, traits)
    if traits.additive:
        why = f"{experiment.model.name} follows from exact totals over all peers"
        added = {f"{section}.{key}": why for section, keys in UNADDED.items() for key in keys.split()}
        if any(_value(experiment, key) != _value(usual, key) for key in added):  # else nothing is imported
            used = {f"learning.{key}" for key in model_traits(experiment.model.name).steps}
            added = {key: why for key, why in added.items() if key not in used}
        reasons |= added
    reasons |= _unhidden(experiment, traits) | _uncontested(experiment)
    stale = {key: why for key, why in reasons.items() if _value(experiment, key) != _value(usual, key)}
    return stale | _unhurried(experiment.simulation.devices, traits)


UNADDED: Mapping[str, str] = {
    "learning": "optimizer rate options schedule max_norm batch epochs steps stragglers loss augment metrics device "
    "dtype example_noise",
    "model": "hidden pretrained frozen norm",
    "gossip": "steps tolerance weights acceleration",
    "compression": "zstd",
    "privacy": "clip mask bits participation partners",
    "simulation": "loss",
    "transport": "hurry",
}
"""Keys by section that have no effect on models that follow from totals."""


def _value(experiment: Experiment, key: str) -> Any:
    section, _, name = key.partition(".")
    return getattr(getattr(experiment, section), name)


def _unhurried(devices: DeviceSettings | None, traits: Traits) -> dict[str, str]:
    """Return the keys of ``simulation.devices`` that differ from their default but have no effect."""
    if devices is None:
        return {}
    why, usual = dict[str, str](), DeviceSettings()
    if not devices.stragglers:
        why["slowdown"] = "stragglers is 0, so no client is slow"
    elif devices.slowdown == 1:
        why["stragglers"] = "slowdown is 1, so they are as fast as others"
    if traits.asynchronous:
        cycles = "its peers count cycles, and none waits for another"
        why |= dict.fromkeys(set(DeviceSettings.__struct_fields__) - {"stragglers", "slowdown"}, cycles)
    elif devices.timeless:
        timeless = "no client takes time without seconds or sample_seconds"
        why |= dict.fromkeys(("deadline", "spread", "stragglers", "slowdown"), timeless)
    changed = {key: reason for key, reason in why.items() if getattr(devices, key) != getattr(usual, key)}
    return {f"simulation.devices.{key}": reason for key, reason in changed.items()}


def _undescribed(experiment: Experiment) -> dict[str, str]:
    """Return the keys of graph, data, model and compression that another one makes useless."""
    model, data, why = experiment.model, experiment.data, dict[str, str]()
    if experiment.topology.files:
        drawn = "the file in topology.kind defines the graph"
        why |= {f"topology.{key}": drawn for key in TopologySettings.__struct_fields__ if key != "kind"}
    if data.owned:
        why |= dict.fromkeys(("data.split", "data.split_options"), f"{data.name} gives each peer its own data")
    if ":" in model.name:
        why["model.hidden"] = "a model of your own takes its widths from model.options"
    if experiment.compression.name == "none":
        why["compression.options"] = 'compression.name is "none"'
    return why


def _unlearned(experiment: Experiment, traits: Traits) -> dict[str, str]:
    """Return the keys of ``[learning]`` that have no effect."""
    learning = experiment.learning
    why = _undone(experiment, traits)
    if traits.full_participation:
        everybody = f"all peers take part in each round of {learning.algorithm} and have equal weights"
        why |= dict.fromkeys(("fraction", "weighted", *["stragglers"] * bool(learning.dropped)), everybody)
    schedule = learning.scheduling
    if schedule.name is None and schedule != ScheduleSettings(warmup=schedule.warmup):
        why["schedule"] = "the schedule has no name"
    return {f"learning.{key}": reason for key, reason in why.items()}


def _undone(experiment: Experiment, traits: Traits) -> dict[str, str]:
    """Return the keys of local training that have no effect."""
    learning, name = experiment.learning, experiment.learning.algorithm
    kept, why = not learning.dropped, dict[str, str]()
    if traits.own_optimizer:
        alone = f"{name} takes gradient steps of its own, as learning.algorithm_options defines"
        return dict.fromkeys(["optimizer", "options", "epochs", "steps", *["stragglers"] * kept], alone)
    if traits.default_steps is not None:
        why["epochs"] = f"{name} makes learning.steps steps per round, {traits.default_steps} by default"
    elif traits.full_batch:
        why |= dict.fromkeys(["batch", "epochs", "steps"], f"{name} makes one step on all data per round")
    elif learning.steps is not None:
        why["epochs"] = "learning.steps replaces it"
    longest = 1 if traits.full_batch else learning.steps or traits.default_steps or learning.epochs
    if learning.example_noise:
        why["stragglers"] = "with learning.example_noise each peer makes all its steps"
    elif longest == 1 and kept:
        why["stragglers"] = "no peer can do less than one epoch or step per round"
    return why


def _unmixed(experiment: Experiment, traits: Traits) -> dict[str, str]:
    """Return the keys of ``[gossip]`` that have no effect."""
    name, why = experiment.learning.algorithm, dict[str, str]()
    if traits.single_step:
        single = f"{name} makes one gossip step per round, without acceleration"
        why = dict.fromkeys(["gossip.steps", "gossip.acceleration"], single)
    if mode_traits(experiment.privacy.mode).sums:
        why["gossip.tolerance"] = f'privacy.mode is "{experiment.privacy.mode}", with one gossip step per round'
    elif traits.full_participation:
        why["gossip.tolerance"] = f"{name} makes gossip.steps gossip steps per round, 1 by default"
    elif experiment.gossip.steps is not None:
        why["gossip.tolerance"] = "gossip.steps replaces it"
    return why


def _unhidden(experiment: Experiment, algorithm: Traits) -> dict[str, str]:
    """Return the keys of ``[privacy]`` that have no effect."""
    privacy = experiment.privacy
    traits, why = mode_traits(privacy.mode), dict(_unused(privacy.mode))
    if not traits.hides and experiment.learning.example_noise:
        why.pop("delta", None)  # of the guarantee for samples
        why.pop("budget", None)
    if traits.masks and privacy.epsilon is not None and not privacy.noise:
        why["mask"] = "privacy.epsilon without privacy.noise chooses both"
    clipped = not math.isinf(privacy.clip) or algorithm.additive
    bounded = privacy.epsilon is not None or (privacy.noise and clipped)
    if traits.hides and not bounded and not experiment.learning.example_noise:
        why["budget"] = "updates have a cost to add up only with privacy.epsilon, or with a clip and noise"
    if algorithm.additive:
        why.pop("budget", None)  # it has the ledger of runs
    if algorithm.full_participation:
        why["participation"] = f"all peers take part in each round of {experiment.learning.algorithm}"
    return {f"privacy.{key}": reason for key, reason in why.items()}


def _unused(mode: str) -> Mapping[str, str]:
    """Return the keys of ``[privacy]`` that a mode does not use; those without a parameter in a class of the user."""
    reasons: Mapping[str, str] = getattr(MODES.kind(mode), "unused", {})
    if ":" not in mode:
        return reasons
    other = {key for key in PrivacySettings.__struct_fields__ if key != "mode" and not MODES.takes(mode, key)}
    return {**{key: f'privacy.mode is "{mode}", which has no parameter {key}' for key in other}, **reasons}


def _traits(name: str) -> Traits:
    """Return the traits of an algorithm; those of no declaration if a user's own class cannot be imported here."""
    try:
        return traits_of(name)
    except ExperimentError:
        if ":" in name:
            return UNDECLARED
        raise


def _uncontested(experiment: Experiment) -> dict[str, str]:
    """Return the keys of ``[robustness]`` and ``[attack]`` that have no effect."""
    why: dict[str, str] = {}
    if experiment.robustness.rule == "none":
        why["robustness.options"] = 'robustness.rule is "none"'
    if experiment.attack.name == "none":
        why |= dict.fromkeys(("attack.peers", "attack.scale"), 'attack.name is "none"')
    if experiment.attack.name == "label_flip":
        why["attack.scale"] = "labels are flipped or not"
    return why


def _words(kind: inspect.Type) -> str:
    match kind:
        case inspect.IntType() | inspect.FloatType():
            bounds = {">": kind.gt, ">=": kind.ge, "<": kind.lt, "<=": kind.le}
            limits = " and ".join(
                f"{sign} {limit if isinstance(kind, inspect.IntType) else f'{limit:g}'}"
                for sign, limit in bounds.items()
                if limit not in (None, MAX_FLOAT)
            )
            number = "a finite number" if kind.le == MAX_FLOAT else "a number"
            return f"{'a whole number' if isinstance(kind, inspect.IntType) else number} {limits}".rstrip()
        case inspect.LiteralType():
            return _join_words([show_value(value) for value in kind.values])
        case inspect.UnionType():
            return _join_words([_words(option) for option in kind.types if not isinstance(option, inspect.NoneType)])
        case inspect.Metadata():
            return str((kind.extra_json_schema or {})["description"])
        case inspect.StrType() if kind.pattern is not None:
            return f"text that matches {kind.pattern}"
        case inspect.VarTupleType():
            return f"a list in which each item is {_words(kind.item_type)}"
        case inspect.DictType():
            return (
                "a table"
                if isinstance(kind.value_type, inspect.AnyType)
                else f"a table in which each value is {_words(kind.value_type)}"
            )
        case _:
            plain = {
                inspect.StructType: "a section with keys of its own",
                inspect.BoolType: "true or false",
                inspect.DateType: "a date such as 2030-12-31",
            }
            return plain.get(type(kind), "text in quotes")


def _choices(kind: inspect.Type) -> tuple[Any, ...]:
    if isinstance(kind, inspect.UnionType):
        return tuple(choice for option in kind.types for choice in _choices(option))
    return kind.values if isinstance(kind, inspect.LiteralType) else ()


def _join_words(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def show_value(value: Any) -> str:
    """Return a value as it is written in the file.

    Examples
    --------
    >>> show_value(True)
    'true'
    """
    return json.dumps(value, default=str)
