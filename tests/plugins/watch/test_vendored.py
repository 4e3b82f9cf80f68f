"""Code of others in the package is what its authors published, with their licence."""

import hashlib
from pathlib import Path

import pytest

VENDOR = Path(__file__).parents[3] / "p2pfl" / "plugins" / "watch" / "static" / "vendor"

UPLOT = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""SHA-256 of the files of uPlot 1.6.32, from npm."""


@pytest.mark.parametrize("name", UPLOT)
def test_uplot_is_unchanged(name):
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == UPLOT[name]


def test_nothing_else_is_vendored_and_the_licence_is_permissive():
    assert {path.name for path in VENDOR.iterdir()} == {*UPLOT}
    assert (VENDOR / "uPlot.LICENSE").read_text("utf-8").startswith("The MIT License (MIT)")


def test_the_page_names_no_other_host_and_has_no_inline_code():
    static = VENDOR.parent
    for path in [*static.glob("*.js"), *static.glob("*.html"), *static.glob("*.css")]:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text, path
        assert "https:" not in text, path
        assert "innerHTML" not in text, path
        assert " style=" not in text, path
        assert " onclick=" not in text, path
