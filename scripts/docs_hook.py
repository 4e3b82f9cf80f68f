"""Pages that are made from the code: experiment keys, commands, files of a run, the Python API.

``scripts/docs reference`` writes the first three into ``docs/reference``, so that links work in a checkout; a test
fails where they are not current. mkdocs calls ``on_files``, which adds the Python API and the pages of the root, and
``on_page_markdown``, which leads links to the notes and to other files of the repository to its address.
"""

from __future__ import annotations

import argparse
import ast
import functools
import os
import posixpath
import re
import sys
import types
import typing
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin
from unittest import mock

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOMS = (
    ("algorithms", "The algorithms, and what an algorithm of your own needs."),
    ("learning", "Learners: training on the data of one or many peers."),
    ("core.neighbourhood", "The interface between an algorithm and the network."),
    ("topology", "Graphs, mixing weights and their spectra."),
    ("plugins.exact", "Models from totals; their parameters are `model.options`."),
    ("data", "Data sets and how peers share them."),
    ("privacy", "Masks, private noise and the release."),
    ("core.codecs", "Codecs for what peers send."),
    ("algorithms.robust", "Robust rules and attacks."),
    ("privacy.keys", "Keys, rosters and signatures."),
    ("network.transport", "Channels between peers."),
    ("results.models", "Predictions, evaluation and export of a saved model."),
    ("results", "Records, summaries and run directories."),
    ("testing", "Contract suites and test doubles for transports and learners of your own."),
    ("core.errors", "The exceptions that p2pfl raises."),
)
"""Packages whose public names get a page of the Python API, and what each is for."""


# --- keys of the experiment file


def keys() -> str:
    """Return the page of all keys of the experiment file, from the schema."""
    from p2pfl.experiment.schema import Experiment  # noqa: PLC0415 (mkdocs loads hooks before it knows the path)

    hints = typing.get_type_hints(Experiment, include_extras=True)
    sections = [field for field in msgspec.structs.fields(Experiment) if _is_section(field.type)]
    parts = [
        "# Every key of the experiment file",
        (
            "This page is generated from `p2pfl/experiment/schema.py`. "
            "[The experiment file](../experiment-file.md) explains how to use it."
        ),
        "## Top level",
        _table(Experiment, hints, without=sections),
    ]
    for section in sections:
        kind: Any = section.type
        summary = (kind.__doc__ or "").strip().splitlines()[0]
        parts += [f"## [{section.name}]", summary, _table(kind, typing.get_type_hints(kind, include_extras=True))]
    return "\n\n".join(parts) + "\n"


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _table(section: Any, hints: dict[str, Any], *, without: Sequence[msgspec.structs.FieldInfo] = ()) -> str:
    from p2pfl.results.json_schema import parse_attributes  # noqa: PLC0415

    about = parse_attributes(section.__doc__ or "")
    lines = ["| key | values | default | meaning |", "| --- | --- | --- | --- |"]
    left_out = {field.name for field in without}
    for field in msgspec.structs.fields(section):
        if field.name not in left_out:
            cells = (f"`{field.name}`", values(hints[field.name]), _default(field.default), about.get(field.name, ""))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def values(kind: Any) -> str:
    """Return what a key may hold, in words.

    Examples
    --------
    >>> values(Literal["flat", "layer"] | None)
    '`"flat"`, `"layer"`'
    >>> values(Annotated[float, msgspec.Meta(gt=0, le=1)])
    'number in (0, 1]'
    """
    kinds = [part for part in _parts(kind) if part is not type(None)]
    return " or ".join(dict.fromkeys(_named(part) for part in kinds))


def _parts(kind: Any) -> Iterator[Any]:
    if get_origin(kind) in (typing.Union, types.UnionType):
        for part in get_args(kind):
            yield from _parts(part)
    else:
        yield kind


def _named(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return " ".join([_named(arguments[0]), *(part for meta in arguments[1:] for part in _bounds(meta))])
    if origin is Literal:
        return ", ".join(f"`{_toml(value)}`" for value in arguments)
    if origin is tuple:
        return f"list of {_named(arguments[0])}"
    if origin is dict:
        return "table"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "table"
    return {str: "text", bool: "boolean", int: "integer", float: "number"}.get(kind, str(kind))


def _bounds(meta: msgspec.Meta) -> Iterator[str]:
    """Yield the bounds of a number; two of them are an interval."""
    bounds = {
        name: f"{bound:g}" if bound < 2**20 else f"{bound}"
        for name in ("gt", "ge", "lt", "le")
        if (bound := getattr(meta, name)) is not None and abs(bound) < sys.float_info.max and bound != 2**63 - 1
    }
    if len(bounds) == 2:
        (low, least), (high, most) = bounds.items()
        yield f"in {'(' if low == 'gt' else '['}{least}, {most}{')' if high == 'lt' else ']'}"
    else:
        signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
        yield from (f"{signs[name]} {bound}" for name, bound in bounds.items())


def _default(value: Any) -> str:
    if value is msgspec.NODEFAULT or value is None or isinstance(value, msgspec.Struct):
        return "-"
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    return "{}" if value == {} else str(value)


# --- the files of a run


ALARMS = {"LossRose": "loss_rose"}
"""Events that ``summary.json`` repeats."""
SCALARS = "text|integer|number|boolean"
"""Types that stand in the schema alone."""


def run_files() -> str:
    """Return the page of the files of a run, from the classes that write them."""
    from p2pfl.results.json_schema import SCHEMA_DESCRIPTION, SCHEMA_FILES, classes, json_schema  # noqa: PLC0415

    defs = json_schema()["$defs"]
    parts = [
        "# Files of a run",
        (
            "This page is generated from the classes that write the files. [`schema.json`](../schema.json), which "
            "`p2pfl schema` prints, is the same as a JSON Schema with all types."
        ),
        SCHEMA_DESCRIPTION,
        (
            "Each file has `schema`, the version of its format, which is 1. A field without a meaning is what its name "
            "says; those in `_s` are seconds. What is unknown or does not apply is null or absent."
        ),
    ]
    shown = set[str]()
    for file, kinds in SCHEMA_FILES.items():
        parts.append(f"## {file}")
        if file == "events.jsonl":
            parts.append(_events([defs[kind.__name__] for kind in kinds]))
            continue
        above = list[tuple[str, str]]()
        own = {kind.__name__ for kind in kinds}
        for name in (kind.__name__ for kind in [*kinds, *classes(list(kinds))]):
            if name not in shown and (name in own or "kind" not in defs[name]["properties"]):
                shown.add(name)
                parts += [
                    *_headed(defs[name], name)[: 1 + (name in own)],
                    _fields(defs[name], above if name in own else []),
                ]
    return "\n\n".join(parts) + "\n"


def _headed(schema: dict[str, Any], name: str) -> list[str]:
    """Return the heading of a class, which is its kind if it has one, and its description."""
    kind = schema["properties"].get("kind", {}).get("enum", [name])[0]
    return [f"### {kind}", schema["description"]]


def _fields(schema: dict[str, Any], above: list[tuple[str, str]]) -> str:
    """Return a list of fields, without those that a list above has with the same meaning.

    Neighbours of one type and description share an item.
    """
    items, same = list[tuple[list[str], str]](), list[str]()
    for name, field in schema["properties"].items():
        value, about = re.sub(rf" of ({SCALARS})$", "", _json(field)), field.get("description")
        text = ("" if re.fullmatch(SCALARS, value) else f" ({value})") + (f": {about}" if about else "")
        if (name, text) in above:
            same.append(f"`{name}`")
        elif items and items[-1][1] == text:
            items[-1][0].append(f"`{name}`")
        elif name not in {"kind", "schema"}:
            items.append(([f"`{name}`"], text))
    above += [(name.strip("`"), text) for names, text in items for name in names]
    lines = [f"- {', '.join(names)}{text}" for names, text in items]
    return "\n".join([*lines, *([f"- As above: {', '.join(same)}"] if same else [])])


def _phrase(text: str) -> str:
    """Return a sentence as a part of another one; a word in capitals keeps them."""
    return (text[:1] if text[1:2].isupper() else text[:1].lower()) + text[1:].removesuffix(".")


def _events(schemas: list[dict[str, Any]]) -> str:
    """Return a list of all kinds of events."""
    lines = [
        (
            "Each line has `kind`, `schema`, `time` in UTC, `peer` that reports it, and the fields of its kind. "
            "Rounds and steps count from 0; a `key` is a fingerprint, and a `message` a sentence.\n"
        )
    ]
    for schema in schemas:
        properties, fields = schema["properties"], list[tuple[list[str], str]]()
        for name, field in properties.items():
            about = _phrase(field.get("description", ""))
            if about and fields and fields[-1][1] == about:
                fields[-1][0].append(f"`{name}`")
            elif name not in {"kind", "schema", "time", "peer"}:
                fields.append(([f"`{name}`"], about))
        texts = [", ".join(names) + (f": {about}" if about else "") for names, about in fields]
        kind = f"- **`{properties['kind']['enum'][0]}`** {schema['description']}"
        lines.append(f"{kind} {'; '.join(texts)}." if texts else kind)
    return "\n".join(lines)


def _json(field: dict[str, Any]) -> str:
    """Return what a field may hold, in words, without null.

    Examples
    --------
    >>> _json({"type": ["number", "null"]}), _json({"type": "array", "items": {"type": "string"}})
    ('number', 'list of text')
    """
    words = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_json(part) for part in field["anyOf"] if part != {"type": "null"}))
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        if name in ALARMS:
            return f"[`{ALARMS[name]}`](#eventsjsonl)"
        return f"[{name}](#{name.lower()})"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    match field.get("type"):
        case "array":
            return f"list of {_json(field['items'])}" if "items" in field else "list"
        case "object":
            part = field.get("additionalProperties")
            return f"table of {_json(part)}" if isinstance(part, dict) and part else "table"
        case list(kinds):
            return " or ".join(words[kind] for kind in kinds if kind != "null")
        case kind:
            return words.get(str(kind), "any")


# --- the command line


SHARED = 3
"""Commands that have the same option, from which on the page explains it once."""


def commands() -> str:
    """Return the page of all commands, from the parser of the command line."""
    from p2pfl.cli import command_catalogue  # noqa: PLC0415

    names = ["help", *(name for group in command_catalogue.commands_by_group().values() for name in group)]
    parsers = {name: command_catalogue.parser(name) for name in names}
    actions = [action for command in parsers.values() for action in command._actions]  # noqa: SLF001 (argparse has no list)
    counts = Counter(_option(action) for action in actions)
    shared = {_option(action): action for action in actions if counts[_option(action)] >= SHARED}
    parts = [
        "# Command line",
        (
            "This page is generated from the parser of the command `p2pfl`; `p2pfl COMMAND --help` prints the same. "
            "[Use the commands](../usage.md) shows them at work."
        ),
        "These arguments mean the same wherever they occur:",
        "\n".join(
            f"- `{' '.join(filter(None, (*action.option_strings[-1:], action.metavar)))}`: "
            f"{text.replace('%(default)s', str(action.default))}"
            for (_, text), action in shared.items()
        ),
    ]
    for name, command in parsers.items():
        summary, command.description = command.description or "", None
        actions, helps = command._actions, {action.dest: action.help for action in command._actions}  # noqa: SLF001 (argparse has no list)
        also = [
            f"`{each.option_strings[-1]}`" for each in actions[1:] if each.option_strings and _option(each) in shared
        ]
        with mock.patch.dict(os.environ, COLUMNS="80"):  # argparse wraps at the width of the terminal
            for action in actions:
                action.help = action.help if action.required or not action.option_strings else argparse.SUPPRESS
            usage = command.format_usage().removeprefix("usage: ")
            for action in actions:
                here = helps[action.dest]
                action.help = argparse.SUPPRESS if (_option(action)[0], here or "") in shared else here
            text = command.format_help().partition("\n\n")[2]
            text = re.sub(r"^\n?(positional arguments|options):\n", "", text, flags=re.MULTILINE).rstrip()
        parts += [f"## p2pfl {name}", summary, f"```text\n{usage}{text}".rstrip() + "\n```"]
        parts += [f"Also {', '.join(also)}."] if also else []
    return "\n\n".join(parts) + "\n"


def _option(action: argparse.Action) -> tuple[str, str]:
    """Return the name and the help of an argument, which are the same where it means the same."""
    return (action.option_strings or [str(action.metavar or action.dest)])[-1], action.help or ""


# --- the Python API


def public(source: Path) -> list[tuple[str, str]]:
    """Return the module and the name of everything that a package exports, read from its stub or its source."""
    package = ".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    stub = source.with_suffix(".pyi")
    tree = ast.parse((stub if stub.is_file() else source).read_text("utf-8"))
    homes = {
        name.asname or name.name: ".".join(filter(None, [package * bool(node.level), node.module]))
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    if stub.is_file():
        return [(home, name) for name, home in homes.items()]
    listed = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    return [(homes.get(name, package), name) for name in listed if not name.startswith("__")]


def api() -> dict[str, str]:
    """Return the pages of the Python API: one for ``p2pfl``, and one for each package of :data:`ROOMS`."""
    rooms = {room for room, _ in ROOMS}
    names = [(home, name) for home, name in public(ROOT / "p2pfl" / "__init__.py") if home != "p2pfl"]
    index = [
        "# Python API",
        (
            "`import p2pfl` gives the names on this page. Each package below has a page of its own. "
            "Names that no page lists may change without notice."
        ),
        "\n".join(f"- [`p2pfl.{room}`](api/{room}.md): {about}" for room, about in ROOMS),
        *(f"::: {home}.{name}" for home, name in names),
    ]
    pages = {"reference/api.md": "\n\n".join(index) + "\n"}
    for room, about in ROOMS:
        members = (f"::: {home}.{name}" for home, name in _members(room) if name not in rooms)
        pages[f"reference/api/{room}.md"] = "\n\n".join([f"# p2pfl.{room}", about, *members]) + "\n"
    return pages


@functools.cache
def api_places() -> dict[str, str]:
    """Return where the Python API describes each package, and the first public name of each source file."""
    places: dict[str, str] = {}
    for room, _ in ROOMS:
        places[f"p2pfl/{room.replace('.', '/')}/__init__.py"] = f"docs/reference/api/{room}.md"
        for home, name in _members(room):
            places.setdefault(f"{home.replace('.', '/')}.py", f"docs/reference/api/{room}.md#{home}.{name}")
    return places


def _members(room: str) -> list[tuple[str, str]]:
    source = ROOT / "p2pfl" / room.replace(".", "/") / "__init__.py"
    return public(source) if source.is_file() else _module(room)


def _module(room: str) -> list[tuple[str, str]]:
    tree = ast.parse((ROOT / "p2pfl" / f"{room.replace('.', '/')}.py").read_text("utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [(f"p2pfl.{room}", name) for name in names if not name.startswith("_")]


# --- pages of the root


def root(name: str) -> str:
    """Return a page of the repository's root, whose links lead to the pages of the site."""
    text = (ROOT / name).read_text("utf-8")
    text = re.sub(r"\]\(docs/", "](", text)
    for page in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
        text = text.replace(f"]({page}.md", f"]({page.lower()}.md")
    text = re.sub(r"\]\((?=(?:benchmarks|p2pfl|scripts|tests)/)", "](../", text)
    return text.replace("](README.md)", "](index.md)")


def address() -> str:
    """Return the address of the repository, which stands in pyproject.toml alone."""
    [found] = re.findall(r'^(?:# )?Repository = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    return str(found)


def repository_links(markdown: str, place: str, *, host: str) -> str:
    """Return a page whose links to files that are not on the site lead to the Python API or to the repository.

    Examples
    --------
    >>> repository_links("[a](../notes/a.md#b), [c](../index.md)", "tutorials/x.md", host="https://host")
    '[a](https://host/blob/main/docs/notes/a.md#b), [c](../index.md)'
    >>> repository_links("[a](../p2pfl/plugins/exact/boosting.py)", "x.md", host="https://host")
    '[a](reference/api/plugins.exact.md#p2pfl.plugins.exact.boosting.Boosting)'
    """
    folder = posixpath.join("docs", posixpath.dirname(place))

    def led(link: re.Match[str]) -> str:
        path, anchor = link.groups()
        file = posixpath.normpath(posixpath.join(folder, path))
        if file in api_places():
            return f"]({posixpath.relpath(api_places()[file], folder)})"
        on_site = file.startswith("docs/") and not file.startswith("docs/notes/")
        return link[0] if on_site else f"]({host}/blob/main/{file}{anchor or ''})"

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)", led, markdown)


# --- pages that are committed


def reference() -> dict[str, str]:
    """Return the pages of ``docs/reference`` by their names."""
    return {"keys.md": keys(), "commands.md": commands(), "files.md": run_files()}


def write() -> None:
    """Write the pages of ``docs/reference``."""
    folder = ROOT / "docs" / "reference"
    folder.mkdir(exist_ok=True)
    for name, page in reference().items():
        (folder / name).write_text(page, "utf-8")


# --- what mkdocs calls


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File  # noqa: PLC0415

    pages = api() | {f"{name.lower()}.md": root(f"{name}.md") for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")}
    for place, content in pages.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Lead links to files that are not on the site to the repository."""
    return repository_links(markdown, page.file.src_uri, host=address())


if __name__ == "__main__":
    write()
