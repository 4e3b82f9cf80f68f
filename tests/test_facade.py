import ast
import importlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import p2pfl
from waiting import DEADLINE


def declared():
    """Return the module and name of all that a type checker sees."""
    tree = ast.parse(Path(p2pfl.__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [(f"p2pfl.{node.module}" if node.module else "p2pfl", name.name) for node in imports for name in node.names]


@pytest.mark.plugin("exact")
def test_what_is_listed_is_what_can_be_imported_and_what_a_type_checker_sees():
    assert sorted(p2pfl.__all__) == sorted(name for _, name in declared())
    assert dir(p2pfl) == sorted(p2pfl.__all__)
    for home, name in declared():
        module = importlib.import_module(home)
        assert getattr(p2pfl, name) is (getattr(module, name, None) or importlib.import_module(f"{home}.{name}"))


@pytest.mark.parametrize("room", ["experiment", "network.peer", "privacy"])
def test_every_name_that_a_lazy_room_lists_can_be_imported(room):
    found = importlib.import_module(f"p2pfl.{room}")
    assert [name for name in found.__all__ if getattr(found, name, None) is None] == []


def test_the_version_is_that_of_the_distribution():
    assert p2pfl.__version__ == version("p2pfl-mqtt")


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="p2pfl attribute nonsense"):
        p2pfl.nonsense  # noqa: B018 (looking it up is the test)


def test_importing_p2pfl_or_asking_for_its_errors_loads_no_torch():
    code = (
        "import p2pfl, sys; p2pfl.errors.InputError; p2pfl.__version__; assert not {'torch', 'numpy'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE)


@pytest.mark.slow
def test_everything_can_be_taken_at_once():
    code = "from p2pfl import *; simulate, Peer, topology.ring(3), data.federate, TorchLearner"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE)


def test_the_package_tells_type_checkers_that_it_is_typed():
    assert (Path(p2pfl.__file__).parent / "py.typed").is_file()
