"""Run directories that grow line by line, and a browser."""

import pytest

from browser import CHROMIUM, Browser
from growing import Growing


@pytest.fixture
def growing(tmp_path):
    return Growing(tmp_path / "run")


@pytest.fixture
def browser(tmp_path):
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    opened = Browser(tmp_path / "browser")
    yield opened
    opened.close()
