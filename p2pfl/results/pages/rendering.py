"""Reports as HTML files that load nothing and run nothing; the templates escape every text.

A page is mailed and archived, so the folders of absolute paths, which name users and machines, stay out of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

import p2pfl
from p2pfl.core.errors import InputError
from p2pfl.core.texts import printable
from p2pfl.results.facts import Block, Figure, Section
from p2pfl.results.formats import number
from p2pfl.results.plots import MATPLOTLIB_REMEDY, missing, svg

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content security policy of a page: it loads nothing and runs nothing."""

FOLDERS = re.compile(r"""(?<![\w.:/<>~-])~?/(?:[^\s/"'<>,;:|()\[\]{}]+/)+""")
"""The folders of an absolute path in a text; addresses such as mqtt://host/topic have none."""


def portable(value: object) -> object:
    """Return a value as text for others: without control characters, and without the folders of paths."""
    if value is None or isinstance(value, Markup):
        return value or ""
    return FOLDERS.sub("", printable(str(value), keep="\n\t\u00a0"))


def plain(value: object) -> str:
    """Return a value as text for Markdown, in which it is no HTML."""
    return printable("" if value is None else str(value), keep="\n").replace("<", "&lt;")


def page(title: str, sections: Iterable[Section], *, head: Iterable[Block | None] = ()) -> str:
    """Return a page.

    Parameters
    ----------
    title
        Title of the page.
    sections
        The sections; those without blocks are left out.
    head
        Blocks before the sections.
    """
    kept = [(name, heading, [*filter(None, blocks)]) for name, heading, blocks in sections]
    return ENVIRONMENT.get_template("page.html").render(
        title=title,
        head=[*filter(None, head)],
        sections=[section for section in kept if section[2]],
        policy=POLICY,
        version=p2pfl.__version__,
        missing=MATPLOTLIB_REMEDY if missing() else None,
        numbers=count(),
    )


def fragment(blocks: Iterable[Block | None]) -> str:
    """Return blocks as a part of a page, for notebooks."""
    module = ENVIRONMENT.get_template("blocks.html").make_module({"numbers": count()})
    return f"<div>{module.show_all([*filter(None, blocks)])}</div>"  # type: ignore[attr-defined]


def markdown(template: str, facts: Mapping[str, object]) -> str:
    """Return a Markdown file by its template, in which texts are no HTML."""
    text = MARKDOWN.get_template(template).render(facts)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _draw(figure: Figure, name: str) -> Markup:
    """Return a figure as SVG; a sentence where it cannot be drawn."""
    if missing():
        return Markup()
    try:
        return Markup(svg(figure.draw, name=name, shown=portable))  # noqa: S704 (matplotlib escapes texts)
    except InputError as error:
        return Markup("<p>{}.</p>").format(portable(str(error)))


ENVIRONMENT = Environment(
    loader=PackageLoader("p2pfl.results.pages"),
    autoescape=True,
    finalize=portable,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters["drawn"] = _draw
MARKDOWN = ENVIRONMENT.overlay(autoescape=False, finalize=plain)
MARKDOWN.filters["number"] = number
