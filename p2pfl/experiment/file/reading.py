"""From a file and ``--set`` to a validated experiment, and back."""

from __future__ import annotations

import copy
import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli_w

from p2pfl.errors import ExperimentError
from p2pfl.experiment.catalogue import CODECS, MODES, RULES
from p2pfl.experiment.file.sentences import idle, mismatch, shown
from p2pfl.experiment.schema import Experiment, Section

SHIPPED = Path(__file__).parents[2] / "experiments"
"""The experiments that come with the package."""

PATHS = (
    "topology.file",
    "gossip.weights",
    "model.pretrained",
    "privacy.budget",
    "trust.roster",
    "trust.keys",
    "data.options.path",
    "transport.ca",
    "transport.certificate",
    "transport.key",
    "transport.credentials",
)
"""Keys that hold a path, relative to the experiment file."""

MADE = ("privacy.budget", "trust.keys")
"""Those of what is made when it is missing."""

HELD = ("privacy.budget",)
"""Keys that no change takes back: what is left out of an account is spent twice."""


S = TypeVar("S", bound=Section)


def read(source: str | Path | Experiment | Mapping[str, Any], *, changes: Sequence[str] = ()) -> Experiment:
    """Read an experiment.

    Parameters
    ----------
    source
        A file, the name of a shipped experiment, a dictionary, or an experiment already read.
    changes
        ``section.key=value`` as on the command line.

    Raises
    ------
    ExperimentError
        For a missing file, an unknown key, a value of the wrong type or out of range, or one without effect.

    Notes
    -----
    A change of the algorithm takes what the source says of the former one back to its default, where
    it has no effect on the new one, so that one file serves to compare them.

    Examples
    --------
    >>> read({"rounds": 3}, changes=["learning.rate=0.5"]).learning.rate
    0.5
    """
    if isinstance(source, Experiment):
        table, origin = plain(source), "the experiment"
    elif isinstance(source, Mapping):
        table, origin = copy.deepcopy(dict(source)), "the experiment"
    else:
        path = find(source)
        table, origin = _load(path), str(path)
        _resolve(table, path.parent)
    experiment = check(table, origin=origin)
    _refuse(idle(experiment), experiment, origin=origin)
    if not changes:
        return experiment
    named = tuple(_set(table, change) for change in changes)
    _resolve(table, Path.cwd())
    changed = check(table, origin="--set")
    stale = idle(changed)
    named += HELD
    meant = {key: why for key, why in stale.items() if any(_overlap(f"{key}.", change) for change in named)}
    _refuse(meant, changed, origin="--set")
    for key in stale:
        section, _, name = key.partition(".")
        del table[section][name]
    return check(table, origin="--set")


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _refuse(stale: Mapping[str, str], experiment: Experiment, *, origin: str) -> None:
    """Refuse what has no effect, for whoever set it believes that it has."""
    for key, why in stale.items():
        value = shown(flat(experiment)[key])
        raise ExperimentError(
            f"{origin}: {key}: expected a key that has an effect, got {value}, but {why}: leave it out"
        )


def find(source: str | Path) -> Path:
    """The file of an experiment, or of the shipped one of that name."""
    path = Path(source)
    if path.is_file():
        return path
    shipped = sorted(file.stem for file in SHIPPED.glob("*.toml"))
    if str(source) in shipped:
        return SHIPPED / f"{source}.toml"
    near = difflib.get_close_matches(str(source), shipped, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"shipped are {', '.join(shipped)}"
    raise ExperimentError(f'expected an experiment file or the name of a shipped one, got "{source}": {hint}')


def check(table: Mapping[str, Any], *, origin: str = "the experiment") -> Experiment:
    """Validate a table, key by key."""
    _keep_secret(table, origin=origin)
    experiment = checked(table, Experiment, origin=origin)
    names = {
        MODES: experiment.privacy.mode,
        CODECS: experiment.compression.name,
        RULES: experiment.robustness.rule,
    }
    for catalogue, name in names.items():
        try:
            catalogue.check(name)
        except ExperimentError as error:
            raise ExperimentError(f"{origin}: {error}") from None
    return experiment


def checked(table: Mapping[str, Any], kind: type[S], *, origin: str, within: str = "") -> S:
    """Validate a table as a section of a file, which stands ``within`` others such as ``"peers.ada."``.

    Raises
    ------
    ExperimentError
        Names the key, as it is written in the file, what is expected there, and what came.
    """
    for key, section in _unknown(table, kind, within):
        raise ExperimentError(f'{origin}: expected a known key, got "{key}": {_hint(key, section, of=kind)}')
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ExperimentError(f"{origin}: {within}{mismatch(str(error), table, kind)}") from None


def _keep_secret(table: Mapping[str, Any], *, origin: str) -> None:
    """Refuse a password where others can read it: experiments are copied into run directories, commands are listed."""
    transport = table.get("transport")
    brokers = transport.get("broker") if isinstance(transport, Mapping) else None
    for url in [brokers] if isinstance(brokers, str) else brokers if isinstance(brokers, Sequence) else []:
        if isinstance(url, str) and re.search("//[^@]*:.*@", url):
            bare = re.sub("//.*@", "//", url)
            raise ExperimentError(
                f"{origin}: transport.broker: expected an address without a password, got {bare} with one: set"
                " P2PFL_BROKER_USER and P2PFL_BROKER_PASSWORD, or name a file in transport.credentials, and change the"
                " password if others could read it"
            )


def plain(experiment: Experiment) -> dict[str, Any]:
    """The experiment as a table without empty keys."""
    table: dict[str, Any] = msgspec.to_builtins(experiment, builtin_types=(float,))
    return {
        key: {name: item for name, item in value.items() if item is not None} if isinstance(value, dict) else value
        for key, value in table.items()
    }


def write(experiment: Experiment) -> str:
    """The experiment as TOML, every default spelt out."""
    return tomli_w.dumps(plain(experiment))


def kept(path: Path, *, whole: bool) -> Experiment:
    """Read what :func:`write` has written: not one of its keys is left out, so what lacks the last ones was cut.

    Parameters
    ----------
    path
        Of the file.
    whole
        Whether the last key must be there; a version that adds one reads what earlier ones have written, but such a run
        is not gone on with. What has no key at all is always refused.

    Raises
    ------
    ExperimentError
        As :func:`read`, and for a file that was cut or emptied.
    """
    experiment, table = read(path), _load(path)
    keys = [*flat(experiment)]
    there = {f"{key}.{name}" for key, section in table.items() if isinstance(section, dict) for name in section}
    last = max((place for place, key in enumerate(keys, 1) if key in there | {*table}), default=0)
    if last < (len(keys) if whole else 1):
        raise ExperimentError(
            f"{path}: expected an experiment with every key, as the run has written it, got none from {keys[last]} on: "
            "the file was cut; take it from a copy, or begin a new run"
        )
    return experiment


def flat(experiment: Experiment) -> dict[str, Any]:
    """``{"section.key": value}`` of all keys.

    Examples
    --------
    >>> flat(Experiment())["learning.rate"]
    0.1
    """
    pairs: dict[str, Any] = {}
    for key, value in plain(experiment).items():
        if isinstance(value, dict):
            pairs |= {f"{key}.{name}": item for name, item in value.items()}
        else:
            pairs[key] = value
    return pairs


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path}: expected TOML, got a file that is not: {error}") from None
    except OSError as error:
        raise ExperimentError(f"{path}: expected a file that can be read, got: {error.strerror}") from None


def _resolve(table: dict[str, Any], folder: Path) -> None:
    """Make paths absolute that are found in a folder: the file's own first, then where the command was started.

    What is missing and to be made belongs into the first, so that it is found again from wherever the next run starts:
    a budget that is not would be spent twice.
    """
    for dotted in PATHS:
        *parents, key = dotted.split(".")
        inner: Any = table
        for parent in parents:
            inner = inner.get(parent, {}) if isinstance(inner, dict) else {}
        if not isinstance(inner, dict):
            continue
        value = inner.get(key)
        if isinstance(value, str) and value:  # what is empty is no path, and refused as it is
            inner[key] = _found(value, folder)
            if dotted in MADE and not Path(inner[key]).exists():
                inner[key] = str((folder / value).resolve())
        elif isinstance(value, list):
            inner[key] = [_found(each, folder) if isinstance(each, str) else each for each in value]


def _found(path: str, folder: Path) -> str:
    return str((folder / path).resolve()) if (folder / path).exists() else path


def _set(table: dict[str, Any], change: str) -> str:
    """Make one change; return the beginning of all keys that it names."""
    dotted, equals, text = change.partition("=")
    if not equals or not dotted:
        raise ExperimentError(f'expected --set section.key=value, got "{change}"')
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *parents, key = dotted.strip().split(".")
    inner = table
    for parent in parents:
        inner = inner.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ExperimentError(f'expected --set section.key=value, got "{change}": "{parent}" is not a section')
    inner[key] = value
    return f"{dotted.strip()}."


def _unknown(table: Mapping[str, Any], section: type[Section], prefix: str = "") -> Iterator[tuple[str, type[Section]]]:
    """Every key that a section does not have, and the section."""
    sections = _sections(section)
    for key, value in table.items():
        if key not in section.__struct_fields__:
            yield prefix + key, section
        elif isinstance(value, Mapping) and key in sections:
            yield from _unknown(value, sections[key], f"{prefix}{key}.")


def _hint(key: str, section: type[Section], *, of: type[Section]) -> str:
    """What an unknown key may have meant: the same in another section, or the nearest in this one."""
    prefix, _, name = key.rpartition(".")
    places = [f"{other}.{name}" for other, kind in _sections(of).items() if name in kind.__struct_fields__]
    near = places or difflib.get_close_matches(name, section.__struct_fields__, n=1, cutoff=0.4)
    if near:
        return f'did you mean "{near[0] if places or not prefix else f"{prefix}.{near[0]}"}"?'
    return f"known are {', '.join(section.__struct_fields__)}"


def _sections(section: type[Section]) -> dict[str, type[Section]]:
    kinds = {field.name: field.type for field in msgspec.structs.fields(section)}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)}
