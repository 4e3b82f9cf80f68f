"""What an installation brings: a package that works by itself, and on small boards a torch without CUDA."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import p2pfl

ROOT = Path(__file__).parent.parent
CORE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
PINS = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
DEADLINE = 600.0
"""Seconds in which pip must have found all packages."""

LINUX = {"sys_platform": "linux", "platform_system": "Linux"}
BOARD = LINUX | {"platform_machine": "aarch64"}
SERVER = LINUX | {"platform_machine": "x86_64"}
MAC = {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"}

OLDEST, NEWEST = 17, 36
"""Of glibc 2, whose wheels a board with Debian 12 takes."""

ON_A_BOARD = """
import platform, sys
platform.machine = lambda: "aarch64"  # markers are evaluated for the machine that pip runs on, whatever --platform says
from pip._internal.cli.main import main
sys.exit(main())
"""


def torch(requirements, place):
    """The one requirement on torch that applies in a place."""
    [found] = [
        requirement
        for requirement in map(Requirement, requirements)
        if requirement.name == "torch" and (requirement.marker is None or requirement.marker.evaluate(place))
    ]
    return found.specifier


@pytest.mark.parametrize("place", [BOARD, SERVER, MAC], ids=["board", "server", "Mac"])
def test_the_torch_that_is_pinned_is_one_that_is_asked_for(place):
    [pin] = torch(PINS, place)
    assert pin.operator == "=="
    assert pin.version in torch(CORE, place)


def test_only_a_board_keeps_to_the_last_torch_whose_wheels_bring_no_cuda():
    assert "2.10.0" in torch(CORE, BOARD)
    assert "2.11.0" not in torch(CORE, BOARD)
    assert "2.11.0" in torch(CORE, SERVER)
    assert "2.11.0" in torch(CORE, MAC)


def pip(*arguments, program=("-m", "pip")):
    command = [sys.executable, *program, *map(str, arguments), "--no-input", "--disable-pip-version-check"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE)


@pytest.fixture
def index():
    """Skip where no package index answers."""
    if sys.platform != "linux" or importlib.util.find_spec("pip") is None:
        pytest.skip("pip on Linux resolves for a board")
    asked = pip("index", "versions", "tomli-w", "--retries", "0", "--timeout", "15")
    if asked.returncode:
        pytest.skip("pip reaches no package index")


@pytest.mark.nightly
@pytest.mark.usefixtures("index")
def test_an_installation_on_a_board_brings_no_cuda(tmp_path):
    report = tmp_path / "report.json"
    wheels = [f"--platform=manylinux_2_{minor}_aarch64" for minor in range(OLDEST, NEWEST + 1)]
    found = pip(
        *("install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--quiet"),
        *(*wheels, "--platform=manylinux2014_aarch64", "--target", tmp_path / "nowhere", "--report", report, *CORE),
        program=("-c", ON_A_BOARD),
    )
    assert found.returncode == 0, found.stderr
    brought = {
        each["metadata"]["name"].lower(): each["download_info"]["url"]
        for each in json.loads(report.read_text("utf-8"))["install"]
    }
    assert brought["torch"].endswith("_aarch64.whl")
    assert not [name for name in brought if any(word in name for word in ("nvidia", "cuda", "triton"))]


def test_the_metadata_names_every_supported_version_and_the_citation_the_present_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"3.11", "3.12", "3.13", "3.14"} <= {line.rpartition(" ")[2] for line in project["classifiers"]}
    assert project["authors"]
    assert project["keywords"]
    assert f"\nversion: {p2pfl.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


# ---------------------------------------------------------------------- the wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    built = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=DEADLINE)
    assert built.returncode == 0, built.stderr
    [path] = folder.glob("*.whl")
    return path


@pytest.mark.slow
def test_an_index_accepts_the_metadata_of_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [path] = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Metadata.from_email(archive.read(path), validate=True)
    assert (metadata.name, str(metadata.version)) == ("p2pfl-mqtt", p2pfl.__version__)
    assert metadata.description == (ROOT / "README.md").read_text("utf-8")
    assert metadata.description_content_type == "text/markdown"
    assert {name.partition("/")[0] for name in names} == {"p2pfl", path.partition("/")[0]}
    assert "p2pfl/py.typed" in names


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Install the wheel into an environment that sees the packages it needs, and no p2pfl but its own."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    install = pip("--python", python, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    assert install.returncode == 0, install.stderr
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    needed = [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    (packages / "needed.pth").write_text("\n".join(needed))
    (folder / "empty").mkdir()

    def call(program, *arguments):
        return subprocess.run(
            [python.with_name(program), *arguments],
            cwd=folder / "empty",
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )

    imported = call("python", "-c", "import p2pfl; print(p2pfl.__version__, p2pfl.__file__)")
    assert imported.stdout == f"{p2pfl.__version__} {packages / 'p2pfl' / '__init__.py'}\n", imported.stderr
    return call


@pytest.mark.slow
def test_the_installed_wheel_simulates_from_an_empty_folder(installed):
    helped = installed("p2pfl", "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "simulate" in helped.stdout
    simulated = installed("p2pfl", "simulate", "digits", "--peers", "6", "--json")
    assert simulated.returncode == 0, simulated.stderr
    assert len(json.loads(simulated.stdout)["per_peer"]) == 6


# ---------------------------------------------------------------------- scripts/environment


@pytest.fixture
def environment(tmp_path):
    """Call scripts/environment with a Python that records its calls of pip in place of making them."""
    python, log = tmp_path / "python", tmp_path / "pip"
    python.write_text(
        "#!/bin/sh\n"
        'if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; fi\n'
        f'if [ "$1 $2" = "-m pip" ]; then shift 2; echo "$*" >>"{log}"; exit; fi\n'
        f'if [ "$1" = -c ] && [ -n "$LIE" ]; then shift; exec "{sys.executable}" -c "$LIE" "$@"; fi\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)

    def call(*arguments, lie="", **variables):
        log.unlink(missing_ok=True)
        given = {"PATH": os.environ["PATH"], "PYTHON": str(python), "LIE": lie, **variables}
        command = [ROOT / "scripts" / "environment", *arguments]
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        return done, log.read_text().splitlines() if log.exists() else []

    return call


PIP = "install --quiet --disable-pip-version-check --no-compile"
PYTHON_OF = "import sys; sys.version_info = ({}); sys.argv.pop(0); exec(sys.argv[0])"
LOCKS = "p2pfl/plugins/operate/bundles/locks"


@pytest.mark.slow
def test_an_index_of_torch_serves_no_other_package(environment, tmp_path):
    done, calls = environment(tmp_path / "new", "local", TORCH_INDEX="https://index.example/cpu")
    assert done.returncode == 0, done.stderr
    assert calls == [
        f"{PIP} --constraint constraints.txt --no-deps --index-url https://index.example/cpu torch",
        f"{PIP} --constraint constraints.txt --editable .[local]",
    ]
    assert environment(tmp_path / "new", "local")[1] == []  # installed already
    assert environment(tmp_path / "other")[1] == [
        f"{PIP} --constraint constraints.txt torch",
        f"{PIP} --constraint constraints.txt --editable .[]",
    ]


@pytest.mark.slow
def test_a_locked_environment_has_hashes_for_everything_that_it_downloads(environment, tmp_path):
    machine = os.uname().machine
    if not (ROOT / LOCKS / f"{machine}.txt").exists():
        pytest.skip(f"there are no locks for {machine}")
    done, calls = environment("--locked", tmp_path / "new", "local", "zstd", lie=PYTHON_OF.format("3, 11, 2"))
    assert done.returncode == 0, done.stderr
    files = [f"{LOCKS}/{name}.txt" for name in (machine, f"{machine}-local", f"{machine}-zstd")]
    hashed = f"{PIP} --no-deps --require-hashes"
    assert calls == [
        f"{hashed} --requirement {LOCKS}/{machine}-torch.txt",
        f"{hashed} --requirement {LOCKS}/build.txt {' '.join(f'--requirement={file}' for file in files)}",
        f"{PIP} --no-deps --no-build-isolation --editable .",
    ]
    assert environment(tmp_path / "new", "local", "zstd")[1] == []
    done, calls = environment("--locked", tmp_path / "third", "test")
    assert (done.returncode, calls) == (2, [])
    assert f"there is no lock {LOCKS}/{machine}-test.txt; leave out that extra, or --locked" in done.stderr


def test_a_python_that_does_not_fit_is_refused_before_pip(environment, tmp_path):
    done, calls = environment(tmp_path / "new", lie=PYTHON_OF.format("3, 9, 2"))
    assert (done.returncode, calls) == (2, [])
    assert "expected Python 3.11 or later, and" in done.stderr
    if (ROOT / LOCKS / f"{os.uname().machine}.txt").exists():
        done, calls = environment("--locked", tmp_path / "new", lie=PYTHON_OF.format("3, 99, 0"))
        assert (done.returncode, calls) == (2, [])
        assert "which the locks for" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_missing_folder_and_a_missing_python_are_named(environment, tmp_path):
    for arguments in ((), ("--locked",)):
        done, calls = environment(*arguments)
        assert (done.returncode, calls) == (2, [])
        assert done.stderr == "scripts/environment: name the folder of the environment, such as .venv\n"
    done, calls = environment(tmp_path / "new", PYTHON="python3.99")
    assert (done.returncode, calls) == (2, [])
    assert done.stderr.startswith("scripts/environment: there is no python3.99: install Python 3.11 or later")


def test_an_environment_that_was_interrupted_while_it_was_made_is_made_again(environment, tmp_path):
    halfway = tmp_path / "my files" / "bin" / "python"
    halfway.parent.mkdir(parents=True)
    halfway.write_text("#!/bin/sh\nexit 1\n")
    halfway.chmod(0o755)
    done, calls = environment(tmp_path / "my files", "local")
    assert (done.returncode, len(calls)) == (0, 2), done.stderr


@pytest.mark.plugin("operate")
def test_no_script_or_page_names_a_second_index_for_all_packages():
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "scripts").iterdir(),
        *(ROOT / LOCKS).iterdir(),
    ]
    pages += (ROOT / "p2pfl" / "plugins" / "operate").rglob("install.sh")
    warned = ROOT / "docs" / "install.md"  # says why not
    found = [
        page
        for page in pages
        if page.is_file() and re.search("extra.index.url", page.read_text("utf-8"), re.IGNORECASE)
    ]
    assert set(found) - {ROOT / "CHANGELOG.md"} == {warned}
