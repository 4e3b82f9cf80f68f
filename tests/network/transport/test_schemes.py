"""An installed package registers a transport by an entry point."""

import sys

import pytest

from p2pfl.core import registry
from p2pfl.core.errors import BrokerError, InputError
from p2pfl.network.transport import schemes

POINTS = """[p2pfl.transports]
pigeon = pigeon_post:opener
raven = pigeon_post:absent
"""


@pytest.fixture
def _installed(tmp_path, monkeypatch):
    (tmp_path / "pigeon_post.py").write_text("def opener(url, access):\n    return url, access\n")
    (tmp_path / "pigeon_post-1.0.dist-info").mkdir()
    (tmp_path / "pigeon_post-1.0.dist-info" / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(schemes, "SCHEMES", {**schemes.SCHEMES})
    registry._entries.cache_clear()
    yield
    registry._entries.cache_clear()
    sys.modules.pop("pigeon_post", None)


@pytest.mark.usefixtures("_installed")
def test_a_package_opens_the_urls_of_its_scheme():
    assert schemes.opened("pigeon://roof") == ("pigeon://roof", schemes.Access())


@pytest.mark.usefixtures("_installed")
def test_a_package_that_is_broken_is_one_sentence():
    with pytest.raises(InputError, match='"pigeon_post:absent" cannot be imported'):
        schemes.opened("raven://roof")


@pytest.mark.usefixtures("_installed")
def test_an_unknown_scheme_names_the_registered_ones():
    with pytest.raises(BrokerError, match="known: file, memory, mqtt, mqtts, pigeon, raven, ws, wss"):
        schemes.opened("owl://roof")


def test_without_the_package_its_scheme_is_unknown():
    with pytest.raises(BrokerError, match="no transport is registered for pigeon://"):
        schemes.opened("pigeon://roof")
