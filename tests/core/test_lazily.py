"""When modules are imported."""

import gc
import sys

import pytest

from p2pfl.core.lazily import uncollected


@pytest.fixture
def _collecting():
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("_collecting")
def test_imports_run_without_collections_and_what_they_made_is_exempt_from_later_ones(monkeypatch):
    gc.unfreeze()
    with uncollected():
        assert not gc.isenabled()
        monkeypatch.setitem(sys.modules, "imported_here", sys)
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("_collecting")
def test_without_a_new_module_nothing_is_exempt():
    gc.unfreeze()
    with uncollected():
        pass
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("_collecting")
def test_a_collector_that_was_off_stays_off_and_one_that_was_on_is_on_after_an_error():
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()
