"""Where keys are in a table: in tables of their own, and in files that an earlier release wrote."""

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


def follow_moves(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table that an earlier release wrote with its keys where they are now.

    Keys that have another name now stay, because their values may mean something else.

    Examples
    --------
    >>> follow_moves({"transport": {"gather": 60.0, "quorum": 0.5, "version": 4}})
    {'transport': {'gather': {'seconds': 60.0, 'quorum': 0.5}}}
    """
    for before, now in {**dict.fromkeys(FORMER_DEFAULTS, ""), **MOVED}.items():
        *parents, key = before.split(".")
        inner: Any = table
        for parent in parents:
            inner = inner.get(parent) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or key not in inner:
            continue
        if before in FORMER_DEFAULTS and inner[key] == FORMER_DEFAULTS[before]:
            del inner[key]
        elif now.rpartition(".")[2] == key:
            put_value(table, now, inner.pop(key))
    return table
