"""What all tests share."""

import gc
import math
import os
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from _pytest.doctest import DoctestItem, DoctestModule
from hypothesis import settings

import p2pfl
from p2pfl.experiment.file.own_modules import AcceptedLoader

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS / "support"), str(TESTS)]  # support/swarms.py, worlds/world.py
os.environ["PATH"] += os.pathsep + "/usr/sbin"  # where Debian keeps mosquitto

for name, examples in {"dev": 8, "ci": 25, "thorough": 1000}.items():  # tests/support/effort.py scales them
    settings.register_profile(name, deadline=None, max_examples=examples)  # no test is timed: a busy machine is slow
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

PLUGINS = {path.parent.name for path in (Path(p2pfl.__file__).parent / "plugins").glob("*/__init__.py")}
"""Names of the plug-ins, without which the tests of the core run as well."""

collect_ignore = ["support/fuzz.py"]  # scripts/fuzz runs it, with atheris


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without Python's garbage collector, which would walk all modules and tests again and again.

    What is there afterwards stays until the end, so no later collection needs to walk it either.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for doctests only in modules with examples, which half of p2pfl and every ``test_*.py`` lack."""
    collectors = yield
    return [each for each in collectors if not isinstance(each, DoctestModule) or ">>>" in file_path.read_text("utf-8")]


FOLDERS = pytest.StashKey[dict[Path, pytest.Directory]]()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Keep one node for each folder.

    After a file of ``tests``, pytest 9.1 makes new nodes for the folders beside it, which lack the fixtures of their
    ``conftest.py`` (pytest issue 14964, fixed after 9.1.1).
    """
    report = yield
    if isinstance(collector, pytest.Directory) and report.passed:
        known = collector.session.stash.setdefault(FOLDERS, {})
        report.result = [
            known.setdefault(each.path, each) if isinstance(each, pytest.Directory) else each for each in report.result
        ]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Skip what needs a plug-in that is not here, and leave the other cases of ``sampled`` tests to the slower tiers.

    ``sampled(fast=2, all=20)`` keeps two evenly spaced cases in the fast tier and twenty in ``--all``. Without ``all``,
    ``--all`` runs every case.
    """
    sampled = defaultdict(list)
    for item in items:
        needed = {name for mark in item.iter_markers("plugin") for name in mark.args}
        if isinstance(item, DoctestItem):
            needed |= {*re.findall(r">>> from p2pfl\.plugins\.(\w+)", item.dtest.docstring)}
        for missing in needed - PLUGINS:
            item.add_marker(pytest.mark.skip(f"p2pfl.plugins.{missing} is not installed"))
        if item.get_closest_marker("sampled"):
            sampled[item.nodeid.partition("[")[0]].append(item)
    for cases in sampled.values():
        wanted = cases[0].get_closest_marker("sampled").kwargs
        daily = _spaced(cases, wanted.get("all", len(cases)))
        fast = _spaced(daily, wanted["fast"])
        for case in cases:
            case.add_marker("fast" if case in fast else "slow" if case in daily else "nightly")
    # What takes longest begins first, so that no worker of pytest-xdist is left with it at the end.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _spaced(cases, count):
    """Return at most ``count`` of the cases, evenly spaced."""
    return cases[:: math.ceil(len(cases) / count)] if count else []


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Peers of one process must not each start as many threads as there are cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_imports_left():
    """Forget what a test imports from folders of its own, and where it looks for it."""
    path, finders = [*sys.path], [*sys.meta_path]
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    for name, module in [*sys.modules.items()]:
        if isinstance(getattr(getattr(module, "__spec__", None), "loader", None), AcceptedLoader):
            del sys.modules[name]


@pytest.fixture(scope="session")
def data_dir():
    """Return the folder with data sets; a test that asks for it is skipped where there is none."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("P2PFL_DATA") or root.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no folder with data sets; set P2PFL_DATA")
    return folder
