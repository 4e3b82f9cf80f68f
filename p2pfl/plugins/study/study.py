"""The study file: which keys of an experiment vary, over which values and seeds, and what is compared."""

from __future__ import annotations

import itertools
import math
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import tomli_w
from msgspec import Meta

from p2pfl.core.draws import draw
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.experiment import Experiment, read
from p2pfl.results.formats import format_value

DEFAULT_SEEDS = 5
"""Number of seeds by default."""

MAX_LISTED = 12
"""Refused settings that an error lists."""

NAMED_SETTINGS = "settings"
"""Key under which a table names settings of several keys."""

BYTE_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}

PAIR_SEPARATOR = re.compile(r"\s+(?=[A-Za-z_][\w.]*=)")
"""White space before the next ``KEY=``."""

Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


Scale = Literal["linear", "log", "integer"]
"""Spacing of the values of a range."""


class Random(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A range from which values are drawn.

    Attributes
    ----------
    low, high
        Bounds of the range.
    scale
        ``linear``, ``log``, or ``integer``, which includes both bounds.

    Raises
    ------
    ValueError
        The range is empty, or does not fit its scale.
    """

    low: float
    high: float
    scale: Scale = "linear"

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(
                f"{self.low:g}..{self.high:g} is no range; write two finite numbers, the smaller one first"
            )
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"a logarithmic range cannot begin at {self.low:g}; write a number above 0")
        if self.scale == "integer" and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(f"{self.low:g}..{self.high:g} is no range of whole numbers; write whole bounds")


class CostBudget(msgspec.Struct, frozen=True):
    """A cost at which every run ends.

    Attributes
    ----------
    what
        ``bytes``, which all peers send, or ``gradients``, which all peers compute.
    amount
        Their number.
    """

    what: Literal["bytes", "gradients"]
    amount: int


class Study(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A study, as its file states it.

    Attributes
    ----------
    experiment
        A file, or the name of a shipped experiment.
    seeds
        Number of seeds, from that of the experiment on, or the seeds.
    set
        Values of keys for all runs.
    over
        Values of keys of which all combinations run.
    settings
        Named settings, each of several keys; they are combined with ``over``.
    random
        Ranges of keys; each draw draws all of them.
    draws
        Number of draws.
    without
        Combinations of values, by key, that are left out.
    against
        Values that name the reference, by key.
    metric
        Score to compare; that of the summary by default.
    budget
        Cost at which every run ends, such as ``bytes=60MB``.
    baselines
        True to train each peer alone, and one model on all data, in every run.
    """

    experiment: str
    seeds: Annotated[int, Meta(ge=1)] | Annotated[tuple[Seed, ...], Meta(min_length=1)] = DEFAULT_SEEDS
    set: dict[str, Any] = {}
    over: dict[str, Annotated[tuple[Any, ...], Meta(min_length=1)]] = {}
    settings: dict[str, dict[str, Any]] = {}
    random: dict[str, Random] = {}
    draws: Annotated[int, Meta(ge=1)] = 1
    without: tuple[dict[str, Any], ...] = ()
    against: dict[str, Any] = {}
    metric: str | None = None
    budget: str | None = None
    baselines: bool = False


class Cell(msgspec.Struct, frozen=True):
    """One run of a study.

    Attributes
    ----------
    values
        Values that differ between the cells, by key, as text.
    experiment
        The resolved experiment.
    """

    values: dict[str, str]
    experiment: Experiment


def load(path: Path) -> Study | None:
    """Return the study in a file; ``None`` if the file is none, such as an experiment.

    Raises
    ------
    ExperimentError
        A key of the study is unknown, or a value is wrong.
    """
    if not path.is_file():
        return None
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None  # the reader of experiments reports what is wrong with it
    if "experiment" not in table:
        return None
    try:
        study = msgspec.convert(table, Study)
    except msgspec.ValidationError as error:
        raise ExperimentError(f"{path}: {error}; correct it, docs/sweeps.md lists the keys of a study") from None
    beside = path.parent / study.experiment
    return msgspec.structs.replace(study, experiment=str(beside)) if beside.is_file() else study


def trust_none(changes: Sequence[str]) -> bool:
    """Return False, so that no code of an experiment may run."""
    del changes
    return False


def cells(study: Study, *, trusts: Callable[[Sequence[str]], bool] = trust_none) -> list[Cell]:
    """Return all runs of a study, validated, settings first and then seeds.

    Parameters
    ----------
    study
        The study.
    trusts
        Function that returns whether the code that the experiment names with changes of its keys may run.

    Raises
    ------
    ExperimentError
        Settings are refused by the experiment file's rules, or name code that may not run; the message lists them.
    InputError
        Two parts of the study set one key, or nothing is left of it.
    """
    _check(study)
    fixed = [change(key, value) for key, value in study.set.items()]
    base = read(study.experiment, changes=fixed, trust_code=trusts(fixed))
    seeds = range(base.seed, base.seed + study.seeds) if isinstance(study.seeds, int) else study.seeds
    runs = []
    reasons: list[tuple[dict[str, str], str | None]] = []
    for values, settings in _settings(study):
        changes = [change(key, value) for key, value in {**study.set, **settings}.items()]
        try:
            trusted = trusts(changes)
            runs += [
                Cell(values, read(study.experiment, changes=[*changes, f"seed={seed}"], trust_code=trusted))
                for seed in seeds
            ]
        except InputError as error:
            reasons.append((values, str(error)))
        else:
            reasons.append((values, None))
    refuse(reasons)
    if not runs:
        raise InputError("the study leaves out all of its settings; name fewer of them after --without")
    return runs


def refuse(reasons: Sequence[tuple[Mapping[str, str], str | None]]) -> None:
    """Raise an error that lists the refused settings, each with its reason, and the way to leave them out.

    Parameters
    ----------
    reasons
        All settings of a study, by key, as text, and why each of them is refused, or ``None``.

    Raises
    ------
    ExperimentError
        A setting is refused.
    """
    refused = {name_setting(values): reason for values, reason in reasons if reason is not None}
    if not refused:
        return
    if len(reasons) == 1:
        raise ExperimentError(*refused.values())
    listed = [f"{name}: {reason}" for name, reason in refused.items()][:MAX_LISTED]
    more = f"; and {len(refused) - MAX_LISTED} more" if len(refused) > MAX_LISTED else ""
    options = " ".join(f"--without {shlex.quote(name)}" for name in refused)
    remedy = f", or leave them out with {options}" if len(refused) < len(reasons) and not more else ""
    raise ExperimentError(
        f"{len(refused)} of {len(reasons)} settings cannot run, so nothing was started: "
        f"{'; '.join(listed)}{more}; correct these settings{remedy}"
    )


def name_setting(values: Mapping[str, str]) -> str:
    """Return a setting as one line.

    Examples
    --------
    >>> name_setting({"learning.algorithm": "fedavg", "data.split": "iid"})
    'learning.algorithm=fedavg data.split=iid'
    """
    return " ".join(f"{key}={value}" for key, value in values.items()) or "the experiment as it is"


def _check(study: Study) -> None:
    inside = {key for keys in study.settings.values() for key in keys}
    varied = [*study.set, *study.over, *study.random, *inside]
    for key in varied:
        if key == "seed":
            raise InputError("a sweep varies the seed by itself; name the seeds with --seeds")
        if varied.count(key) > 1:
            raise InputError(f"{key} has values in two places of the study; leave one of them out")
    levels = {key: [format_value(value) for value in values] for key, values in study.over.items()}
    levels |= {NAMED_SETTINGS: [*study.settings]} if study.settings else {}
    for key, value in study.against.items():
        _check_value("the reference", key, format_value(value), levels)
    for combination in study.without:
        for key, value in combination.items():
            if key not in study.random:
                _check_value("--without", key, format_value(value), levels)


def _check_value(what: str, key: str, value: str, levels: Mapping[str, Sequence[str]]) -> None:
    """Refuse a value that no setting of the study has."""
    if key not in levels:
        varied = ", ".join(sorted(levels)) or "none"
        raise InputError(f"{what} names {key}, which the study does not vary (it varies: {varied})")
    if value not in levels[key]:
        raise InputError(f"{what} names {key}={value}, which is none of {', '.join(levels[key])}; name one")


def _settings(study: Study) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Yield each setting, as text and as the values of keys."""
    grid = [[(key, format_value(value), {key: value}) for value in values] for key, values in study.over.items()]
    if study.settings:
        grid.append([(NAMED_SETTINGS, name, keys) for name, keys in study.settings.items()])
    drawn = [_draw_values(study.random, number) for number in range(study.draws if study.random else 1)]
    for levels in itertools.product(*grid):
        for values in drawn:
            text = {key: label for key, label, _ in levels} | {
                key: format_value(value) for key, value in values.items()
            }
            if any(all(text[key] == format_value(value) for key, value in each.items()) for each in study.without):
                continue
            yield text, {key: value for _, _, keys in levels for key, value in keys.items()} | values


def _draw_values(ranges: Mapping[str, Random], number: int) -> dict[str, Any]:
    """Return one draw of all random keys; more draws later leave the earlier ones as they are."""
    values: dict[str, Any] = {}
    for key, each in ranges.items():
        share = float(draw(0, f"sweep {key}", round=number).random())
        if each.scale == "integer":
            values[key] = int(each.low) + int(share * (int(each.high) - int(each.low) + 1))
        elif each.scale == "log":
            values[key] = _round(each.low ** (1 - share) * each.high**share, each)
        else:
            values[key] = _round(each.low + share * (each.high - each.low), each)
    return values


def _round(value: float, span: Random) -> float:
    """Return a value of a range with four digits, so that a table shows exactly what ran."""
    return min(max(float(f"{value:.4g}"), span.low), span.high)


def parse_combination(text: str) -> dict[str, Any]:
    """Return the values of ``KEY=VALUE KEY=VALUE``, as a refusal and the table of a sweep show a setting.

    Examples
    --------
    >>> parse_combination("learning.algorithm=dpsgd model.hidden=[64, 32]")
    {'learning.algorithm': 'dpsgd', 'model.hidden': [64, 32]}
    """
    values = {}
    for part in PAIR_SEPARATOR.split(text.strip()):
        key, _, value = part.partition("=")
        if not key or not value:
            raise InputError(
                f'--without "{text}" has no key or no value; write it as "section.key=value section.key=..."'
            )
        values[key] = parse_value(value.strip())
    return values


def parse_random(text: str) -> Random:
    """Return the range of ``LOW..HIGH``, ``LOW..HIGH:log`` or ``LOW..HIGH:integer``.

    Examples
    --------
    >>> parse_random("1e-3..1:log")
    Random(low=0.001, high=1.0, scale='log')
    """
    span, _, scale = text.partition(":")
    low, _, high = span.partition("..")
    try:
        bounds, kind = {"low": float(low), "high": float(high)}, msgspec.convert(scale or "linear", Scale)
    except (ValueError, msgspec.ValidationError):
        raise InputError(f"{text} is not a range; write LOW..HIGH, LOW..HIGH:log or LOW..HIGH:integer") from None
    try:
        return Random(**bounds, scale=kind)
    except ValueError as error:
        raise InputError(str(error)) from None


def parse_values(text: str) -> tuple[Any, ...]:
    """Return the values of ``V1,V2`` or of an array in TOML.

    Examples
    --------
    >>> parse_values("fedavg,scaffold"), parse_values("0.1,1"), parse_values("[[64], [128, 64]]")
    (('fedavg', 'scaffold'), (0.1, 1), ([64], [128, 64]))
    """
    if text.startswith("["):
        try:
            return tuple(tomllib.loads(f"value = {text}")["value"])
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{text} is not an array in TOML ({error}); correct it") from None
    return tuple(parse_value(part.strip()) for part in text.split(","))


def parse_value(text: str) -> Any:
    """Return a value in TOML, or the text itself where it is none.

    Examples
    --------
    >>> parse_value("0.1"), parse_value("fedavg"), parse_value("true")
    (0.1, 'fedavg', True)
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def parse_budget(text: str) -> CostBudget:
    """Return the budget of a text.

    Examples
    --------
    >>> parse_budget("bytes=60MB"), parse_budget("gradients=5000")
    (CostBudget(what='bytes', amount=60000000), CostBudget(what='gradients', amount=5000))
    """
    what, _, amount = text.partition("=")
    number = amount.rstrip("kMGB")
    unit = amount[len(number) :]
    try:
        count = int(float(number) * BYTE_UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        count = 0
    if what not in {"bytes", "gradients"} or count < 1 or (what == "gradients" and unit):
        raise InputError(f"{text} is not a budget; write it as bytes=60MB or gradients=5000")
    return CostBudget("bytes" if what == "bytes" else "gradients", count)


def change(key: str, value: Any) -> str:
    """Return a change as ``--set`` takes it.

    Examples
    --------
    >>> change("learning.algorithm", "fedavg"), change("learning.rate", 0.1)
    ('learning.algorithm="fedavg"', 'learning.rate=0.1')
    """
    return f"{key}={tomli_w.dumps({'value': value}).removeprefix('value = ').rstrip()}"


def with_changes(study: Study, more: Mapping[str, Any]) -> Study:
    """Return a study with further keys; tables gain entries, and ``None`` leaves a field as it is."""
    changed = {
        name: {**getattr(study, name), **value} if isinstance(value, dict) else value
        for name, value in more.items()
        if value is not None
    }
    return msgspec.structs.replace(study, **changed)
