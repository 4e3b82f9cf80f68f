"""Memory of many peers that train adapters on one frozen backbone."""

from importlib.util import find_spec

import pytest

from benchmarks.adapters import growth, spawned

MISSING = [name for name in ("transformers", "peft") if find_spec(name) is None]  # their import takes seconds


@pytest.mark.nightly
@pytest.mark.skipif(bool(MISSING), reason="transformers and peft are not installed")
def test_a_further_peer_costs_a_few_copies_of_its_adapters_and_none_of_the_backbone():
    less, more = spawned(64), spawned(320)
    assert more.backbone > 200 * more.trained
    assert growth(less, more) < 12 * more.trained < more.backbone / 10
