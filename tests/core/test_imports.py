"""One function imports what users name as ``package.module:name``, and says in one sentence why it cannot."""

import gc
import importlib
import re
import sys

import pytest

from p2pfl.core.errors import DataError, InputError, ModelError
from p2pfl.core.imports import describe_error, extra_library, import_callable, pause_collection, translate_errors

CLINIC = """
def patients():
    raise ValueError("too cold")

class Scanner:
    pass

number = 3
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Modules of the user: one that works, and three that cannot be imported."""
    (tmp_path / "clinic.py").write_text(CLINIC)
    (tmp_path / "closed.py").write_text("opening = 9\nraise RuntimeError('closed on Sundays')\n")
    (tmp_path / "lacking.py").write_text("import no_such_library\n")
    (tmp_path / "unfinished.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = "clinic", "closed", "lacking", "unfinished"
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}  # of another test
    yield
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


@pytest.mark.usefixtures("modules")
def test_a_function_and_a_class_are_found_by_module_and_name():
    assert import_callable("clinic:patients").__name__ == "patients"
    assert isinstance(import_callable("clinic:Scanner")(), object)


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("clinic", '"clinic" is not of the form "package.module:name"; name a function or a class that way'),
        ("clinic:", '"clinic:" is not of the form "package.module:name"; name a function or a class that way'),
        (":patients", '":patients" is not of the form "package.module:name"; name a function or a class that way'),
        (".clinic:f", '".clinic:f" is not of the form "package.module:name"; name a function or a class that way'),
        (
            "nowhere:f",
            (
                "\"nowhere:f\" cannot be imported (ModuleNotFoundError: No module named 'nowhere'); correct the name "
                "before the colon, or add the folder of the module to PYTHONPATH"
            ),
        ),
        (
            "clinic.ward:f",
            (
                "\"clinic.ward:f\" cannot be imported (ModuleNotFoundError: No module named 'clinic.ward'; 'clinic' is "
                "not a package); correct the name before the colon, or add the folder of the module to PYTHONPATH"
            ),
        ),
        (
            "closed:f",
            (
                '"closed:f" cannot be imported (RuntimeError: closed on Sundays (in <module>, line 2 of closed)); fix '
                "closed"
            ),
        ),
        (
            "lacking:f",
            (
                "\"lacking:f\" cannot be imported (ModuleNotFoundError: No module named 'no_such_library' (in <module>"
                ", line 1 of lacking)); install no_such_library, or fix lacking"
            ),
        ),
        (
            "clinic:patient",
            (
                "\"clinic:patient\" cannot be imported (AttributeError: module 'clinic' has no attribute 'patient'); "
                "correct the name after the colon"
            ),
        ),
        ("clinic:number", '"clinic:number" is an object of the type int; name a function or a class'),
    ],
)
@pytest.mark.usefixtures("modules")
def test_an_error_says_what_is_wrong_and_what_to_do(reference, sentence):
    with pytest.raises(InputError) as caught:
        import_callable(reference)
    assert str(caught.value) == sentence


@pytest.mark.usefixtures("modules")
def test_a_module_with_wrong_syntax_is_to_be_fixed():
    with pytest.raises(InputError, match=r'"unfinished:f" cannot be imported \(SyntaxError: .*\); fix unfinished$'):
        import_callable("unfinished:f")


@pytest.mark.parametrize("refused", [DataError, ModelError])
@pytest.mark.usefixtures("modules")
def test_an_error_has_the_type_key_and_kind_that_its_caller_knows(refused):
    with pytest.raises(refused, match=r'^model\.name: "clinic:number" is .* int; name a class$'):
        import_callable("clinic:number", key="model.name", sought="a class", refused=refused)


@pytest.mark.usefixtures("modules")
def test_the_line_of_the_users_module_is_named():
    with pytest.raises(ValueError, match=re.escape("too cold")) as caught:
        import_callable("clinic:patients")()
    assert describe_error(caught.value, module="clinic") == "ValueError: too cold (in patients, line 3 of clinic)"


def test_a_library_that_is_not_installed_is_named_with_its_extra():
    with pytest.raises(ModelError) as caught:
        extra_library("no_such_library", extra="vision", key="model.name", refused=ModelError)
    assert str(caught.value) == (
        "model.name needs no_such_library, which is not installed (No module named 'no_such_library'); run "
        '`pip install "p2pfl-mqtt[vision]"`'
    )


@pytest.mark.parametrize("name", ["patients", "Counter"])
def test_a_module_with_the_name_of_another_is_named_with_both_files(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for module in ("statistics", "time", "hypothesis"):
        importlib.import_module(module)  # as others may have before
        own = tmp_path / f"{module}.py"
        own.write_text(CLINIC)
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(ModelError, match=rf"is not {re.escape(str(own))}, because another module has this name"):
            import_callable(f"{module}:{name}", refused=ModelError)


@pytest.mark.parametrize(
    ("folder", "other"),
    [
        ("code", r"code\.py"),  # a module of Python without modules in it
        ("hypothesis", r"site-packages/hypothesis/__init__\.py"),  # an installed package
        ("installed", r"site/installed\.py"),
    ],
)
def test_a_folder_with_the_name_of_another_module_is_named_with_both_files(tmp_path, monkeypatch, folder, other):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "installed.py").write_text("")
    (tmp_path / "here" / folder).mkdir(parents=True)
    own = tmp_path / "here" / folder / "learner.py"
    own.write_text(CLINIC)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "here")])
    expected = rf'^"{folder}\.learner:Counter" is not {re.escape(str(own))}, because another module has this name: '
    with pytest.raises(ModelError, match=rf"{expected}.*{other}; rename the folder {folder}$"):
        import_callable(f"{folder}.learner:Counter", refused=ModelError)
    sys.modules.pop("installed", None)


def test_a_module_that_is_missing_inside_the_users_own_folder_is_no_clash(tmp_path, monkeypatch):
    (tmp_path / "ward").mkdir()
    (tmp_path / "ward" / "learner.py").write_text("import ward.other")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match=r"No module named 'ward.other'"):
        import_callable("ward.learner:Counter", refused=ModelError)


def test_a_module_of_python_is_imported_where_no_own_one_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert import_callable("statistics:mean")([1, 3]) == 2


@pytest.fixture
def _collecting():
    yield
    gc.freeze()  # else each full collection of later tests walks all modules and tests again
    gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("_collecting")
def test_imports_run_without_collections_and_what_they_made_is_exempt_from_later_ones(monkeypatch):
    gc.unfreeze()
    with pause_collection():
        assert not gc.isenabled()
        monkeypatch.setitem(sys.modules, "imported_here", sys)
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("_collecting")
def test_without_a_new_module_nothing_is_exempt():
    gc.unfreeze()
    with pause_collection():
        pass
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("_collecting")
def test_a_collector_that_was_off_stays_off_and_one_that_was_on_is_on_after_an_error():
    with pytest.raises(ImportError), pause_collection():
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    with pause_collection():
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError("no connection to 'https://huggingface.co' to load the files"), "does not exist: .*HF_HUB_OFFLINE=1"),
        (OSError("the disk is full"), "fix it$"),
    ],
)
def test_a_missing_folder_that_was_looked_for_in_a_hub_is_named(error, remedy):
    said = rf"^learning\.learner: own:make raised .*; .*{remedy}"
    with pytest.raises(InputError, match=said), translate_errors("own:make", key="learning.learner"):
        raise error
