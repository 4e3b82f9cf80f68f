"""Commands show the code that an experiment file names, and run it only with consent."""

import hashlib
import re
import subprocess
import sys
import typing

import pytest

import p2pfl as package
from commands import DEADLINE
from p2pfl.cli.command_catalogue import find, names
from p2pfl.cli.options import TrustOptions

EVIL = """from pathlib import Path

from torch import nn

Path({marker!r}).touch()


class M(nn.Linear):
    def __init__(self):
        super().__init__(13, 3)
"""
NAMES = (
    "model.name=evil:M",
    "learning.loss=evil:M",
    "learning.algorithm=evil:M",
    "learning.metrics.own=evil:M",
    "learning.augment=evil:M",
    "learning.schedule=evil:M",
    "learning.learner=evil:M",
    "data.name=evil:M",
    "data.split=evil:M",
    "privacy.mode=evil:M",
    "compression.name=evil:M",
    "robustness.rule=evil:M",
    "attack.name=evil:M",
    "topology.kind=evil:M",
    "gossip.weights=evil:M",
    "model.options.loss=evil:M",
)


LINES = {
    "run": (),
    "simulate": (),
    "peer": ("--name", "peer0", "--broker", "mqtt://127.0.0.1:1"),
    "explain": (),
    "privacy": (),
    "approve": ("--name", "peer0", "--key", "officer.pem", "--purpose", "care"),
    "describe": (),
    "survival": ("--horizon", "9"),
    "components": (),
    "audit": (),
    "align": (),
    "value": (),
    "sweep": ("--seeds", "1"),
    "watch": ("--name", "peer0", "--broker", "mqtt://127.0.0.1:1", "--once"),
    "doctor": ("--as", "peer0"),
    "deploy": ("--out", "fleet", "--broker", "mqtts://127.0.0.1:8883", "--wheel", "p2pfl.whl"),
    "broker": ("--config", "broker"),
}
"""Arguments of each command that takes an experiment file."""

LINES = {name: line for name, line in LINES.items() if name in names()}  # without those of plug-ins that are not here


@pytest.fixture
def evil(place, monkeypatch):
    """A module that can be imported, and the file that importing it makes."""
    monkeypatch.syspath_prepend(place)
    marker = place / "imported"
    (place / "evil.py").write_text(EVIL.format(marker=str(marker)))
    yield marker
    sys.modules.pop("evil", None)


def name_code(place, change):
    """Write an experiment file that names code, as somebody else does."""
    section, key = change.partition("=")[0].rsplit(".", 1)
    line = f'{key} = "{change.partition("=")[2]}"'
    text = (place / "small.toml").read_text()
    header = f"[{section}]\n"
    if header in text:
        own = "\n".join(each for each in text.partition(header)[2].splitlines() if not each.startswith(f"{key} ="))
        text = f"{text.partition(header)[0]}{header}{line}\n{own}\n"
    else:
        text += f"\n{header}{line}\n"
    (place / "evil.toml").write_text(text)


def test_every_command_that_takes_an_experiment_is_tried():
    options = {name: find(name).options for name in names()}
    taking = {name for name, kind in options.items() if issubclass(kind, TrustOptions)}
    named = {name for name, kind in options.items() if "experiment" in typing.get_type_hints(kind)}
    assert {*LINES} == taking - {
        "next",
        "repeat",
        "forget",
        "repair",
        "verify",
    }  # which take directories, and have tests of their own
    assert named <= taking


def test_the_next_run_does_not_run_the_code_of_a_former_one_without_consent(p2pfl, place, evil):
    assert p2pfl("simulate", "small.toml", "--runs", "runs", "--no-baselines").status == 0
    (former,) = (place / "runs").iterdir()
    written = former / "experiment.toml"
    text, changed = re.subn(r'(?m)^algorithm = ".*"$', 'algorithm = "evil:M"', written.read_text())
    assert changed == 1
    written.write_text(text)
    said = p2pfl("next", str(former))
    assert said.status == 2
    assert "next would run it with your rights: evil" in said.err
    assert "read it, and agree with --trust-code" in said.err
    assert not evil.exists()


@pytest.mark.sampled(fast=21)
@pytest.mark.parametrize("change", ["model.name=evil:M", "topology.kind=evil:M", "learning.algorithm=evil:M"])
@pytest.mark.parametrize("command", LINES)
def test_no_command_runs_the_code_of_a_file_without_consent(p2pfl, place, evil, command, change):
    name_code(place, change)
    said = p2pfl(command, "evil.toml", *LINES[command])
    assert said.status == (1 if command == "doctor" else 2)
    assert "evil:M (SHA-256 " in said.err + said.out
    assert "read it, and agree with --trust-code" in said.err + said.out
    assert not evil.exists()
    assert "evil" not in sys.modules


def test_a_change_of_what_a_file_names_does_not_run_it(p2pfl, place, evil):
    name_code(place, "learning.algorithm=evil:M")
    assert p2pfl("explain", "evil.toml", "--set", "learning.algorithm=fedavg").status == 2
    assert not evil.exists()


@pytest.mark.plugin("study")
def test_a_study_may_name_code_in_its_settings_with_consent_alone(p2pfl, place, evil):
    (place / "study.toml").write_text('experiment = "small.toml"\nseeds = 1\n[over]\n"model.name" = ["evil:M"]\n')
    said = p2pfl("sweep", "study.toml")
    assert said.status == 2
    assert "agree with --trust-code" in said.err
    assert not evil.exists()


@pytest.mark.parametrize(
    "call",
    [
        package.read,
        package.simulate,
        pytest.param(lambda file: package.glm("low ~ age", file), marks=pytest.mark.plugin("exact")),
        pytest.param(lambda file: package.describe(str(file)), marks=pytest.mark.plugin("exact")),
    ],
    ids=["read", "simulate", "glm", "describe"],
)
def test_python_runs_the_code_of_a_file_with_consent_alone(place, evil, call):
    name_code(place, "model.name=evil:M")
    with pytest.raises(package.errors.InputError, match=r"in Python with p2pfl\.read\(\.\.\., trust_code=True\)"):
        call(place / "evil.toml")
    assert not evil.exists()


def test_python_runs_the_code_of_a_trusted_file_and_of_a_dictionary(place, evil):
    name_code(place, "model.name=evil:M")
    experiment = package.read(place / "evil.toml", trust_code=True)
    package.plan(experiment)
    assert evil.exists()
    assert package.read({"model": {"name": "evil:M"}}).model.name == "evil:M"


@pytest.mark.parametrize("change", NAMES)
@pytest.mark.parametrize("command", ["explain", "privacy", pytest.param("describe", marks=pytest.mark.plugin("exact"))])
def test_a_command_of_review_runs_no_code_whatever_key_names_it(p2pfl, place, evil, command, change):
    said = p2pfl(command, "small.toml", "--set", change)
    assert said.status == 2
    content = (place / "evil.py").read_bytes()
    digest = hashlib.sha256(f"evil.py\0{len(content)}\0".encode() + content).hexdigest()
    assert f"evil:M (SHA-256 {digest}); read it, and agree with --trust-code" in said.err
    assert not evil.exists()
    assert "evil" not in sys.modules


def test_installed_code_is_not_run_either(p2pfl):
    said = p2pfl("explain", "small.toml", "--set", "data.name=subprocess:run")
    assert said.status == 2
    assert "subprocess:run (installed); read it, and agree with --trust-code" in said.err


def test_code_runs_with_consent_and_is_named(p2pfl, evil):
    said = p2pfl("explain", "small.toml", "--set", "model.name=evil:M", "--trust-code")
    assert said.status == 0, said.err
    assert "runs evil:M (SHA-256 " in said.err
    assert "as --trust-code agrees" in said.err
    assert evil.exists()


def test_an_experiment_without_code_needs_no_consent(p2pfl):
    said = p2pfl("explain", "small.toml")
    assert said.status == 0, said.err
    assert "trust-code" not in said.err


@pytest.mark.parametrize(("digest", "runs"), [("listed", True), ("another", False)])
def test_code_that_the_policy_of_the_site_lists_by_its_digest_runs(p2pfl, place, evil, digest, runs):
    content = (place / "evil.py").read_bytes()
    listed = hashlib.sha256(f"evil.py\0{len(content)}\0".encode() + content).hexdigest()
    (place / "policy.toml").write_text(f'[code]\n"evil:M" = "{listed if digest == "listed" else "0" * 64}"\n')
    (place / "peer0.csv").write_text("age,low\n31,0\n32,1\n")
    columns = 'data.options.columns={age = "number", low = [0, 1]}'
    changes = ("data.name=table", f"data.options.path={place}/{{peer}}.csv", "data.options.target=low", columns)
    options = [part for change in (*changes, "model.name=evil:M") for part in ("--set", change)]
    said = p2pfl("privacy", "small.toml", "--name", "peer0", "--no-baselines", *options)
    assert evil.exists() is runs
    assert ("agree with --trust-code" in said.err) is not runs


LEARNING = {
    "explain": (),
    "run": ("--no-baselines",),
    "simulate": ("--no-baselines", "--workers", "2"),
    "sweep": ("--seeds", "1", "--jobs", "1"),
}
LEARNING = {name: line for name, line in LEARNING.items() if name in names()}
"""Commands that begin one process or several, and their options."""

INSTALLED = "import sys; sys.path.pop(0); from p2pfl.cli import main; sys.exit(main())"
"""The installed command, whose path begins without the working directory, although Python has no option -P."""


@pytest.mark.slow
@pytest.mark.parametrize("command", LEARNING)
def test_modules_beside_a_file_that_names_no_code_are_not_imported(place, command):
    for module in {*sys.stdlib_module_names, "networkx", "scipy", "torch"}:
        (place / f"{module}.py").write_text(f"open('imported-{module}', 'w').close()\n")
    line = [sys.executable, "-c", INSTALLED, command, "small.toml", "--set", "rounds=1", *LEARNING[command]]
    done = subprocess.run(line, cwd=place, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    assert not [*place.glob("imported-*")]


BACKENDS = ("torch.backends", "networkx.backends", "networkx.backend_info", "p2pfl.commands", "p2pfl.models")
"""Groups of entry points that libraries and p2pfl read, some of them when they are imported."""

OPTIONAL = ("opt_einsum", "triton", "torch_xla", "bottleneck", "cupy", "pandas", "sklearn")
"""Modules that libraries use where they are installed."""

MINE = """open('imported-mine', 'w').close()
import evil


class M(evil.M):
    def __init__(self):
        import late
        super().__init__()
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", LEARNING)
def test_of_a_folder_nothing_is_imported_but_the_code_to_which_the_user_agrees(place, command):
    (place / "evil-1.dist-info").mkdir()
    (place / "evil-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    points = [f"[{group}]\nevil = backend{number}:start\n" for number, group in enumerate(BACKENDS)]
    (place / "evil-1.dist-info" / "entry_points.txt").write_text("".join(points))
    for module in (*(f"backend{number}" for number in range(len(BACKENDS))), *OPTIONAL, "late"):
        (place / f"{module}.py").write_text(f"open('imported-{module}', 'w').close()\ndef start(): return {{}}\n")
    (place / "mine.py").write_text(MINE)
    (place / "evil.py").write_text(EVIL.format(marker="imported-sibling"))
    name_code(place, "model.name=mine:M")
    changes = ("--trust-code", "--set", "rounds=1", *LEARNING[command])
    line = [sys.executable, "-c", INSTALLED, command, "evil.toml", *changes]
    done = subprocess.run(line, cwd=place, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in place.glob("imported-*")) == [
        "imported-late",
        "imported-mine",
        "imported-sibling",
    ]


COMPUTED = """import importlib


M = importlib.import_module("computed" + "_late").M
"""


def test_a_module_with_a_computed_name_runs_once_the_advice_is_followed(p2pfl, place, monkeypatch):
    (place / "computed_late.py").write_text(EVIL.format(marker="imported"))
    (place / "computing.py").write_text(COMPUTED)
    call = ("explain", "small.toml", "--set", "model.name=computing:M", "--trust-code")
    said = p2pfl(*call)
    assert said.status == 2
    assert f"No module named 'computed_late', because no statement imports {place / 'computed_late.py'}" in said.err
    with monkeypatch.context() as patched:
        patched.syspath_prepend(place)  # as PYTHONPATH does
        assert p2pfl(*call).status == 0
    monkeypatch.delitem(sys.modules, "computed_late")
    (place / "stating.py").write_text(f"import computed_late\n{COMPUTED}")
    said = p2pfl("explain", "small.toml", "--set", "model.name=stating:M", "--trust-code")
    assert said.status == 0, said.err


@pytest.mark.parametrize("name", ["timm:resnet18", "agreed:M"])
def test_no_name_of_code_puts_the_working_directory_on_the_path(p2pfl, place, name):
    (place / "agreed.py").write_text(EVIL.format(marker="imported"))
    name_code(place, f"model.name={name}")
    p2pfl("explain", "evil.toml", "--trust-code")
    assert (place / "imported").exists() is (name == "agreed:M")
    assert str(place) not in sys.path
