"""Bundles of ``p2pfl deploy``: their files, without secrets."""

import hashlib
import re
import stat
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fleets import NOW, PEERS, PLANT, bundles, contents
from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.plugins.operate.bundles.bundle_files import check_name
from p2pfl.plugins.operate.bundles.fleet import Fleet
from p2pfl.plugins.operate.bundles.packages import (
    LOCKS,
    MACHINES,
    extras,
    locked_requirements,
    torch_requirement,
    wheel_requirement,
)
from vertical_experiments import LINEAR, changed

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_bundles_hold_no_secret_and_the_same_input_gives_the_same_bytes(place):
    fleet = bundles(place)
    first = {peer: contents(fleet.out / peer) for peer in PEERS}
    assert {str(path) for path in first["peer0"]} == {
        "plant.toml",
        "broker.pem",
        "requirements.txt",
        "torch.txt",
        "p2pfl_mqtt-0.3.0-py3-none-any.whl",
        "Containerfile",
        "install.sh",
        "p2pfl-peer.service",
        "README.txt",
        "SHA256SUMS",
    }
    for files in first.values():
        assert not [path for path, data in files.items() if b"PRIVATE KEY" in data or b"password" in data]
        assert not [path for path, data in files.items() if re.search(rb"@(?!PREFIX@|STATE@|USER@)[A-Z]+@", data)]
    assert stat.S_IMODE((fleet.out / "authority" / "ca.key").stat().st_mode) == 0o600
    assert not (fleet.out / "broker" / "ca.key").exists()
    bundles(place)
    assert {peer: contents(fleet.out / peer) for peer in PEERS} == first


def test_the_experiment_of_a_bundle_names_the_broker_and_the_files_of_the_device(place):
    fleet = bundles(place)
    table = tomllib.loads((fleet.out / "peer1" / "plant.toml").read_text())
    assert table["transport"] == {
        "gather": 120,
        "broker": "mqtts://127.0.0.1:8883",
        "ca": "broker.pem",
        "certificate": "certificate.pem",
        "key": "keys/peer1.key",
    }
    assert table["trust"] == {"keys": "keys", "roster": "roster.toml"}
    assert read(fleet.out / "peer1" / "plant.toml").rounds == 3


def test_a_bundle_has_the_users_own_modules_and_graphs_and_no_data(place):
    (place / "own.py").write_text("def load(peer):\n    raise NotImplementedError\n")
    (place / "own.csv").write_text("secret\n1\n")
    (place / "graph.edges").write_text("ada bob")
    (place / "plant.toml").write_text(
        'name = "plant"\n[topology]\nkind = "graph.edges"\n[data]\nname = "own:load"\n'
        'options = { path = "own.csv" }\n[model]\nname = "linear"\n'
    )
    fleet = bundles(place)
    there = {path.name for path in (fleet.out / "ada").iterdir()}
    assert {"own.py", "graph.edges"} <= there
    assert "own.csv" not in there
    script = (fleet.out / "ada" / "install.sh").read_text()
    assert "for file in plant.toml broker.pem graph.edges own.py; do" in script


GRAPH = 'name = "plant"\n[topology]\nkind = "{}"\n[data]\nname = "wine"\n[model]\nname = "linear"\n'


def graph(place, name):
    """An experiment whose graph has a name."""
    (place / name).parent.mkdir(exist_ok=True)
    (place / name).write_text("ada bob")
    (place / "plant.toml").write_text(GRAPH.format(name))


@pytest.mark.parametrize(
    "name", ["$(touch PWNED).edges", "a b.edges", "-rf.edges", "sub/-n.edges", "ö.edges", "a;b.edges"]
)
def test_a_file_whose_name_a_shell_could_misread_is_refused(place, name):
    graph(place, name)
    with pytest.raises(InputError, match="rename it with"):
        bundles(place)
    assert not (place / "fleet").exists()


@pytest.mark.parametrize(
    "name",
    [
        "broker.pem",
        "requirements.txt",
        "install.sh",
        "SHA256SUMS",
        "roster.toml",
        "certificate.pem",
        "request.toml",
        "p2pfl_mqtt-0.3.0-py3-none-any.whl",
        "keys/peer0.pem",
        "broker.pem/file",
    ],
)
def test_a_file_that_would_replace_one_of_the_bundle_is_refused(place, name):
    wheel = place / "wheels" / "p2pfl_mqtt-0.3.0-py3-none-any.whl"
    wheel.parent.mkdir()
    (place / wheel.name).rename(wheel)
    (place / name).parent.mkdir(exist_ok=True)
    (place / name).write_text("theirs")
    (place / "plant.toml").write_text(PLANT.replace("[model]", f'[model]\npretrained = "{name}"'))
    fleet = Fleet.open(str(place / "plant.toml"), out=place / "fleet", trust_code=True)
    with pytest.raises(InputError, match="has the name of another file of a bundle; rename it"):
        fleet.write(brokers=["mqtts://127.0.0.1:8883"], machines=[], wheel=wheel, now=NOW)
    assert not fleet.out.exists()


def test_a_device_trusts_the_code_that_its_operator_has_trusted(place):
    unit, flag = place / "fleet" / "peer0" / "p2pfl-peer.service", "--resume --trust-code\n"
    bundles(place)
    assert "--resume\n" in unit.read_text()
    (place / "own.py").write_text("")
    (place / "plant.toml").write_text(PLANT.replace('"wine"', '"own:data"'))
    bundles(place)
    assert flag in unit.read_text()


def test_a_link_beside_the_experiment_is_not_followed(place):
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "graph.edges").write_text("ada bob")
    (place / "graph.edges").symlink_to("elsewhere/graph.edges")
    (place / "folder").symlink_to("elsewhere")
    for name in ("graph.edges", "folder/graph.edges"):
        (place / "plant.toml").write_text(GRAPH.format(name))
        with pytest.raises(InputError, match="is a symbolic link; put the file itself"):
            bundles(place)


@pytest.mark.parametrize("edge", ["-ada bob", "ada broker", "ada authority"])
def test_a_peer_whose_name_means_something_else_is_refused(place, edge):
    (place / "graph.edges").write_text(edge)
    (place / "plant.toml").write_text(GRAPH.format("graph.edges"))
    with pytest.raises(InputError, match="rename it"):
        bundles(place)


@pytest.mark.parametrize("name", ["-plant", "roster", "request"])
def test_an_experiment_whose_name_means_something_else_is_refused(place, name):
    (place / "plant.toml").write_text(PLANT.replace('"plant"', f'"{name}"'))
    with pytest.raises(InputError, match="rename it"):
        bundles(place)


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "/etc/passwd", "a//b", "a\nb", "a\n"])
def test_names_that_leave_the_folder_are_refused(name):
    with pytest.raises(InputError, match="rename it with"):
        check_name(name, what="the file")


def test_the_hashes_of_a_bundle_are_right(place):
    folder = bundles(place).out / "peer0"
    lines = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert lines.keys() == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    assert all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == found for name, found in lines.items())


@pytest.mark.usefixtures("place")
def test_what_cannot_be_deployed_is_refused(p2pfl_fails):
    wheel = "p2pfl_mqtt-0.3.0-py3-none-any.whl"
    plain = ("deploy", "plant.toml", "--out", "fleet")
    assert "--broker and --wheel are missing" in p2pfl_fails(*plain)
    assert "is not an address for mosquitto with TLS" in p2pfl_fails(*plain, "--broker", "mqtt://hub", "--wheel", wheel)
    assert "is not a wheel of p2pfl" in p2pfl_fails(*plain, "--broker", "mqtts://hub", "--wheel", "plant.toml")
    missing = "p2pfl_mqtt-9-py3-none-any.whl"
    assert "cannot be read" in p2pfl_fails(*plain, "--broker", "mqtts://hub", "--wheel", missing)


@pytest.fixture
def p2pfl_fails(capsys):
    """The sentence with which a command ends with status 2."""

    def call(*arguments):
        assert main([str(argument) for argument in arguments]) == 2
        return capsys.readouterr().err

    return call


def test_no_lock_of_small_boards_brings_cuda_and_all_that_p2pfl_needs_is_in_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {re.match(r"[A-Za-z0-9_-]+", each)[0] for each in project["dependencies"]}
    for machine in MACHINES:
        text = (LOCKS / f"{machine}-torch.txt").read_text() + (LOCKS / f"{machine}.txt").read_text()
        pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
        assert named <= pins.keys()
        assert not [name for name in pins if name.startswith(("nvidia", "cuda", "triton"))]
    network = read({"model": {"name": "cnn"}})
    assert re.search(r"^torch==2\.(6|7|8|9|10)\.", torch_requirement(network, machine="aarch64"), re.MULTILINE)
    assert re.search(r"^torch==\S+\+cpu", torch_requirement(network, machine="x86_64"), re.MULTILINE)


@pytest.mark.parametrize(
    ("table", "needed"),
    [
        ({}, False),
        ({"model": {"name": "mlp"}, "privacy": {"mode": "pairwise"}, "learning": {"algorithm": "scaffold"}}, False),
        ({"model": {"name": "glm"}, "privacy": {"mode": "pairwise"}}, False),
        ({"model": {"name": "cnn"}}, True),
        ({"learning": {"optimizer": "adam"}}, True),
        ({"learning": {"options": {"momentum": 0.9}}}, True),
        ({"learning": {"schedule": "StepLR"}}, True),
        ({"learning": {"loss": "binary_cross_entropy"}}, True),
        ({"compression": {"name": "bfloat16"}}, False),
        (LINEAR, False),
        (changed(model={"name": "kernel", "options": {"consent": "distances"}}), False),
        (changed(model={"name": "split_network", "options": {"labels": "shown"}}), True),
        ({"data": {"name": "own:load"}}, True),  # which may import it
    ],
)
def test_a_bundle_has_torch_only_where_the_experiment_may_need_it(table, needed):
    experiment = read({"model": {"name": "linear"}, **table}, trust_code=True)
    pins = {}
    for machine in MACHINES:
        text = torch_requirement(experiment, machine=machine) + locked_requirements(experiment, machine=machine)
        pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
        assert {name in pins for name in ("torch", "sympy", "fsspec", "filelock")} == {needed}
        assert {"numpy", "scipy", "networkx", "jinja2", "mpmath", "typing-extensions"} <= {*pins}
        assert text.count("==") == len(pins)


def test_every_locked_package_has_hashes_and_only_torch_comes_from_another_index():
    for path in sorted(LOCKS.glob("*.txt")):
        lines = path.read_text().splitlines()
        other = [
            line
            for line in lines
            if not re.match(r"# |[a-z0-9-]+==\S+ \\$|    --hash=sha256:[0-9a-f]{64}( \\)?$", line)
        ]
        assert other in ([], ["--index-url https://download.pytorch.org/whl/cpu"]), path.name
        pins = [line for line in lines if "==" in line]
        assert pins
        assert len([line for line in lines if "--hash" in line]) >= len(pins)
        if other or path.stem.endswith("-torch"):
            assert [pin.partition("==")[0] for pin in pins] == ["torch"]
        else:
            assert "torch" not in [pin.partition("==")[0] for pin in pins]


def test_the_lock_of_what_builds_p2pfl_has_the_build_system():
    [needed] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (LOCKS / "build.txt").read_text(), re.MULTILINE))
    assert Requirement(needed).specifier.contains(pins["hatchling"])
    assert "editables" in pins


def test_a_bundle_requires_the_extras_of_its_experiment_and_the_wheel(place):
    wheel = place / "p2pfl_mqtt-0.3.0-py3-none-any.whl"
    wine = read(place / "plant.toml")
    assert extras(wine) == ["local"]
    assert re.search(r"^scikit-learn==", locked_requirements(wine, machine="aarch64"), re.MULTILINE)
    assert wheel_requirement(wheel) == f"./{wheel.name} --hash=sha256:{hashlib.sha256(b'a wheel').hexdigest()}\n"
    own = read({"data": {"name": "own:load"}, "privacy": {"mode": "independent", "epsilon": 2.0}})
    assert extras(own) == ["privacy"]
