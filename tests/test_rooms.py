"""Imports run downwards only: which room may import which, held by reading the imports."""

import ast
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import networkx as nx
import pytest

PACKAGE = Path(__file__).parent.parent / "p2pfl"

ROOMS = (
    "core",
    "topology",
    "data",
    "privacy",
    "learning",
    "algorithms",
    "experiment",
    "results",
    "simulation",
    "network",
    "testing",
    "cli",
    "plugins",
)
"""The rooms from the lowest to the highest; each imports those before it."""

APART = {"simulation", "network"}
"""Rooms that never import each other: all peers at once, and one peer with its messages."""

PROTOCOL = {
    "wire": set(),
    "timing": {"wire"},
    "ledgers": {"wire"},
    "agreement": {"wire"},
    "incoming": {"wire", "ledgers", "agreement"},
    "membership": {"wire", "timing", "incoming"},
    "totals": {"wire"},
    "interface": {"wire", "ledgers"},
    "session": {"wire", "timing", "ledgers", "incoming", "membership", "totals", "agreement", "interface"},
}
"""The folders of ``protocol``, as its docstring draws them, and which others each may import."""

PURE = (
    "core/draws.py",
    "core/rows.py",
    "core/neighbourhood.py",
    "core/codecs.py",
    "topology/",
    "data/",
    "learning/",
    "privacy/",
    "algorithms/",
    "network/protocol/",
    "network/secagg/",
    "plugins/exact/",
)
"""Files that know no clock, loop or environment, but for the keys of ``privacy/keys``."""

SHELL = {"asyncio", "time", "datetime", "os", "logging", "threading", "random", "secrets"}
ONLY_IN = {
    "networkx": "topology/",
    "msgspec": (
        "experiment/",
        "results/",
        "algorithms/",
        "network/protocol/",
        "network/peer/",
        "network/virtual/",
        "simulation/sharding/",
        "plugins/",
    ),
    "starlette": "plugins/watch/",
    "uvicorn": "plugins/watch/",
    "pyarrow": "data/tables/cells.py",
    "onnx": "results/models/exporters.py",
    "tensorboardX": "results/tensorboard.py",
    "docx": "results/table_files.py",
    "gmpy2": ("privacy/", "plugins/vertical/"),
    "zstandard": "core/codecs.py",
    "aiomqtt": "network/transport/mqtt.py",
    "dp_accounting": "privacy/accounting/divergence.py",
}


pytestmark = pytest.mark.xdist_group("rooms")  # one process reads the package for all of them


@cache
def files():
    return sorted(PACKAGE.rglob("*.py"))


@cache
def imports(path):
    """Return the dotted names of all that a file imports, wherever in the file."""
    return frozenset(_imports(path))


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: expected absolute imports"
            yield node.module
            if node.module == "p2pfl":
                yield from (f"p2pfl.{alias.name}" for alias in node.names)


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("here", ROOMS)
def test_imports_run_downward_only(here):
    allowed = {*ROOMS[: ROOMS.index(here) + 1]} - (APART - {here} if here in APART else set())
    upward = {}
    for path in (path for path in files() if room(path) == here):
        used = {name.split(".")[1] for name in imports(path) if name.startswith("p2pfl.")}
        upward[str(path.relative_to(PACKAGE))] = used - allowed
    assert {path: names for path, names in upward.items() if names} == {}


@pytest.mark.parametrize("folder", PROTOCOL)
def test_folders_of_the_protocol_import_downward_only(folder):
    names = {name for path in sorted((PACKAGE / "network/protocol" / folder).glob("*.py")) for name in imports(path)}
    used = {name.split(".")[3] for name in names if name.startswith("p2pfl.network.protocol.")}
    assert used - {folder} <= PROTOCOL[folder]


def test_every_folder_of_the_protocol_is_in_the_table():
    assert {path.parent.name for path in (PACKAGE / "network" / "protocol").glob("*/*.py")} == {*PROTOCOL}
    assert [path.name for path in (PACKAGE / "network" / "protocol").glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("here", PURE)
@pytest.mark.plugin("exact", "vertical", "watch")
def test_pure_files_know_no_clock_loop_or_environment(here):
    pure = [path for path in files() if str(path.relative_to(PACKAGE)).startswith(here)]
    pure = [path for path in pure if "keys" not in path.parts]
    assert pure
    used = {str(path): {name.split(".")[0] for name in imports(path)} & SHELL for path in pure}
    assert {path: names for path, names in used.items() if names} == {}


@pytest.mark.slow
def test_opacus_is_an_oracle_of_the_tests_alone():
    assert not [path for path in files() if "opacus" in {name.split(".")[0] for name in imports(path)}]


@pytest.mark.parametrize("library", ONLY_IN)
@pytest.mark.plugin("exact", "vertical", "watch")
def test_a_library_is_known_in_its_room_alone(library):
    allowed = ONLY_IN[library]
    users = [str(path.relative_to(PACKAGE)) for path in files() if library in {n.split(".")[0] for n in imports(path)}]
    assert users
    assert all(user.startswith(allowed) for user in users), users


def test_no_files_lean_on_each_other_in_a_circle():
    """Rooms' own ``__init__`` only hand on; what a file takes through one is not followed here."""
    names = {"p2pfl." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in files()}
    graph = nx.DiGraph(
        (name, used) for name, path in names.items() if path.stem != "__init__" for used in imports(path) & {*names}
    )
    assert not [circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1]


@pytest.mark.plugin("exact", "vertical", "watch")
def test_every_room_is_in_the_table():
    assert {room(path) for path in files()} - {"__init__", "__main__"} == set(ROOMS)


@pytest.mark.slow
@pytest.mark.plugin("exact", "vertical", "watch")
def test_the_package_and_its_pages_stay_within_their_limits():
    loader = SourceFileLoader("size", str(PACKAGE.parent / "scripts" / "size"))
    size = module_from_spec(spec_from_loader("size", loader))
    loader.exec_module(size)
    figures = size.structure(dict(size.files(PACKAGE.parent)))
    assert {name: figures[name] for name, limit in size.LIMITS.items() if figures[name] > limit} == {}
