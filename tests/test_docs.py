"""The documentation site builds, and its pages say what is true."""

import ast
import importlib.util
import pkgutil
import re
import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path

import msgspec
import numpy as np
import pytest

from p2pfl.cli import command_catalogue, main
from p2pfl.cli.command_catalogue import parse
from p2pfl.experiment import read
from p2pfl.experiment.schema import Experiment
from p2pfl.learning import Own, Part
from p2pfl.testing import check_model

pytestmark = pytest.mark.plugin("exact", "operate", "study")  # the pages are those of the whole product

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TUTORIALS = [
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    ROOT / "docs" / "deploy.md",
    ROOT / "docs" / "sweeps.md",
]
MOST_ENTRIES = 30
"""Of the glossary."""


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("docs_hook", ROOT / "scripts" / "docs_hook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    for package in ("mkdocs", "mkdocstrings", "material"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install -e '.[docs]'")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "reference" / "api" / "topology" / "index.html").is_file()


PYTHONS = pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse lays out its help differently")


@pytest.mark.parametrize("name", ["keys.md", "files.md", pytest.param("commands.md", marks=PYTHONS)])
def test_a_page_that_is_made_from_the_code_is_current(hook, name):
    assert (ROOT / "docs" / "reference" / name).read_text("utf-8") == hook.reference()[name], (
        "run scripts/docs reference"
    )


def slugs(heading):
    """Return the anchors of a heading, as GitHub and as mkdocs write them."""
    text = re.sub(r"[`*]|\]\([^)]*\)", "", heading.strip().lower()).replace("[", "")
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-"), re.sub(r"[- ]+", "-", re.sub(r"[^\w\- ]", "", plain))


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *PAGES], ids=lambda page: page.stem)
def test_every_link_of_a_page_leads_somewhere_in_a_checkout_on_github_and_on_the_site(page):
    prose = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose.sub("", page.read_text("utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", prose.sub("", target.read_text("utf-8")), re.MULTILINE)
            for anchors in zip(*map(slugs, headings), strict=True):
                assert anchor in anchors, link
        elif anchor:  # a test that shows what the page says
            assert re.search(rf"^(async )?def {anchor}\(", target.read_text("utf-8"), re.MULTILINE), link


def test_every_finding_of_the_officer_has_a_test_or_says_what_is_open():
    """That the tests exist is held by the links of all pages."""
    text = (ROOT / "docs" / "notes" / "security-findings.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (B\d+) \| (.*) \|$", text, re.MULTILINE))
    assert [*rows] == [f"B{number}" for number in range(1, 17)]
    for finding, row in rows.items():
        what, _, tests = row.rpartition(" | ")
        assert what
        assert re.search(r"\]\(../../tests/\S+\.py#test_\w+\)|^open: ", tests), finding


DOCUMENTED = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
SOURCES = [path for room in ("p2pfl", "tests", "benchmarks", "scripts") for path in (ROOT / room).rglob("*.py")]
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
TABLE = r"^\| `(\S+)`.*? \| (.*) \|$"


def missing_paths(text, *, named=()):
    """Return the paths and Python files in backticks of a page that the repository lacks."""
    code = " ".join(re.findall(r"`([^`\n]+)`", FENCED.sub("", text)))
    paths = [path for path in re.findall(r"(?<![\w./-])(?:p2pfl|tests)/[\w./-]*\w/?", code) if path[:7] != "p2pfl/v"]
    modules = [path for path in re.findall(r"[\w./-]*\w\.pyi?\b", code) if path not in {*paths, *named}]
    ends = [f"/{path.relative_to(ROOT).as_posix()}" for path in SOURCES]
    return {path for path in paths if not (ROOT / path).exists()} | {
        path for path in modules if not any(end.endswith(f"/{path}") for end in ends)
    }


def is_defined(name):
    """Return whether a dotted name is that of a module, or of something in one."""
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


def test_names_of_what_does_not_exist_are_noticed():
    prose = (
        "`p2pfl/core/rows.py`, `tests/no/such`, `partial.py`, `clinic.py`, `p2pfl/v1/SWARM`\n```\n`tests/none`\n```\n"
    )
    assert missing_paths(prose, named={"clinic.py"}) == {"tests/no/such", "partial.py"}
    assert is_defined("p2pfl.core.rows.Layout")
    assert not is_defined("p2pfl.core.rowing")
    assert not is_defined("p2pfl.core.rows.Lay")


@pytest.mark.parametrize("page", DOCUMENTED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_of_a_page_exists(page):
    examples = {name for each in PAGES for name in re.findall(r"^# (\S+\.py)$", each.read_text("utf-8"), re.MULTILINE)}
    assert not missing_paths(page.read_text("utf-8"), named=examples)


@pytest.mark.parametrize("page", DOCUMENTED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_dotted_name_of_a_page_exists(page):
    """Groups of entry points and names of files are literal texts of the code."""
    text = page.read_text("utf-8")
    names = set(re.findall(r"(?<![\w/.-])p2pfl(?:\.[A-Za-z_]\w*)+", text)) - set(re.findall(r"p2pfl\.token", text))
    literals = {text for path in SOURCES for text in re.findall(r'"(p2pfl\.\w+)"', path.read_text("utf-8"))}
    assert not {name for name in names - literals if not is_defined(name)}


def section(page, heading):
    return page.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_every_part_of_a_room_that_the_internals_name_exists():
    page = ROOT / "docs" / "notes" / "internals.md"
    rooms = re.findall(TABLE, section(page, "Rooms"), re.MULTILINE)
    parts = re.findall(r"^\| (`.*`) \| .* \|$", section(page, "A live peer"), re.MULTILINE)
    protocol = ROOT / "p2pfl" / "network" / "protocol"
    assert rooms
    assert parts
    for folder, text in [(ROOT / "p2pfl" / room, text) for room, text in rooms] + [(protocol, text) for text in parts]:
        for name in re.findall(r"`([a-z_/]+)`", text):
            found = [*folder.rglob(name.rstrip("/"))] or [*folder.rglob(f"{name}.py")]
            assert found, f"{folder.relative_to(ROOT)} has no {name}"


def test_the_model_of_the_note_on_exact_models_keeps_the_contract_and_runs(tmp_path, monkeypatch, capsys):
    [block] = [each for each in blocks(ROOT / "docs" / "notes" / "exact-models.md", "python") if "ExactModel" in each]
    (tmp_path / "clinic_mean.py").write_text(block, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    model = importlib.import_module("clinic_mean").Mean()
    parts = [Part(np.zeros((2, 1), np.float32), np.array([0.1, number])) for number in (0.3, 2.0)]
    owners = {name: Own(part, part) for name, part in zip(("ada", "bob"), parts, strict=True)}
    check_model(model, owners)
    for number in range(4):
        rows = "".join(f"{20 + row},{(row + number) / 8}\n" for row in range(20))
        (tmp_path / f"peer{number}.csv").write_text(f"age,score\n{rows}", "utf-8")
    table = '{path = "{peer}.csv", target = "score", columns = {age = "number", score = "number"}}'
    changes = [
        "topology.kind=ring",
        "topology.peers=4",
        "topology.options={}",
        "data.name=table",
        f"data.options={table}",
    ]
    changes += ["model.name=clinic_mean:Mean", "learning.algorithm=exact", "rounds=1"]
    command = [
        "simulate",
        "digits",
        "--trust-code",
        "--json",
        *(word for change in changes for word in ("--set", change)),
    ]
    assert main(command) == 0, capsys.readouterr().err


def test_the_page_of_keys_describes_every_key(hook):
    page = hook.keys()
    for section in msgspec.structs.fields(Experiment):
        if hook._is_section(section.type):
            table = page.partition(f"## [{section.name}]\n")[2].partition("\n## ")[0]
            for key in msgspec.structs.fields(section.type):
                [row] = re.findall(rf"^\| `{key.name}` \|.*$", table, re.MULTILINE)
                assert all(cell.strip() for cell in row.strip("|").replace("\\|", "").split("|")), row


def test_the_page_of_commands_has_every_command(hook):
    page = hook.commands()
    for command in command_catalogue.names():
        assert f"## p2pfl {command}\n" in page


def test_the_python_api_has_every_public_name(hook):
    import p2pfl  # noqa: PLC0415

    pages = hook.api()
    rooms = {room for room, _ in hook.ROOMS}
    for name in p2pfl.__all__:
        if name not in rooms and not name.startswith("__"):
            assert re.search(rf"^::: .*\.{name}$", pages["reference/api.md"], re.MULTILINE), name


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_command_of_a_tutorial_is_understood(page, tmp_path, monkeypatch):
    study, sweep_command = (pytest.importorskip(f"p2pfl.plugins.study.{name}") for name in ("study", "sweep_command"))
    monkeypatch.chdir(tmp_path)
    for block in [*blocks(page, "python"), *blocks(page, "toml")]:
        if named := re.match(r"# (\S+\.(?:py|toml))\n", block):
            (tmp_path / named[1]).parent.mkdir(exist_ok=True)
            (tmp_path / named[1]).write_text(block, "utf-8")
    commands = [
        line for block in blocks(page, "sh") for line in block.splitlines() if re.match(r"p2pfl |.* p2pfl peer ", line)
    ]
    assert commands
    for command in commands:
        options = parse(shlex.split(command.removeprefix("p2pfl"), comments=True))
        if options.command == "sweep":
            assert study.cells(sweep_command.study_of(options))
        elif str(getattr(options, "experiment", "")).endswith(".csv"):
            assert options.command == "privacy"  # the record of a table
        elif str(getattr(options, "experiment", "")).startswith("runs/"):
            assert options.command == "peer"  # of a run that another command has begun
        elif getattr(options, "experiment", None) and "changes" in options:
            read(options.experiment, changes=options.changes, trust_code=options.trust_code)


@pytest.mark.slow
def test_the_example_of_a_comparison_runs(tmp_path, monkeypatch, capsys):
    """In order, with fewer rounds and seeds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    page = tmp_path / "example.md"
    page.write_text(section(ROOT / "docs" / "sweeps.md", "An example"), "utf-8")
    [study] = blocks(page, "toml")
    (tmp_path / "study.toml").write_text(study.replace("seeds = 5", "seeds = 2").replace("40MB", "8MB"), "utf-8")
    for block in blocks(page, "sh"):
        command = shlex.split(block)[1:]
        if command[0] == "sweep":
            command += ["--set", "rounds=2"]
            command = ["2" if each == "5" else each for each in command]
        assert main(command) == 0, capsys.readouterr().err
    assert "<title>Sweep of digits</title>" in (tmp_path / "sweep.html").read_text("utf-8")
    assert len((tmp_path / "sweep.csv").read_text("utf-8").splitlines()) == 1 + 4


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_the_python_of_a_tutorial_parses(page):
    for block in blocks(page, "python"):
        ast.parse(block)


def test_the_glossary_is_short_and_names_a_source_for_each_word():
    entries = re.findall(r"^\| \*\*.*$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert 0 < len(entries) <= MOST_ENTRIES
    for entry in entries:
        word, meaning, source = (cell.strip() for cell in entry.strip("|").split("|"))
        assert all((word, meaning, source)), entry
