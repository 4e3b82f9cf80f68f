"""Parts are registered by entry points; a broken package spoils its own names only."""

import sys

import pytest

from p2pfl.core import registry
from p2pfl.core.errors import InputError


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package: its entry points of the group ``p2pfl.tests``, and its modules."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name, points, **modules):
        information = tmp_path / f"{name}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{point} = {value}" for point, value in points.items()]
        (information / "entry_points.txt").write_text("\n".join(["[p2pfl.tests]", *lines, ""]))
        for module, text in modules.items():
            (tmp_path / module).mkdir()
            (tmp_path / module / "__init__.py").write_text("raise RuntimeError('imported too early')\n" * (not text))
            (tmp_path / module / "parts.py").write_text(text)
        registry._entries.cache_clear()

    yield install
    registry._entries.cache_clear()
    for module in [module for module in sys.modules if module.startswith(("acme_", "zenith_"))]:
        del sys.modules[module]


def test_names_are_sorted_and_nothing_is_imported(install):
    install("acme", {"wave": "acme_sea.parts:WAVE", "anchor": "acme_sea.parts:ANCHOR"}, acme_sea="")
    assert [*registry.find_entry_points("p2pfl.tests")] == ["anchor", "wave"]
    assert "acme_sea" not in sys.modules


def test_parts_are_there_for_a_process_whose_folder_was_removed(install, tmp_path, monkeypatch):
    install("acme", {"wave": "acme_sea.parts:WAVE"}, acme_sea="WAVE = 7\n")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert [*registry.find_entry_points("p2pfl.tests")] == ["wave"]


def test_a_part_is_imported_when_it_is_loaded(install):
    install("acme", {"wave": "acme_sea.parts:WAVE"}, acme_sea="WAVE = 7\n")
    assert registry.load("p2pfl.tests", "wave") == 7


@pytest.mark.parametrize("value", ["absent.parts:WAVE", "acme_sea.absent:WAVE", "acme_sea.parts.absent:WAVE"])
def test_a_part_whose_module_does_not_exist_is_left_out(install, value):
    install("acme", {"anchor": "acme_sea.parts:WAVE", "wave": value}, acme_sea="")
    assert [*registry.find_entry_points("p2pfl.tests")] == ["anchor"]


@pytest.mark.parametrize(
    ("text", "reason", "remedy"),
    [
        (
            "import no_such_library\n",
            "ModuleNotFoundError: No module named 'no_such_library'",
            "install no_such_library",
        ),
        ("raise ValueError('high tide')\n", "ValueError: high tide", "reinstall its package"),
        ("WAVE: (\n", "SyntaxError", "reinstall its package"),
        ("LAND = 1\n", "has no attribute 'WAVE'", "reinstall its package"),
    ],
)
def test_a_part_that_cannot_be_imported_is_one_sentence(install, text, reason, remedy):
    install("acme", {"wave": "acme_sea.parts:WAVE"}, acme_sea=text)
    assert [*registry.find_entry_points("p2pfl.tests")] == ["wave"]
    with pytest.raises(InputError, match=r'^"acme_sea\.parts:WAVE" cannot be imported') as error:
        registry.load("p2pfl.tests", "wave")
    assert reason in str(error.value)
    assert f"; {remedy}, or uninstall " in str(error.value)


def test_a_name_of_two_packages_is_refused_and_other_names_are_not(install):
    install("acme", {"wave": "acme_sea.parts:WAVE"}, acme_sea="WAVE = 7\n")
    install("zenith", {"wave": "zenith_sky.parts:WAVE", "cloud": "zenith_sky.parts:WAVE"}, zenith_sky="WAVE = 8\n")
    assert registry.load("p2pfl.tests", "cloud") == 8
    with pytest.raises(InputError, match=r'"acme_sea\.parts:WAVE" and "zenith_sky\.parts:WAVE"; uninstall all but one'):
        registry.load("p2pfl.tests", "wave")


def test_the_name_of_a_part_of_p2pfl_cannot_be_taken(install):
    install("acme", {"texts": "acme_sea.parts:WAVE"}, acme_sea="WAVE = 7\n")
    install("zenith", {"texts": "p2pfl.core.texts:printable"})
    assert registry.load("p2pfl.tests", "texts")("sea") == "sea"
