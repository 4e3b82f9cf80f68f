"""Places of keys in a table: in tables of their own, and in files that an earlier release wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TABLES = {
    "learning.schedule": "name",
    "learning.stragglers": "share",
    "learning.learner": "name",
    "transport.gather": "seconds",
}
"""Keys that take a value or a table, and the key of that table that holds the value."""

MOVED: Mapping[str, str] = {
    "topology.file": "topology.kind",
    **{
        f"topology.{option}": f"topology.options.{option}"
        for option in ("rewire", "probability", "rows", "branching", "levels", "period")
    },
    **{
        f"compression.{option}": f"compression.options.{option}"
        for option in ("share", "levels", "bits", "gamma", "refresh")
    },
    **{f"data.{option}": f"data.split_options.{option}" for option in ("alpha", "shards", "exponent", "column")},
    "learning.schedule_by": "learning.schedule.by",
    "learning.schedule_options": "learning.schedule.options",
    "learning.warmup": "learning.schedule.warmup",
    "learning.learner_options": "learning.learner.options",
    "simulation.slow": "simulation.devices.stragglers",
    "simulation.pace": "simulation.devices.slowdown",
    "transport.quorum": "transport.gather.quorum",
    "transport.version": "transport.mqtt.version",
    "transport.qos": "transport.mqtt.qos",
    "learning.drop_stragglers": "learning.stragglers.drop",
    "learning.precision": "learning.dtype",
    "learning.example_clip": "learning.max_norm",
    "attack.share": "attack.peers",
    "robustness.attackers": "robustness.options.attackers",
    "robustness.radius": "robustness.options.radius",
    "robustness.nearest": "robustness.options.nearest",
}
"""Keys of the release before this one, and where they are now."""

FORMER_DEFAULTS: Mapping[str, Any] = {
    "simulation.slow": 0.0,
    "telemetry.unaccounted": False,
    "transport.quorum": 1.0,
    "transport.version": 4,
    "transport.qos": 1,
}
"""Values that change nothing of keys that are elsewhere now or gone, which a run wrote with all others."""


def put_value(table: dict[str, Any], dotted: str, value: Any) -> str | None:
    """Set the value of a key in a table; return the name of what holds a value where a section is needed, if any does.

    Examples
    --------
    >>> table = {"transport": {"gather": 60.0}}
    >>> put_value(table, "transport.gather.quorum", 0.5)
    >>> table
    {'transport': {'gather': {'seconds': 60.0, 'quorum': 0.5}}}
    """
    *parents, key = dotted.split(".")
    inner = table
    for depth, parent in enumerate(parents, 1):
        if (name := TABLES.get(".".join(parents[:depth]))) and not isinstance(inner.get(parent, {}), dict):
            inner[parent] = {name: inner[parent]}
        inner = inner.setdefault(parent, {})
        if not isinstance(inner, dict):
            return parent
    inner[key] = value
    return None


KEPT_SECTIONS = {"data", "model", "learning", "privacy", "robustness", "trust", "transport", "telemetry", "simulation"}
"""Sections that a run writes, even empty ones; few people write all of them."""


def follow_moves(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table that a run of an earlier release wrote with its keys where they are now.

    Keys that have another name now stay, because their values may mean something else; so do keys whose new place is
    taken, and those of a table that no run wrote, so that they are refused.

    Examples
    --------
    >>> written = {section: {} for section in KEPT_SECTIONS}
    >>> follow_moves(written | {"transport": {"gather": 60.0, "quorum": 0.5, "version": 4}})["transport"]
    {'gather': {'seconds': 60.0, 'quorum': 0.5}}
    >>> follow_moves({"transport": {"quorum": 0.5}})
    {'transport': {'quorum': 0.5}}
    """
    if not table.keys() >= KEPT_SECTIONS:
        return table
    for before, now in {**dict.fromkeys(FORMER_DEFAULTS, ""), **MOVED}.items():
        inner, key = _section_of(table, before), before.rpartition(".")[2]
        if key not in inner or (now and now.rpartition(".")[2] in _section_of(table, now)):
            continue
        if before in FORMER_DEFAULTS and inner[key] == FORMER_DEFAULTS[before]:
            del inner[key]
        elif now.rpartition(".")[2] == key:
            put_value(table, now, inner.pop(key))
    return table


def _section_of(table: dict[str, Any], dotted: str) -> dict[str, Any]:
    """Return the table that would have a key; an empty one if there is none."""
    inner: Any = table
    for parent in dotted.split(".")[:-1]:
        inner = inner.get(parent) if isinstance(inner, dict) else None
    return inner if isinstance(inner, dict) else {}


def put_back(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all keys of an experiment where they were when the first digests of experiments were signed.

    Approvals and records of runs have these digests, so that no key that has moved since may change one.

    Parameters
    ----------
    values
        Values by key, as :func:`p2pfl.experiment.file.reading.flat` returns them.

    Examples
    --------
    >>> now = {"transport.gather": {"seconds": 60.0, "quorum": 0.5}, "transport.mqtt": {"version": 4, "qos": 0}}
    >>> put_back(now)["transport.quorum"], put_back(now)["transport.qos"]
    (0.5, 0)
    """
    gather, mqtt = values["transport.gather"], values["transport.mqtt"]
    gather = gather if isinstance(gather, dict) else {"seconds": gather}
    return {key: value for key, value in values.items() if key != "transport.mqtt"} | {
        "transport.gather": gather["seconds"],
        "transport.quorum": gather.get("quorum", FORMER_DEFAULTS["transport.quorum"]),
        "transport.version": mqtt["version"],
        "transport.qos": mqtt["qos"],
        "simulation.slow": FORMER_DEFAULTS["simulation.slow"],
    }
