"""Python imports from a searched folder what the user has accepted, as it was read, and nothing else."""

import importlib
import importlib.metadata
import importlib.resources
import importlib.util
import multiprocessing
import pickle
import py_compile
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from p2pfl.core.errors import InputError, ModelError
from p2pfl.core.imports import import_callable
from p2pfl.experiment.file.own_code import accept, code_digests, own_code
from p2pfl.experiment.file.own_modules import finders, search

FILES = {
    "ward_a.py": "import json, ward_b.losses\nWHO = 'accepted'\ndef later():\n    import ward_c\n    return ward_c\n",
    "ward_b/__init__.py": "",
    "ward_b/losses.py": "from . import deep\nfrom ward_plain.inner import more\n",
    "ward_b/deep.py": "",
    "ward_b/unused.py": "",
    "ward_b/levels.txt": "low,high",
    "ward_plain/inner/more.py": "",
    "ward_c.py": "WHO = 'accepted, too'\n",
    "ward_unused.py": "",
    "json.py": "raise SystemExit('I am not the json of Python')\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that is searched for own modules, and is not on the path of Python."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", [*sys.path])
    search(tmp_path)
    yield tmp_path
    for module in [module for module in sys.modules if module.startswith("ward_")]:
        del sys.modules[module]


def imported(name):
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


@pytest.mark.usefixtures("folder")
def test_no_module_is_imported_before_it_is_accepted():
    assert own_code(["ward_a"]) is not None
    assert not imported("ward_a")
    accept(["ward_a"])
    assert imported("ward_a")


@pytest.mark.usefixtures("folder")
def test_what_an_accepted_module_imports_by_a_statement_is_accepted_and_nothing_else():
    accept(["ward_a"])
    assert importlib.import_module("ward_a").later().WHO == "accepted, too"
    assert {"ward_b.losses", "ward_b.deep", "ward_plain.inner.more"} <= {*sys.modules}
    assert not [name for name in ("ward_unused", "ward_b.unused") if imported(name)]


@pytest.mark.usefixtures("folder")
def test_a_module_in_the_place_of_one_of_python_is_not_imported(monkeypatch):
    accept(["ward_a"])
    monkeypatch.delitem(sys.modules, "json")
    assert importlib.import_module("json").loads("1") == 1


def test_the_bytes_run_whose_digest_was_shown(folder):
    digests = code_digests({"model": {"name": "ward_a:M"}})
    (folder / "ward_a.py").write_text("WHO = 'swapped'\n")
    accept(["ward_a"])
    assert importlib.import_module("ward_a").WHO == "accepted"
    assert code_digests({"model": {"name": "ward_a:M"}}) == digests


@pytest.mark.parametrize("module", ["ward_a", "ward_b/losses"])
def test_a_compiled_file_does_not_replace_the_source_that_was_accepted(folder, module):
    source, hostile = folder / f"{module}.py", folder / "hostile.py"
    hostile.write_text("raise SystemExit('nobody has accepted me')\n")
    compiled = importlib.util.cache_from_source(str(source))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(hostile), cfile=compiled, doraise=True, invalidation_mode=unchecked)
    accept(["ward_a"])
    assert imported("ward_a")


@pytest.mark.parametrize("ending", ["", ".pyc", importlib.machinery.EXTENSION_SUFFIXES[0]])
def test_a_sibling_that_has_no_source_is_not_imported(folder, ending):
    (folder / "ward_c.py").unlink()
    if ending:
        (folder / f"ward_c{ending}").write_bytes(b"")
    accept(["ward_a"])
    with pytest.raises(ModuleNotFoundError, match="ward_c"):
        importlib.import_module("ward_a").later()


def test_a_link_out_of_the_folder_is_not_imported(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "other.py"
    outside.write_text("")
    (folder / "ward_c.py").unlink()
    (folder / "ward_c.py").symlink_to(outside)
    accept(["ward_a"])
    with pytest.raises(ModuleNotFoundError, match="ward_c"):
        importlib.import_module("ward_a").later()


def test_the_metadata_of_packages_in_the_folder_count_nowhere(folder):
    (folder / "ward-1.dist-info").mkdir()
    (folder / "ward-1.dist-info" / "entry_points.txt").write_text("[p2pfl.tests]\nwave = ward_unused:WAVE\n")
    accept(["ward_a"])
    assert not importlib.metadata.entry_points(group="p2pfl.tests")


@pytest.mark.usefixtures("folder")
def test_a_package_reads_its_data_files():
    accept(["ward_b.losses"])
    package = importlib.import_module("ward_b")
    assert importlib.resources.files(package).joinpath("levels.txt").read_text() == "low,high"


def test_a_mistake_in_a_module_is_the_error_of_its_import(folder):
    (folder / "ward_c.py").write_text("def broken(:\n")
    accept(["ward_a"])
    with pytest.raises(SyntaxError):
        importlib.import_module("ward_a").later()


def test_another_process_finds_what_was_accepted_as_it_was(folder):
    accept(["ward_a"])
    sent = pickle.dumps(sys.path)
    sys.meta_path[:] = [each for each in sys.meta_path if each not in finders()]
    (folder / "ward_a.py").write_text("WHO = 'swapped'\n")
    assert pickle.loads(sent) == sys.path  # noqa: S301 (we have made it)
    assert importlib.import_module("ward_a").WHO == "accepted"
    assert own_code(["ward_a"]).folder == folder.resolve()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_of_a_library_find_what_was_accepted_as_it_was(folder, method):
    accept(["ward_a"])
    later = importlib.import_module("ward_a").later
    (folder / "ward_a.py").write_text("def later(): raise SystemExit('swapped')\n")
    (folder / "ward_c.py").write_text("raise SystemExit('swapped')\n")
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, context) as pool:  # which notices that a process has ended
        assert pool.submit(_who, later).result(timeout=120) == "accepted, too"
        assert pool.submit(_nested, method, later).result(timeout=120) == "accepted, too"


def _who(later):
    return later().WHO


def _nested(method, later):
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        return pool.submit(_who, later).result(timeout=120)


@pytest.mark.parametrize(
    ("called", "missing", "file"),
    [
        ("ward_unused", "ward_unused", "ward_unused.py"),
        ("ward_plain.inner.more", "ward_plain", "ward_plain"),
        ("ward_b.unused", "ward_b.unused", "ward_b/unused.py"),
    ],
)
def test_a_module_that_no_statement_imports_is_named_with_what_to_do(folder, called, missing, file):
    (folder / "ward_a.py").write_text(f"import importlib, ward_b\nimportlib.import_module('ward' + '{called[4:]}')\n")
    accept(["ward_a"])
    with pytest.raises(ModelError) as caught:
        import_callable("ward_a:M", refused=ModelError)
    assert str(caught.value) == (
        f"\"ward_a:M\" cannot be imported (ModuleNotFoundError: No module named '{missing}', because no statement "
        f"imports {folder / file} (in <module>, line 2 of ward_a)); import {missing} by a statement in ward_a, or add "
        f"{folder} to PYTHONPATH"
    )


def test_nor_is_one_named_that_a_statement_imports_in_vain(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "other.py"
    outside.write_text("")
    (folder / "ward_linked.py").symlink_to(outside)
    (folder / "ward_a.py").write_text("import ward_linked\n")
    accept(["ward_a"])
    with pytest.raises(
        ModelError, match=r"No module named 'ward_linked' \(in <module>, line 1 of ward_a\)\); install "
    ):
        import_callable("ward_a:M", refused=ModelError)


@pytest.fixture
def installed(tmp_path_factory, monkeypatch):
    """A folder of installed packages that has modules with names of own ones."""
    site = tmp_path_factory.mktemp("python") / "site-packages"
    for name in ("ward_a.py", "ward_b/__init__.py", "ward_b/losses.py", "ward_c.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("WHO = 'installed'\ndef later(): return 0\n")
    monkeypatch.syspath_prepend(site)
    return site


@pytest.mark.parametrize(("named", "file"), [("ward_a", "ward_a.py"), ("ward_b.losses", "ward_b/losses.py")])
def test_an_own_module_with_the_name_of_an_installed_one_is_refused_with_both_files(folder, installed, named, file):
    with pytest.raises(InputError) as caught:
        accept([named])
    assert str(caught.value) == (
        f"{folder / file} has the name of the installed {installed / file}, which Python would import; rename it, or "
        "the folder that it is in"
    )


@pytest.mark.usefixtures("folder")
def test_so_is_an_own_module_that_another_imports_by_a_statement(installed):
    for name in ("ward_a.py", "ward_b/__init__.py", "ward_b/losses.py"):
        (installed / name).unlink()
    (installed / "ward_b").rmdir()
    with pytest.raises(InputError, match=r"ward_c\.py has the name of the installed "):
        accept(["ward_a"])


def test_a_copy_of_the_installed_module_and_a_folder_of_data_are_no_clash(folder, installed):
    for name in ("ward_a.py", "ward_c.py"):
        (folder / name).write_bytes((installed / name).read_bytes())
    (folder / "ward_b" / "losses.py").unlink()
    accept(["ward_a", "ward_b.losses"])
    assert importlib.import_module("ward_a").WHO == "installed"
    assert importlib.import_module("ward_b.losses").WHO == "installed"


@pytest.mark.usefixtures("folder")
def test_modules_of_a_run_come_before_those_on_the_path_and_others_after(tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("other")
    (other / "ward_a.py").write_text("WHO = 'on the path'\n")
    monkeypatch.syspath_prepend(other)
    accept(["ward_a"])
    assert importlib.import_module("ward_a").WHO == "on the path"
    del sys.modules["ward_a"]
    (other / "kept").mkdir()
    (other / "kept" / "ward_a.py").write_text("WHO = 'of the run'\n")
    search(other / "kept", preferred=True)
    accept(["ward_a"])
    assert importlib.import_module("ward_a").WHO == "of the run"
