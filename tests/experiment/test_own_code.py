"""A run directory holds the own modules that an experiment names, and nothing else of the user's."""

import sys

import pytest

from p2pfl.experiment.file import own_code as room
from p2pfl.experiment.file.own_code import named_modules, own_code


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of the user's with modules, data and an environment."""
    files = {
        "clinic_a.py": "import clinic_b.losses, numpy\nraise SystemExit('nobody may import me')\n",
        "clinic_b/__init__.py": "",
        "clinic_b/losses.py": "def f():\n    from .deep import more, nothing\n    from .. import unknown\n",
        "clinic_b/deep/__init__.py": "from ..sibling import x\n",
        "clinic_b/deep/more.py": "import clinic_c\n",
        "clinic_b/deep/patients.csv": "secret\n",
        "clinic_b/sibling.py": "import clinic_a\n",
        "clinic_b/unused.py": "",
        "clinic_c.py": "def broken(:\n",
        "clinic_unused.py": "",
        "patients.npy": "secret",
        ".venv/lib/python3/site-packages/clinic_lib.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path / ".venv/lib/python3/site-packages")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


REACHED = [
    "clinic_a.py",
    "clinic_b/__init__.py",
    "clinic_b/deep/__init__.py",
    "clinic_b/deep/more.py",
    "clinic_b/losses.py",
    "clinic_b/sibling.py",
    "clinic_c.py",
]


def test_own_modules_are_those_that_are_reached_and_none_is_executed(folder):
    found = own_code(["clinic_a"])
    assert [*found.files] == REACHED
    assert found.folder == folder.resolve()
    assert found.whole
    assert not {"clinic_a", "clinic_b", "clinic_c"} & {*sys.modules}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "name", ["json", "torch.nn", "numpy", "p2pfl.algorithms", "clinic_lib", "no_such_module", "sys"]
)
def test_what_is_installed_is_not_the_users_own(name):
    assert own_code([name]) is None


def test_a_package_without_init_is_followed(folder):
    (folder / "plain" / "inner").mkdir(parents=True)
    (folder / "plain" / "losses.py").write_text("from plain.inner import more\n")
    (folder / "plain" / "inner" / "more.py").write_text("import clinic_b.sibling\n")
    found = [*own_code(["plain.losses"]).files]
    assert found[-2:] == ["plain/inner/more.py", "plain/losses.py"]
    assert "clinic_b/sibling.py" in found


def test_a_digest_follows_every_module_that_is_reached_and_no_other(folder):
    before = own_code(["clinic_b.losses"]).digest
    (folder / "clinic_b" / "unused.py").write_text("changed")
    (folder / "patients.npy").write_text("changed")
    assert own_code(["clinic_b.losses"]).digest == before
    (folder / "clinic_b" / "deep" / "more.py").write_text("import clinic_c  # changed\n")
    assert own_code(["clinic_b.losses"]).digest != before


def test_a_file_outside_of_the_folder_is_not_followed(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "private.py"
    outside.write_text("key = 'secret'\n")
    (folder / "clinic_d.py").write_text("import clinic_link\n")
    (folder / "clinic_link.py").symlink_to(outside)
    assert [*own_code(["clinic_d"]).files] == ["clinic_d.py"]


def test_the_number_and_the_size_of_files_are_bounded(folder, monkeypatch):
    monkeypatch.setattr(room, "MAX_FILES", 3)
    found = own_code(["clinic_a"])
    assert (len(found.files), found.whole) == (3, False)
    monkeypatch.setattr(room, "MAX_FILES", 200)
    monkeypatch.setattr(room, "MAX_BYTES", 100)
    (folder / "clinic_a.py").write_text("#" * 101)
    assert own_code(["clinic_a"]).whole is False


def test_names_are_found_wherever_they_are_in_an_experiment():
    table = {
        "learning": {"loss": "a.b:f", "metrics": {"own": "c:g", "accuracy": "accuracy"}},
        "model": {"options": {"layers": ["d:h", "mqtt://host:1883", "C:/data"], "unicode": "módulo:función"}},
    }
    assert named_modules(table) == ["a.b", "c", "d", "módulo"]


def test_levels_of_columns_are_no_names_of_code():
    options = {"columns": {"dose": ["a:low", "a:high"]}, "target": "dose"}
    assert named_modules({"data": {"name": "table", "options": options}}) == []
    assert named_modules({"data": {"name": "clinic:load", "options": options}}) == ["a", "clinic"]
