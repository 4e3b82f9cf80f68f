"""HTML whose text is always escaped: only :func:`tag` makes markup, and what is no markup is text.

A page is mailed and archived, so the folders of absolute paths, which name users and machines, stay out of it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from p2pfl.core.texts import printable

Child = "str | Markup | None | Iterable[Child]"
"""Content of an element; ``None`` is nothing."""

VOID = frozenset({"meta", "br", "hr", "link", "line", "rect", "circle", "path", "polyline", "polygon", "col"})
"""Elements without content."""


FOLDERS = re.compile(r"""(?<![\w.:/<>~-])~?/(?:[^\s/"'<>,;:|()\[\]{}]+/)+""")
"""The folders of an absolute path in a text; addresses such as mqtt://host/topic have none."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element; children that are not :class:`Markup` are escaped, as are values of attributes.

    Parameters
    ----------
    name
        Name of the element.
    children
        Text, markup, ``None``, or iterables of these.
    attributes
        Attributes; a trailing underscore is dropped, other underscores are hyphens. ``None`` and False are left out.

    Examples
    --------
    >>> tag("p", "1 < 2 & ", tag("b", "<script>"), class_="note")
    '<p class="note">1 &lt; 2 &amp; <b>&lt;script&gt;</b></p>'
    """
    given = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{given}/>" if name not in {"meta", "br", "hr", "link"} else f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(children)}</{name}>")


def join(children: object) -> Markup:
    """Return children one after the other, escaped where they are not markup."""
    if children is None:
        return Markup()
    if isinstance(children, Markup):
        return children
    if isinstance(children, Iterable) and not isinstance(children, str):
        return Markup("".join(join(child) for child in children))
    return Markup(_escaped(str(children)))


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_escaped(str(value))}"'


def _escaped(text: str) -> str:
    """Return text for a page, which others will read: without control characters, and without the folders of paths."""
    return html.escape(FOLDERS.sub("", printable(text, keep="\n\t\u00a0")))
