"""A peer whose site has a policy begins only what the policy allows and its officer has approved."""

import json
import sys
from unittest import mock

import pytest

from p2pfl.core.errors import InputError
from p2pfl.experiment.file.own_code import OwnCode
from policy_experiment import CARE_POLICY, EXPERIMENT, OFFICER, write_tables

POLICY = f'models = ["glm"]{CARE_POLICY}'
SIGN = ("approve", "ward.toml", "--name", "peer0", "--key", "officer.pem", "--purpose", "care")


@pytest.fixture
def site(place):
    """A site with the table of its one peer, its policy and its officer's key."""
    write_tables(place, ["peer0"])
    broker = '[transport]\nbroker = "mqtt://127.0.0.1:1"\n'
    (place / "ward.toml").write_text(EXPERIMENT.replace("MODEL", "glm") + broker)
    (place / "policy.toml").write_text(POLICY)
    OFFICER.save(place / "officer.pem")
    return place


@pytest.fixture
def planned(monkeypatch):
    """The calls that would begin a run, none of which does."""
    asked = mock.Mock(side_effect=InputError("stop here"))
    monkeypatch.setattr("p2pfl.plan", asked)
    return asked


@pytest.mark.usefixtures("site")
def test_a_peer_begins_only_with_an_approval(p2pfl, planned):
    said = p2pfl("peer", "ward.toml", "--name", "peer0")
    assert said.status == 2
    assert "asks for an approval of this experiment as it is" in said.err
    planned.assert_not_called()
    approved = p2pfl(*SIGN, "--json")
    assert approved.status == 0, approved.err
    assert json.loads(approved.out)["legal_basis"] == "Art. 9(2)(h) GDPR"
    assert "stop here" in p2pfl("peer", "ward.toml", "--name", "peer0").err
    planned.assert_called_once()
    assert "asks for an approval" in p2pfl("peer", "ward.toml", "--name", "peer0", "--set", "rounds=9").err


def test_each_refusal_is_one_sentence(p2pfl, planned, site):
    (site / "policy.toml").write_text('models = ["cox"]\ncolumns = ["low", "weight"]\nuntil = 2020-01-01\n')
    said = p2pfl("peer", "ward.toml", "--name", "peer0")
    assert said.status == 2
    lines = said.err.splitlines()
    assert len(lines) == 3
    for line, sentence in zip(
        lines, ("allows runs until", "allows the models cox", "does not allow the column age"), strict=True
    ):
        assert line.startswith(f"p2pfl: {site / 'policy.toml'} {sentence}")
    planned.assert_not_called()


def test_an_officer_does_not_sign_what_the_policy_refuses(p2pfl, site):
    (site / "policy.toml").write_text(POLICY.replace('"glm"', '"cox"'))
    said = p2pfl(*SIGN)
    assert said.status == 2
    assert 'allows the models cox, not "glm"; choose one of these' in said.err
    assert not (site / "approvals").exists()


def test_an_approval_needs_a_policy(p2pfl, site):
    (site / "policy.toml").rename(site / "other.toml")
    assert 'there is no policy.toml beside the data of "peer0"' in p2pfl(*SIGN).err
    assert "name it with --name, or a --policy" in p2pfl("approve", "ward.toml", *SIGN[4:]).err
    assert p2pfl(*SIGN, "--policy", "other.toml").status == 0


@pytest.mark.usefixtures("planned")
def test_a_peer_imports_no_code_that_the_policy_does_not_list(p2pfl, site):
    marker = site / "imported"
    (site / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    said = p2pfl("peer", "ward.toml", "--name", "peer0", "--set", "learning.loss=evil:f")
    assert said.status == 2
    assert "policy.toml does not list code that ward.toml names: evil:f (SHA-256" in said.err
    assert not marker.exists()
    assert "evil" not in sys.modules


@pytest.mark.parametrize("folder", ["", "data"])
@pytest.mark.parametrize("kind", ["three.json", "evil:graph"])
def test_the_policy_of_peers_that_a_graph_names_decides_which_code_runs(p2pfl, site, monkeypatch, kind, folder):
    marker, owned = site / "imported", site / folder
    owned.mkdir(exist_ok=True)
    if folder:
        monkeypatch.setenv("P2PFL_DATA", str(owned))
    (site / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    names = ("north", "south", "west")
    edges = [{"source": names[number - 1], "target": names[number]} for number in range(3)]
    (site / "three.json").write_text(json.dumps({"nodes": [{"id": name} for name in names], "edges": edges}))
    for name in names:
        (owned / name).mkdir()
        (owned / name / "policy.toml").write_text(POLICY)
        (owned / name / "table.csv").write_bytes((site / "peer0.csv").read_bytes())
    changes = (f"topology.kind={kind}", "data.options.path={peer}/table.csv", "learning.loss=evil:f")
    said = p2pfl("run", "ward.toml", "--trust-code", *(each for change in changes for each in ("--set", change)))
    assert said.status == 2
    assert "policy.toml does not list code that ward.toml names: evil:f (SHA-256" in said.err
    assert not marker.exists()


@pytest.mark.plugin("exact")
def test_code_runs_only_if_the_policy_of_each_owner_lists_it(p2pfl, site):
    text = f"open({str(site / 'imported')!r}, 'w')\n"
    (site / "evil.py").write_text(text)
    for name in ("peer0", "peer1"):
        (site / name).mkdir()
        (site / name / "table.csv").write_bytes((site / "peer0.csv").read_bytes())
    listed = OwnCode(site, {"evil.py": text.encode()}).digest
    (site / "peer0" / "policy.toml").write_text(f'[code]\n"evil:f" = "{listed}"\n')
    (site / "peer1" / "policy.toml").write_text("least = 5\n")
    changes = ("topology.peers=2", "data.options.path={peer}/table.csv", "model.name=evil:f")
    said = p2pfl("run", "ward.toml", *(each for change in changes for each in ("--set", change)))
    assert said.status == 2
    assert "peer1/policy.toml does not list code that ward.toml names: evil:f (SHA-256" in said.err
    assert not (site / "imported").exists()


def test_an_operator_who_can_change_the_policy_is_told(p2pfl, planned, site):
    (site / "policy.toml").write_text('models = ["glm"]\n')
    said = p2pfl("peer", "ward.toml", "--name", "peer0")
    assert f"whoever runs this peer can change {site / 'policy.toml'}" in said.err
    planned.assert_called_once()


@pytest.mark.plugin("exact")
def test_a_run_on_this_machine_keeps_the_policy_beside_its_data(p2pfl, site):
    for name in ("peer1", "peer2"):
        (site / f"{name}.csv").write_bytes((site / "peer0.csv").read_bytes())
    said = p2pfl("run", "ward.toml")
    assert said.status == 2
    assert "asks for an approval of this experiment as it is" in said.err
    assert not (site / "runs").exists()
