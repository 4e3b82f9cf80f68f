"""Read an experiment from a file and ``--set``, validate it, and write it."""

from __future__ import annotations

import copy
import difflib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec
import tomli_w

from p2pfl.core.errors import ExperimentError
from p2pfl.core.registry import find_entry_points
from p2pfl.experiment.catalogue import ADDITIVE, ATTACKS, CODECS, MODELS, MODES, RULES
from p2pfl.experiment.file.key_places import MOVED, follow_moves, put_value
from p2pfl.experiment.file.own_code import accept, named_modules, unlisted_code
from p2pfl.experiment.file.sentences import idle, mismatch, show_value, words
from p2pfl.experiment.partitionings import name_of
from p2pfl.experiment.schema import PARTITIONINGS, Experiment, Section, Split, graph_files
from p2pfl.experiment.timetable import Timetable

SHIPPED = Path(__file__).parents[1] / "shipped"
"""Folder of the experiments that come with the package."""

PATHS = (
    "topology.kind",
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
    "telemetry.observers",
    "simulation.devices.trace",
)
"""Keys that hold a path, relative to the experiment file."""

MADE = ("privacy.budget", "trust.keys")
"""Keys that hold a path which a run creates if it is missing."""

KEPT = "experiment.toml"
"""Name of the file in which a run keeps its experiment."""

HELD = ("privacy.budget",)
"""Keys that no change resets, because a run without its account would spend the budget twice."""

MOVES = re.compile(r"# (\.\.(?:/\.\.)*) was (/.*)\n")
"""First line of that file: a folder above it, whose files may move with it, and where this folder was."""

S = TypeVar("S", bound=Section)


def draft(source: str | Path, *, changes: Sequence[str] = ()) -> Experiment:
    """Return the experiment of a file with changes, validated key by key; nothing that it names is imported.

    So it may come from anybody. Keys without effect are kept, see :func:`read`.

    Raises
    ------
    ExperimentError
        The file is missing, a key is unknown, or a value is wrong.
    """
    path = find(source)
    table = _load(path)
    _resolve(table, path.parent)
    for change in changes:
        _set(table, change)
    _resolve(table, Path.cwd())
    return check(table, origin=str(path))


def read(
    source: str | Path | Experiment | Mapping[str, Any], *, changes: Sequence[str] = (), trust_code: bool = False
) -> Experiment:
    """Read an experiment; nothing that a file names is imported unless the user trusts it.

    This is the one way from a file to a run: whoever has an experiment has agreed to the code that it names.

    Parameters
    ----------
    source
        A file, the name of a shipped experiment, a dictionary, or an experiment already read.
    changes
        ``section.key=value`` as on the command line.
    trust_code
        Whether the code that a file names as ``package.module:name`` may run. A dictionary and an experiment are the
        caller's own.

    Returns
    -------
    Experiment
        The validated experiment.

    Raises
    ------
    ExperimentError
        The file is missing, or names code that is not trusted; a key is unknown or has no effect, or a value has the
        wrong type or is out of range.

    Notes
    -----
    A change of the algorithm resets those keys of the source to their default that have no effect on the
    new algorithm, so that one file serves to compare algorithms. A change of a graph, codec or robust rule drops the
    options of the one that it replaces.

    Examples
    --------
    >>> read({"rounds": 3}, changes=["learning.rate=0.5"]).learning.rate
    0.5
    """
    if isinstance(source, Experiment):
        table, origin = plain(source), "the experiment"
    elif isinstance(source, Mapping):
        table, origin = copy.deepcopy(dict(source)), "the experiment"
        _expand(table)
    else:
        path = find(source)
        table, origin = _load(path), str(path)
        _resolve(table, path.parent)
    experiment, trusted = check(table, origin=origin), trust_code or isinstance(source, Experiment | Mapping)
    _check_code(experiment, trusted=trusted, origin=origin)
    _refuse(idle(experiment), experiment, origin=origin)
    if not changes:
        _choose(table, experiment, origin=origin)
        return experiment
    named = tuple(_set(table, change) for change in changes)
    _drop_options(table, experiment, named)
    _resolve(table, Path.cwd())
    changed = check(table, origin="--set")
    _check_code(changed, trusted=trusted, origin="--set")
    _choose(table, changed, origin=origin)
    stale = idle(changed)
    named += HELD
    meant = {key: why for key, why in stale.items() if any(_overlap(f"{key}.", change) for change in named)}
    _refuse(meant, changed, origin="--set")
    for key in stale:
        *sections, name = key.split(".")
        del _inside(table, sections)[name]
    return check(table, origin="--set")


def _check_code(experiment: Experiment, *, trusted: bool, origin: str) -> None:
    """Refuse to import what a file names, unless the user trusts it."""
    if trusted:
        accept(named_modules(plain(experiment)))
    elif names := unlisted_code(plain(experiment)):
        raise ExperimentError(
            f"{origin} names code, which would run with your rights: {', '.join(names)}; read it, and agree with "
            "--trust-code, in Python with p2pfl.read(..., trust_code=True)"
        )


OPTIONS_OF = {
    "topology.kind": "topology.options",
    "compression.name": "compression.options",
    "robustness.rule": "robustness.options",
    "data.split": "data.split_options",
}
"""Keys whose values have options, and where these are."""


def _drop_options(table: dict[str, Any], before: Experiment, named: Sequence[str]) -> None:
    """Drop the options of what the changes replace, unless the changes set options, too."""
    old = flat(before)
    for key, options in OPTIONS_OF.items():
        given = any(change.startswith(f"{options}.") for change in named)
        section, _, name = key.partition(".")
        if f"{key}." in named and not given and table[section][name] != old[key]:
            table[section].pop(options.partition(".")[2], None)


def _inside(table: dict[str, Any], keys: Sequence[str]) -> Any:
    """Return the value of a key of a table in a table, and so on."""
    value: Any = table
    for key in keys:
        value = value[key]
    return value


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _refuse(stale: Mapping[str, str], experiment: Experiment, *, origin: str) -> None:
    """Refuse keys without effect, because the user expects one."""
    for key, why in stale.items():
        value = show_value(_inside(plain(experiment), key.split(".")))
        raise ExperimentError(f"{origin}: {key} = {value} has no effect, because {why}; leave it out")


def find(source: str | Path) -> Path:
    """Return the path of an experiment file, or of the shipped experiment of that name.

    Raises
    ------
    ExperimentError
        There is no such file, and no shipped experiment of that name.
    """
    path = Path(source)
    if path.is_file():
        return path
    shipped = sorted(file.stem for file in SHIPPED.glob("*.toml"))
    if str(source) in shipped:
        return SHIPPED / f"{source}.toml"
    near = difflib.get_close_matches(str(source), shipped, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"name a file, or one of {', '.join(shipped)}"
    raise ExperimentError(f'"{source}" is neither an experiment file nor a shipped experiment; {hint}')


def check(table: Mapping[str, Any], *, origin: str = "the experiment") -> Experiment:
    """Return the experiment of a table, validated key by key.

    Parameters
    ----------
    table
        The table, as TOML or a user's code gives it.
    origin
        Origin of the file; the first words of an error message.

    Returns
    -------
    Experiment
        The validated experiment.

    Raises
    ------
    ExperimentError
        A key is unknown, or a value is wrong.
    """
    _keep_secret(table, origin=origin)
    experiment = convert_section(table, Experiment, origin=origin)
    exact = experiment.model.name in MODELS or name_of(experiment.data)
    if exact and "algorithm" not in table.get("learning", {}):  # there is no other for them
        learning = msgspec.structs.replace(experiment.learning, algorithm=ADDITIVE)
        experiment = msgspec.structs.replace(experiment, learning=learning)
    names = {
        MODES: experiment.privacy.mode,
        CODECS: experiment.compression.name,
        RULES: experiment.robustness.rule,
        ATTACKS: experiment.attack.name,
    }
    for catalogue, name in names.items():
        try:
            catalogue.check(name)
        except ExperimentError as error:
            raise ExperimentError(f"{origin}: {error}") from None
    try:
        Timetable.of(experiment.transport.pace)
    except ExperimentError as error:
        raise ExperimentError(f"{origin}: {error}") from None
    _check_split(experiment.data.split, origin=origin)
    return experiment


def _check_split(name: str, *, origin: str) -> None:
    """Refuse a split that is neither known nor a function."""
    known = get_args(Split)
    if name not in known and ":" not in name and name not in find_entry_points(PARTITIONINGS):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise ExperimentError(
            f'{origin}: data.split is {show_value(name)}; name "package.module:function", or set it to '
            f"{words(Split)}{hint}"
        )


def _choose(table: Mapping[str, Any], experiment: Experiment, *, origin: str) -> None:
    """Refuse a model that follows from totals unless the table says what hides contributions, as totals are exact."""
    if experiment.learning.algorithm == ADDITIVE and "mode" not in table.get("privacy", {}):
        raise ExperimentError(
            f'{origin}: model.name = "{experiment.model.name}" shows exact totals over all data to every peer, so '
            'privacy.mode must be chosen; set it to "pairwise", with which masks hide each contribution, or to "none", '
            "with which peers read the contributions that pass through them"
        )


def convert_section(table: Mapping[str, Any], kind: type[S], *, origin: str, within: str = "") -> S:
    """Validate a table as a section of a file, which stands ``within`` others such as ``"peers.ada."``.

    Returns
    -------
    Section
        The section, of type ``kind``.

    Raises
    ------
    ExperimentError
        A key is unknown or has the wrong type; the message names it as it is written in the file.
    """
    table = _builtin(table)
    for key, section in _unknown_keys(table, kind, within):
        raise ExperimentError(f'{origin}: unknown key "{key}"; {_hint(key, section, of=kind)}')
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ExperimentError(f"{origin}: {within}{mismatch(str(error), table, kind)}") from None


def _builtin(value: Any) -> Any:
    """Return a value of Python with Python's numbers and lists in place of numpy's."""
    numpy = sys.modules.get("numpy")  # reading a file must not wait for numpy, and without it nobody has its numbers
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _builtin(each) for key, each in value.items()}
    return [_builtin(each) for each in value] if isinstance(value, list | tuple) else value


def _keep_secret(table: Mapping[str, Any], *, origin: str) -> None:
    """Refuse a password in an experiment, which is copied into run directories and listed as part of commands."""
    transport = table.get("transport")
    brokers = transport.get("broker") if isinstance(transport, Mapping) else None
    for url in [brokers] if isinstance(brokers, str) else brokers if isinstance(brokers, Sequence) else []:
        if isinstance(url, str) and re.search("//[^@]*:.*@", url):
            bare = re.sub("//.*@", "//", url)
            raise ExperimentError(
                f"{origin}: transport.broker contains a password for {bare}; set P2PFL_BROKER_USER and"
                " P2PFL_BROKER_PASSWORD or name a file in transport.credentials instead, and change the password if"
                " others could read it"
            )


def plain(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment as a table without empty keys."""
    table: dict[str, Any] = msgspec.to_builtins(experiment, builtin_types=(float,))
    return {
        key: {name: _as_toml(item) for name, item in value.items() if item is not None}
        if isinstance(value, dict)
        else value
        for key, value in table.items()
    }


def _as_toml(value: Any) -> Any:
    """Return a table without empty keys; any other value as it is."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def write(experiment: Experiment) -> str:
    """Return an experiment as TOML, with all defaults."""
    return tomli_w.dumps(plain(experiment))


def write_kept(experiment: Experiment, folder: Path, *, run: Path) -> bytes:
    """Return the content of the file in which a run keeps its experiment.

    It says where the folder with all runs is in which this run is, so that what lies there is found after a move.

    Parameters
    ----------
    experiment
        The experiment.
    folder
        Folder of the file.
    run
        Directory of the run, which is this folder or above it.
    """
    whole, text = run.resolve().parent.parent, write(experiment)
    if whole.parent != whole and str(whole).isprintable():
        text = f"# {os.path.relpath(whole, folder.resolve())} was {whole}\n{text}"
    return text.encode()


def read_kept(path: Path, *, whole: bool) -> Experiment:
    """Read a file that :func:`write_kept` has written.

    Nothing that the file names is imported: it was validated when it was written, and may come from somebody else.

    Parameters
    ----------
    path
        Path of the file.
    whole
        True if the last key must be there, so that no part of the file is missing; one of an earlier version may lack
        keys.

    Raises
    ------
    ExperimentError
        The file was cut off or emptied, a key is unknown, or a value is wrong.
    """
    table = _load(path)
    _resolve(table, path.parent)
    experiment = check(table, origin=str(path))
    section, _, key = [*flat(experiment)][-1].partition(".")
    if not table or (whole and key not in table.get(section, {})):
        raise ExperimentError(f"{path} was cut off; restore it from a copy, or start a new run")
    return experiment


def flat(experiment: Experiment) -> dict[str, Any]:
    """Return all keys of an experiment as ``{"section.key": value}``.

    Examples
    --------
    >>> flat(Experiment())["learning.rate"]
    0.1
    """
    return _flatten(plain(experiment))


def flat_without_folders(experiment: Experiment) -> dict[str, Any]:
    """Return all keys as :func:`flat` does, and of each path its name alone, because a run may move with its files.

    From a part with ``{peer}`` on, the path is kept.

    Examples
    --------
    >>> from p2pfl.experiment import read
    >>> flat_without_folders(read({"data": {"name": "table", "options": {"path": "/sd/{peer}/a.csv"}}}))["data.options"]
    {'path': '{peer}/a.csv'}
    """
    table = plain(experiment)
    _change_paths(table, lambda path, _: _without_folder(path))
    return _flatten(table)


def _without_folder(path: str) -> str:
    parts = Path(path).parts
    named = [place for place, part in enumerate(parts) if "{peer}" in part]
    return "/".join(parts[named[0] if named else -1 :])


def _flatten(table: Mapping[str, Any]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            pairs |= {f"{key}.{name}": item for name, item in value.items()}
        else:
            pairs[key] = value
    return pairs


def _load(path: Path) -> dict[str, Any]:
    """Return the table of a file; one that a run has written may be from an earlier release."""
    table = load_table(path)
    if path.name != KEPT:
        return table
    table = follow_moves(table)
    with path.open(encoding="utf-8") as file:
        line = MOVES.fullmatch(file.readline())
    former, now = (Path(line[2]), path.parent.resolve().joinpath(line[1]).resolve()) if line else (path, path)
    if former != now:
        _change_paths(table, lambda value, _: _moved(value, former=former, now=now))
    return table


def _moved(path: str, *, former: Path, now: Path) -> str:
    """Return where a file of a folder is that has moved; where it was if it has not moved with the folder."""
    if not Path(path).is_relative_to(former) or ".." in Path(path).parts:
        return path
    found = _found(str(Path(path).relative_to(former)), now)
    return found if Path(found).is_absolute() else path


def load_table(path: Path) -> dict[str, Any]:
    """Return the table of a TOML file.

    Raises
    ------
    ExperimentError
        The file cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path} is not valid TOML ({error}); correct it") from None
    except OSError as error:
        raise ExperimentError(f"{path} cannot be read ({error.strerror}); check its permissions") from None


def _resolve(table: dict[str, Any], folder: Path) -> None:
    """Make relative paths absolute, first from the folder of the file, then from where the command was started.

    A missing file that a run creates belongs into the first folder, so that the next run finds it from anywhere: a
    budget that is not found would be spent twice.
    """
    _expand(table)

    def absolute(path: str, dotted: str) -> str:
        found = _found(path, folder) if path else path  # what is empty is no path, and refused as it is
        return str((folder / path).resolve()) if path and dotted in MADE and not Path(found).exists() else found

    _change_paths(table, absolute)


def _paths(table: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the keys that hold a path, each with its section and its name there."""
    for dotted in PATHS:
        *parents, key = dotted.split(".")
        inner: Any = table
        for parent in parents:
            inner = inner.get(parent, {}) if isinstance(inner, dict) else {}
        if isinstance(inner, dict) and (dotted != "topology.kind" or graph_files(inner.get(key))):
            yield dotted, inner, key


def _change_paths(table: dict[str, Any], change: Callable[[str, str], str]) -> None:
    """Replace each path by what a function returns for it and its key."""
    for dotted, inner, key in _paths(table):
        value = inner.get(key)
        if isinstance(value, str):
            inner[key] = change(value, dotted)
        elif isinstance(value, list):
            inner[key] = [change(each, dotted) if isinstance(each, str) else each for each in value]


def _expand(table: dict[str, Any]) -> None:
    """Replace a leading ``~`` by the home folder where the file is there, or a run creates it there.

    What is not there stays as it is: the file may lie on a device whose user has another home folder.
    """
    _change_paths(table, lambda path, dotted: _at_home(path, always=dotted in MADE))


def _at_home(path: str, *, always: bool) -> str:
    if not path.startswith("~/"):
        return path
    try:
        home = Path(path).expanduser()
        there = home.exists() or ("{peer}" in path and any(_of_peers(str(home), Path("/"))))
    except (RuntimeError, ValueError):  # there is no such user, or no path of this name
        return path
    return str(home) if always or there else path


def _found(path: str, folder: Path) -> str:
    """Return the absolute path of a file in a folder; of a path with ``{peer}``, if there is the file of a peer."""
    there = (folder / path).exists() or ("{peer}" in path and any(_of_peers(path, folder)))
    return str((folder / path).resolve()) if there else path


def _of_peers(path: str, folder: Path) -> Iterator[Path]:
    whole = folder / path
    fixed = Path(*takewhile(lambda part: "{peer}" not in part, whole.parts))
    return fixed.glob(str(whole.relative_to(fixed)).replace("{peer}", "*"))


def _set(table: dict[str, Any], change: str) -> str:
    """Make one change to a table, and return the beginning of all keys that it names."""
    dotted, equals, text = change.partition("=")
    if not equals or not dotted:
        raise ExperimentError(f'--set "{change}" has no key or no value; write it as section.key=value')
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    if (scalar := put_value(table, dotted.strip(), value)) is not None:
        raise ExperimentError(f'--set "{change}": "{scalar}" is not a section; write it as section.key=value')
    return f"{dotted.strip()}."


def _unknown_keys(
    table: Mapping[str, Any], section: type[Section], prefix: str = ""
) -> Iterator[tuple[str, type[Section]]]:
    """Yield the unknown keys of a table, each with its section."""
    sections = _sections(section)
    for key, value in table.items():
        if key not in section.__struct_fields__:
            yield prefix + key, section
        elif isinstance(value, Mapping) and key in sections:
            yield from _unknown_keys(value, sections[key], f"{prefix}{key}.")


MEANT: Mapping[str, str] = dict.fromkeys(
    (
        *("clip", "clip_norm", "clip_grad", "clip_grad_norm", "clipping", "grad_clip", "gradient_clip"),
        *("gradient_clipping", "max_grad_norm", "max_gradient_norm"),
    ),
    "learning.max_norm",
) | dict.fromkeys(("early_stopping", "early_stop"), "learning.patience")
"""Keys of ``[learning]`` by the names that they have in other frameworks."""


def _hint(key: str, section: type[Section], *, of: type[Section]) -> str:
    """Return what an unknown key may have meant: the same key in another section, or the nearest in this one."""
    if of is Experiment and key in MOVED:
        return f"it is {MOVED[key]} now"
    prefix, _, name = key.rpartition(".")
    if prefix in {"", "learning"} and name in MEANT:
        return f'did you mean "{MEANT[name]}"?'
    homes = [f"{other}.{name}" for other, kind in _sections(of).items() if name in kind.__struct_fields__]
    near = homes or difflib.get_close_matches(name, section.__struct_fields__, n=1, cutoff=0.4)
    if near:
        return f'did you mean "{near[0] if homes or not prefix else f"{prefix}.{near[0]}"}"?'
    return f"the known keys are {', '.join(section.__struct_fields__)}"


@cache
def _sections(section: type[Section]) -> dict[str, type[Section]]:
    """Return the sections of a section by their keys; a table of many sections has no keys of its own."""
    kinds = {
        field.name: (field.type,) if get_origin(field.type) is dict else get_args(field.type) or (field.type,)
        for field in msgspec.structs.fields(section)
    }
    return {
        name: kind
        for name, union in kinds.items()
        for kind in union
        if isinstance(kind, type) and issubclass(kind, Section)
    }
