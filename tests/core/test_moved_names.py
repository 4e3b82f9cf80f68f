"""Modules can be imported by the names of the last release, and a warning says the new one."""

import importlib
import sys

import pytest

from p2pfl.core.moved_names import MOVED_MODULES


@pytest.mark.parametrize("old", sorted(MOVED_MODULES))
def test_a_module_that_has_moved_is_found_by_its_old_name(old, monkeypatch):
    monkeypatch.delitem(sys.modules, f"p2pfl.{old}", raising=False)
    new = importlib.import_module(f"p2pfl.{MOVED_MODULES[old]}")
    spec = new.__spec__
    with pytest.warns(DeprecationWarning, match=f"p2pfl.{old} is p2pfl.{MOVED_MODULES[old]} now"):
        assert importlib.import_module(f"p2pfl.{old}") is new
    assert new.__spec__ is spec


def test_a_module_of_a_package_that_has_moved_is_the_same_one_by_both_names(monkeypatch):
    new = importlib.import_module("p2pfl.plugins.exact.regression.families")
    for old in ("p2pfl.exact", "p2pfl.exact.regression", "p2pfl.exact.regression.families"):
        monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match="change the import"):
        assert importlib.import_module("p2pfl.exact.regression.families") is new


def test_a_name_that_never_was_is_still_missing():
    with pytest.raises(ModuleNotFoundError, match="nonsense"):
        importlib.import_module("p2pfl.nonsense")
