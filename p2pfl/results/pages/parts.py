"""Parts of pages: the frame, tables, warnings, how to repeat a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import p2pfl
from p2pfl.experiment import Experiment, flat, write
from p2pfl.experiment.file.reading import PATHS
from p2pfl.results.formats import shown
from p2pfl.results.pages.markup import Markup, join, tag
from p2pfl.results.pages.style import POLICY, STYLE

MOST_PEERS = 64
"""Peers that a table, a graph or a list of bars shows."""

FILES = ("experiment.toml", "metrics.jsonl", "events.jsonl", "summary.json")
"""Files of a run whose digests identify it."""


def page(title: str, sections: Iterable[tuple[str, str, Markup | None]], *, head: Iterable[object]) -> str:
    """Return a page.

    Parameters
    ----------
    title
        Title of the page.
    sections
        Name, heading and content of each section; those without content are left out.
    head
        Markup before the sections.
    """
    kept = [(name, heading, content) for name, heading, content in sections if content]
    links = [tag("li", tag("a", heading, href=f"#{name}")) for name, heading, _ in kept]
    body = [
        tag("header", tag("h1", title), head),
        tag("nav", tag("ul", links), aria_label="Contents"),
        tag("main", [section(name, heading, content) for name, heading, content in kept]),
        tag("footer", tag("p", f"Written by p2pfl {p2pfl.__version__}. This page loads nothing.", class_="small")),
    ]
    top = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        Markup(f"<style>{STYLE}</style>"),
    ]
    whole = tag("html", tag("head", top), tag("body", body), lang="en")
    return f"<!doctype html>\n{whole}\n"


def section(name: str, heading: str, content: object) -> Markup:
    """Return a section with its heading, to which the contents link."""
    return tag("section", tag("h2", heading, id=name), content, aria_labelledby=name)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], *, text: int = 1) -> Markup:
    """Return a table that scrolls by itself where it is wider than the page.

    Parameters
    ----------
    caption
        What it shows.
    heads
        Names of the columns.
    rows
        Cells; the first of a row names it. A row that begins with ``TOTAL`` is printed in bold.
    text
        Number of the first columns that are text; the others are numbers.
    """

    def cells(row: Sequence[object]) -> Markup:
        total = row[0] is TOTAL
        row = row[1:] if total else row
        kinds = [None if place < text else "n" for place in range(len(row))]
        first = tag("th", row[0], scope="row", class_=kinds[0])
        rest = [tag("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)]
        return tag("tr", first, rest, class_="total" if total else None)

    top = [tag("th", head, scope="col", class_=None if place < text else "n") for place, head in enumerate(heads)]
    made = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", top)),
        tag("tbody", [cells(row) for row in rows]),
    )
    return _scrolling(caption, made)


def _scrolling(caption: str, made: Markup) -> Markup:
    """Return a table in a region that scrolls, also by keyboard."""
    return tag("div", made, class_="wide", tabindex=0, role="region", aria_label=caption)


def beside(*children: Markup | None) -> Markup:
    """Return elements that stand side by side where there is room."""
    return tag("div", children, class_="beside")


def moment(text: str | None) -> str:
    """Return a time in UTC for people.

    Examples
    --------
    >>> moment("2026-11-22T13:07:00+00:00")
    '2026-11-22 13:07:00 UTC'
    """
    return "unknown" if text is None else text.replace("T", " ").replace("+00:00", " UTC")


TOTAL = object()
"""First cell of a row with totals."""


def pairs(caption: str, facts: Mapping[str, object]) -> Markup:
    """Return facts as a table of two columns."""
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in facts.items()]
    return _scrolling(caption, tag("table", tag("caption", caption), tag("tbody", rows)))


def box(kind: str, *children: object) -> Markup:
    """Return a box: ``verdict``, or one with ``alarm`` or ``warning``, which it begins with in words."""
    word = {"alarm": "Alarm.", "warning": "Warning."}.get(kind)
    first = None if word is None else tag("strong", word)
    return tag("div", tag("p", first, children), class_="verdict" if word is None else f"verdict {kind}")


def changed(experiment: Experiment) -> dict[str, str]:
    """Return the keys of an experiment that are not the default, as text."""
    usual = flat(Experiment())
    return {key: shown(value) for key, value in flat(_portable(experiment)).items() if usual.get(key) != value}


def written(experiment: Experiment) -> str:
    """Return an experiment as TOML, with all defaults and without the folders of absolute paths."""
    return write(_portable(experiment))


def _portable(experiment: Experiment) -> Experiment:
    """Return an experiment whose absolute paths are names of files."""

    def short(path: Any) -> Any:
        if isinstance(path, list | tuple):
            return type(path)(short(each) for each in path)
        return Path(path).name if isinstance(path, str) and Path(path).is_absolute() else path

    for key in PATHS:
        section, _, name = key.partition(".")
        own = getattr(experiment, section)
        options, _, option = name.partition(".")
        value = getattr(own, options)
        changed = short(value)
        if option:
            changed = value | {option: short(value[option])} if option in value else value
        own = msgspec.structs.replace(own, **{options: changed})
        experiment = msgspec.structs.replace(experiment, **{section: own})
    return experiment


def software(provenance: Mapping[str, Any]) -> Markup | None:
    """Return seed, start, versions and machine of a run."""
    known = provenance.get("versions")
    if not known:
        return None
    names = {"cpus": "logical CPUs", "python": "Python", "commit": "commit of p2pfl", "cpu": "processor"}
    names |= {"kernels": "kernels of torch", "gpu": "GPU"}
    facts = {"began": moment(provenance.get("began")), "seed": provenance.get("seed", "unknown")}
    facts |= {} if provenance.get("commit") is None else {"commit of own modules": provenance["commit"]}
    return pairs(
        "Start, seed, software and machine",
        facts | {names.get(key, key): value for key, value in known.items() if value is not None},
    )


def digests(folder: Path) -> Markup | None:
    """Return the digests of a run's files, by which a copy is recognised."""
    found = {}
    for name in FILES:
        if (folder / name).is_file():
            found[name] = tag("code", hashlib.sha256((folder / name).read_bytes()).hexdigest())
    return pairs(f"SHA-256 of the files in {folder.name}", found) if found else None


def details(heading: str, *children: object) -> Markup:
    """Return content that is shown on demand."""
    return tag("details", tag("summary", heading), join(children))
