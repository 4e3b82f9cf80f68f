"""Machines of the devices, which the folder of a fleet remembers."""

import json
import re
import tomllib

import pytest

from fleets import NOW, PEERS, PLANT, asked, bundles
from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.plugins.operate.bundles import fleet as fleet_module
from p2pfl.plugins.operate.bundles.fleet import Fleet

pytestmark = pytest.mark.slow

DEPLOY = ["--out", "fleet", "--broker", "mqtts://127.0.0.1:8883", "--wheel", "p2pfl_mqtt-0.3.0-py3-none-any.whl"]


def deployed(*machines, source="plant.toml", json_too=False):
    """Call the command."""
    named = [each for machine in machines for each in ("--machine", machine)]
    assert main(["deploy", source, *DEPLOY, *named, *(["--json"] if json_too else [])]) == 0


def kinds(place, *, experiment=""):
    """Machine and versions of Python that the script of each bundle insists on."""
    found = {}
    for peer in PEERS:
        text = (place / "fleet" / experiment / peer / "install.sh").read_text()
        [machine] = re.findall(r'\[ "\$\(uname -m\)" = "(\w+)" \]', text)
        found[peer] = machine, re.findall(r"3\.1\d to 3\.1\d|(?<=Python )3\.1\d\b", text)[0]
    return found


def test_a_second_experiment_and_a_second_call_are_for_the_machines_of_the_first(place):
    deployed("aarch64:3.13", "peer1=x86_64:3.11")
    before = kinds(place)
    assert before == {"peer0": ("aarch64", "3.13"), "peer1": ("x86_64", "3.11"), "peer2": ("aarch64", "3.13")}
    (place / "stream.toml").write_text(PLANT.replace('"plant"', '"stream"'))
    deployed(source="stream.toml")
    assert kinds(place, experiment="stream") == before
    deployed()
    assert kinds(place) == before


def test_options_of_a_call_override_what_is_remembered_and_are_remembered_in_turn(place):
    deployed("aarch64:3.13", "peer1=x86_64:3.11")
    deployed("peer1=aarch64:3.12")
    changed = {"peer0": ("aarch64", "3.13"), "peer1": ("aarch64", "3.12"), "peer2": ("aarch64", "3.13")}
    assert kinds(place) == changed
    deployed()
    assert kinds(place) == changed
    deployed("x86_64:3.11")
    deployed()
    assert kinds(place) == dict.fromkeys(PEERS, ("x86_64", "3.11"))


def test_a_device_that_the_fleet_does_not_know_is_as_the_last_call_said_for_all(place):
    (place / "plant.toml").write_text(PLANT.replace("peers = 3", "peers = 2"))
    assert main(["deploy", "plant.toml", *DEPLOY, "--machine", "x86_64:3.11", "--machine", "peer1=aarch64"]) == 0
    (place / "plant.toml").write_text(PLANT)
    deployed()
    assert [machine for machine, _ in kinds(place).values()] == ["x86_64", "aarch64", "x86_64"]


def test_a_replaced_device_keeps_its_machine_unless_told_otherwise(place):
    deployed("peer1=x86_64:3.11")
    fleet = Fleet.open("plant.toml", out=place / "fleet", trust_code=True)
    fleet.signer(now=NOW).collect([asked(place, peer) for peer in PEERS])
    fleet.signer(now=NOW).revoke(["peer1"], reason="broken")
    fleet.signer(now=NOW).collect([asked(place, "peer1", folder="another")])
    deployed()
    assert kinds(place)["peer1"] == ("x86_64", "3.11")
    deployed("peer1=aarch64:3.13")
    assert kinds(place)["peer1"] == ("aarch64", "3.13")


@pytest.mark.usefixtures("place")
def test_deploy_prints_which_machines_it_uses_and_from_where(capsys):
    deployed("peer1=x86_64:3.11")
    shown = capsys.readouterr().out
    assert "aarch64 (the default): peer0, peer2\nx86_64:3.11 (from --machine): peer1\n" in shown
    deployed("peer2=aarch64:3.13")
    shown = capsys.readouterr().out
    assert "aarch64 (from fleet/machines.toml): peer0\n" in shown
    assert "x86_64:3.11 (from fleet/machines.toml): peer1\naarch64:3.13 (from --machine): peer2\n" in shown
    deployed(json_too=True)
    told = json.loads(capsys.readouterr().out)["machines"]
    assert told["peer1"] == {"kind": "x86_64:3.11", "source": "fleet/machines.toml"}


def test_a_refused_call_and_one_for_other_devices_forget_nothing(place):
    deployed("peer1=x86_64:3.11")
    path = place / "fleet" / "machines.toml"
    before = path.read_bytes()
    assert main(["deploy", "plant.toml", *DEPLOY, "--machine", "peer0=x86_64:3.11", "--machine", "eve=aarch64"]) == 2
    assert path.read_bytes() == before
    (place / "pair.edgelist").write_text("x y\n")
    (place / "other.toml").write_text(
        PLANT.replace('"plant"', '"other"').replace('"complete"\npeers = 3', '"pair.edgelist"')
    )
    deployed("x=x86_64:3.11", source="other.toml")
    assert tomllib.loads(path.read_text())["devices"] == {
        "peer0": "aarch64",
        "peer1": "x86_64:3.11",
        "peer2": "aarch64",
        "x": "x86_64:3.11",
        "y": "aarch64",
    }


def test_a_crash_between_two_bundles_does_not_lose_the_machines(place, monkeypatch):
    put, written = fleet_module._put, []

    def crash(path, *args, **how):
        put(path, *args, **how)
        written.append(path)
        if path.name == "SHA256SUMS":
            raise KeyboardInterrupt

    monkeypatch.setattr(fleet_module, "_put", crash)
    with pytest.raises(KeyboardInterrupt):
        bundles(place, machine="x86_64")
    monkeypatch.setattr(fleet_module, "_put", put)
    assert not (place / "fleet" / "peer2").exists()
    deployed()
    assert {machine for machine, _ in kinds(place).values()} == {"x86_64"}


@pytest.mark.fast
@pytest.mark.parametrize(
    "text",
    [
        "devices = 3",
        'devices = { peer0 = "riscv" }',
        'devices = { peer0 = ["aarch64"] }',
        'others = "aarch64:3.9"',
        'other = "aarch64"',
        "devices = {",
        "\xff",
    ],
)
def test_a_list_of_machines_that_cannot_be_used_is_refused_in_one_sentence(place, text):
    (place / "fleet").mkdir()
    (place / "fleet" / "machines.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"machines\.toml is not the list of machines .*; restore it .*--machine"):
        bundles(place)
