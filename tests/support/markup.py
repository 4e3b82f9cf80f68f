"""Markup of pages, and what could inject some."""

import html
import html.parser

from p2pfl.results.pages.rendering import POLICY

HOSTILE = '</title></style><script>alert(1)</script><img src=x onerror="alert(1)"> \'"&'


VOID = {"meta", "br", "hr", "link", "img", "input", "col"}

DRAWN = {"svg", "g", "path", "use", "text", "tspan", "line", "polygon", "rect"}
"""Elements of a figure, which matplotlib gives colours by themselves."""


class Page(html.parser.HTMLParser):
    """Elements of a page; ends that do not fit are errors."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, text):
        self.text.append(text)

    def all(self, name):
        return [attributes for found, attributes in self.elements if found == name]


def checked(text):
    """Return a page that keeps to what all pages promise."""
    page = Page(text)
    assert text.startswith("<!doctype html>")
    names = {name for name, _ in page.elements}
    assert not names & {"script", "img", "link", "iframe", "object", "embed", "form", "base", "video", "audio"}
    for name, attributes in page.elements:
        assert not any(key.startswith("on") or key in {"src", "action"} for key in attributes)
        assert "style" not in attributes or name in DRAWN
        for key in ("href", "xlink:href"):
            assert attributes.get(key, "#").startswith("#")
    [policy] = [each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy == POLICY == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [attributes["href"][1:] for attributes in page.all("a")]
    named = [part for _, attributes in page.elements for part in attributes.get("aria-labelledby", "").split()]
    assert {*targets, *named} <= {*ids}
    charts = [attributes for attributes in page.all("svg") if attributes.get("class") == "chart"]
    assert all(attributes["role"] == "img" and attributes["aria-labelledby"] for attributes in charts)
    assert len(page.all("caption")) == len(page.all("table"))
    assert page.all("html") == [{"lang": "en"}]
    assert "url(" not in text.replace("url(#", "")
    assert "@import" not in text
    return page
