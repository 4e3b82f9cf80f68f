"""The table of rooms in CONTRIBUTING.md, held by reading the imports."""

import ast
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

PACKAGE = Path(__file__).parent.parent / "p2pfl"

ROOMS = {
    "errors": set(),
    "files": {"errors"},
    "lazily": set(),
    "texts": set(),
    "traits": set(),
    "process": set(),
    "draws": set(),
    "explanations": set(),
    "importing": {"errors"},
    "encodings": {"errors"},
    "rows": {"errors", "process", "draws"},
    "compression": {"errors", "traits", "rows"},
    "topology": {"errors", "draws"},
    "data": {"errors", "texts", "importing", "rows"},
    "identity": {"errors", "files"},
    "learning": {"errors", "importing", "explanations", "process", "traits", "rows", "encodings", "data", "identity"},
    "neighbourhood": {"errors", "rows", "encodings", "compression", "topology"},
    "robust": {"errors", "traits", "rows", "neighbourhood"},
    "exact": {
        "errors",
        "importing",
        "explanations",
        "draws",
        "traits",
        "rows",
        "encodings",
        "data",
        "identity",
        "learning",
    },
    "algorithms": {"errors", "traits", "rows", "encodings", "compression", "topology", "learning", "neighbourhood"},
    "privacy": {"errors", "draws", "rows", "encodings", "topology", "identity", "neighbourhood"},
    "transport": {"errors"},
    "protocol": {"errors", "rows", "encodings", "compression", "topology", "identity", "neighbourhood", "privacy"},
    "secagg": {"errors", "topology", "identity", "neighbourhood", "privacy", "protocol"},
    "experiment": {
        "errors",
        "importing",
        "traits",
        "rows",
        "encodings",
        "compression",
        "topology",
        "data",
        "identity",
        "learning",
        "neighbourhood",
        "robust",
        "algorithms",
        "exact",
        "privacy",
        "secagg",
    },
    "report": {
        "errors",
        "importing",
        "explanations",
        "texts",
        "topology",
        "files",
        "process",
        "rows",
        "data",
        "learning",
        "neighbourhood",
        "privacy",
        "experiment",
        "algorithms",
    },
}
ROOMS["inference"] = {
    "errors",
    "explanations",
    "texts",
    "files",
    "encodings",
    "data",
    "learning",
    "exact",
    "experiment",
}
BELOW = {*ROOMS}
ROOMS["peer"] = BELOW
ROOMS["simulation"] = BELOW - {"protocol", "transport"}
ROOMS["virtual"] = BELOW | {"peer", "simulation"}
ROOMS["audit"] = BELOW | {"peer", "simulation", "virtual"}
ROOMS["testing"] = BELOW | {"peer", "simulation", "virtual"}
ROOMS["sweep"] = {"errors", "files", "process", "draws", "experiment", "report", "peer", "simulation"}
ROOMS["deploy"] = {"errors", "files", "topology", "identity", "transport", "protocol", "experiment"}
ROOMS["watch"] = {"errors", "importing", "topology", "transport", "protocol", "experiment", "report", "peer"}
ROOMS["cli"] = BELOW | {"peer", "virtual", "simulation", "audit", "sweep", "watch", "deploy"}

PROTOCOL = {
    "wire": set(),
    "timing": {"wire"},
    "ledgers": {"wire"},
    "agreement": {"wire"},
    "incoming": {"wire", "ledgers", "agreement"},
    "membership": {"wire", "timing"},
    "totals": {"wire"},
    "telemetry": {"wire", "incoming"},
    "interface": {"wire", "ledgers"},
    "session": {"wire", "timing", "ledgers", "incoming", "membership", "totals", "agreement", "interface"},
}
"""The folders of ``protocol``, as its docstring draws them, and which others each may import."""

PURE = {
    "draws",
    "rows",
    "topology",
    "data",
    "learning",
    "privacy",
    "protocol",
    "secagg",
    "neighbourhood",
    "algorithms",
    "compression",
    "robust",
    "exact",
}
SHELL = {"asyncio", "time", "datetime", "os", "logging", "threading", "random", "secrets"}
ONLY_IN = {
    "networkx": "topology/",
    "msgspec": (
        "audit/",
        "protocol/",
        "experiment/",
        "report/",
        "peer/",
        "algorithms/",
        "virtual/",
        "simulation/sharding/",
        "inference/",
        "sweep/",
        "watch/",
    ),
    "starlette": "watch/",
    "uvicorn": "watch/",
    "pyarrow": "data/tables/cells.py",
    "onnx": "inference/exporting.py",
    "tensorboardX": "report/tensorboard.py",
    "zstandard": "compression/zstd.py",
    "aiomqtt": "transport/mqtt.py",
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
    found = {}
    for path in (path for path in files() if room(path) == here):
        used = {name.split(".")[1] for name in imports(path) if name.startswith("p2pfl.")}
        found[str(path.relative_to(PACKAGE))] = used - {here, "lazily"} - ROOMS[here]
    assert {path: extra for path, extra in found.items() if extra} == {}


@pytest.mark.parametrize("folder", PROTOCOL)
def test_folders_of_the_protocol_import_downward_only(folder):
    names = {name for path in sorted((PACKAGE / "protocol" / folder).glob("*.py")) for name in imports(path)}
    used = {name.split(".")[2] for name in names if name.startswith("p2pfl.protocol.")}
    assert used - {folder} <= PROTOCOL[folder]


def test_every_folder_of_the_protocol_is_in_the_table():
    assert {path.parent.name for path in (PACKAGE / "protocol").glob("*/*.py")} == {*PROTOCOL}
    assert [path.name for path in (PACKAGE / "protocol").glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("here", sorted(PURE))
def test_pure_rooms_know_no_clock_loop_or_environment(here):
    found = {
        str(path): {name.split(".")[0] for name in imports(path)} & SHELL for path in files() if room(path) == here
    }
    assert {path: extra for path, extra in found.items() if extra} == {}


@pytest.mark.slow
def test_opacus_is_an_oracle_of_the_tests_alone():
    assert not [path for path in files() if "opacus" in {name.split(".")[0] for name in imports(path)}]


@pytest.mark.parametrize("library", ONLY_IN)
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


MANY = 15
"""Files that a folder may have side by side."""


@pytest.mark.parametrize(
    "folder",
    ["cli", "data", "deploy", "exact", "experiment", "inference", "learning", "peer", "report", "sweep", "topology"],
)
def test_a_folder_has_few_files_side_by_side(folder):
    folders = [PACKAGE / folder, *(each for each in (PACKAGE / folder).rglob("*") if (each / "__init__.py").is_file())]
    assert {each.name: len([*each.glob("*.py")]) for each in folders if len([*each.glob("*.py")]) > MANY} == {}


def test_every_room_is_in_the_table():
    assert {room(path) for path in files()} - {"__init__", "__main__"} == set(ROOMS)
