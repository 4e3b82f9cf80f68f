"""The policy beside the data binds every use of them, whichever command or call it is."""

import asyncio
import datetime as dt

import pytest

import p2pfl as package
from p2pfl.experiment import plan, read
from p2pfl.experiment.approval import approve, write_approval
from p2pfl.experiment.file.own_code import OwnCode
from p2pfl.experiment.site_policy import read_policy
from p2pfl.network.peer.launch.in_loop import live
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.audit.audit import audit
from p2pfl.plugins.study.valuation import valuation
from p2pfl.results.spending.account_file import AccountFile
from policy_experiment import CARE_POLICY, EXPERIMENT, OFFICER, write_tables

PEERS = ("peer0", "peer1", "peer2")
MODELS = 'allows the models cox, not "{}"; choose one of these'
COMMANDS = {
    "run": (),
    "simulate": (),
    "simulate over a network": ("--network", "wan"),
    "peer": ("--name", "peer0", "--broker", "mqtt://127.0.0.1:1"),
    "describe": (),
    "describe of one": ("--name", "peer0"),
    "components": (),
    "survival": ("--set", "data.options.target=age", "--set", "data.options.event=low", "--horizon", "40"),
    "value": (),
    "audit": (),
}
CALLS = {
    "simulate": lambda file: package.simulate(file, baselines=False),
    "simulate a plan": lambda file: package.simulate(plan(read(file)), baselines=False, unaccounted=True),
    "live": lambda file: asyncio.run(live(read(file), baselines=False)),
    "Peer": lambda file: package.Peer("peer0", plan(read(file), only=["peer0"]), transport=MemoryTransport()),
    "value": lambda file: valuation(plan(read(file))),
    "audit": lambda file: audit(plan(read(file))),
    "glm of a file": lambda file: package.glm("low ~ age", file),
    "glm of tables": lambda file: package.glm(
        "low ~ age", {f"peer{n}": file.parent / f"peer{n}.csv" for n in range(3)}
    ),
    "describe": package.describe,
}


@pytest.fixture
def ward(place):
    """A folder with the tables of three peers, an experiment and a policy that refuses its model."""
    write_tables(place, PEERS)
    save(place)
    (place / "policy.toml").write_text('models = ["cox"]\n')
    return place


def save(place, model="glm"):
    (place / "ward.toml").write_text(EXPERIMENT.replace("MODEL", model))


def used(place):
    return sorted(path.name for path in place.glob("*.budget.jsonl"))


@pytest.mark.parametrize("door", COMMANDS)
def test_a_command_uses_no_data_against_their_policy(p2pfl, ward, door):
    command, unaccounted = door.split()[0], [] if door.startswith("audit") else ["--unaccounted"]
    said = p2pfl(command, "ward.toml", *COMMANDS[door], *unaccounted)
    assert said.status == 2
    assert f"{ward / 'policy.toml'} allows the models cox, not " in said.err
    assert used(ward) == []


def test_a_sweep_uses_no_data_against_their_policy(p2pfl, ward):
    said = p2pfl("sweep", "ward.toml", "--seeds", "1", "--over", "rounds=2,3", "--jobs", "1")
    assert said.status == 2
    assert f"rounds=2: seed 0: {ward / 'policy.toml'} {MODELS.format('glm')}" in said.err
    assert used(ward) == []


def test_a_setting_of_a_sweep_that_the_policy_refuses_is_named_before_any_runs(p2pfl, private_ward):
    (private_ward / "policy.toml").write_text("epsilon = 1.0\n")
    changes = ("--over", "privacy.epsilon=0.5,2.0", "--seeds", "3", "--jobs", "1")
    said = p2pfl("sweep", "ward.toml", *changes)
    assert said.status == 2
    assert "1 of 2 settings cannot run, so nothing was started: privacy.epsilon=2.0: seed 0: " in said.err
    assert "policy.toml allows privacy.epsilon = 1, not 2; lower it" in said.err
    assert not [*private_ward.glob("runs/*")]


def test_each_setting_of_a_sweep_may_name_the_code_that_the_policy_lists(p2pfl, ward):
    for module in ("agreed", "other"):
        (ward / f"{module}.py").write_text("M = print\n")
    digest = OwnCode(ward, {"agreed.py": b"M = print\n"}).digest
    (ward / "policy.toml").write_text(f'[code]\n"agreed:M" = "{digest}"\n')
    save(ward, "agreed:M")
    said = p2pfl("sweep", "ward.toml", "--seeds", "1", "--over", "learning.loss=agreed:M,other:M", "--jobs", "1")
    assert said.status == 2
    assert "1 of 2 settings cannot run" in said.err
    assert "learning.loss=other:M: " in said.err
    assert "policy.toml does not list code that ward.toml names: other:M (SHA-256" in said.err


@pytest.mark.parametrize("door", CALLS)
def test_a_call_from_python_uses_no_data_against_their_policy(ward, door):
    with pytest.raises(package.errors.InputError, match=r"policy\.toml allows the models cox, not"):
        CALLS[door](ward / "ward.toml")
    assert used(ward) == []


def test_parts_in_python_have_the_policy_of_the_machine(ward, monkeypatch):
    data = {"ada": ([[0.0], [1.0]] * 4, [0, 1] * 4), "bob": ([[0.0], [1.0]] * 4, [0, 1] * 4)}
    learner = package.TorchLearner(pytest.importorskip("torch").nn.Linear(1, 2), data)
    parts = (package.FedAvg(), learner, package.topology.ring(2).named(sorted(data)))
    package.simulate(*parts, rounds=1)
    monkeypatch.setenv("P2PFL_POLICY", str(ward / "policy.toml"))
    with pytest.raises(package.errors.InputError, match=r"policy\.toml allows the models cox"):
        package.simulate(*parts, rounds=1)


@pytest.mark.parametrize("command", ["explain", "privacy"])
def test_a_review_shows_an_experiment_that_the_policy_refuses(p2pfl, ward, command):
    said = p2pfl(command, "ward.toml", "--name", "peer0", "--json")
    assert said.status == 0, said.err
    assert used(ward) == []


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("model", ["glm", "description"])
@pytest.mark.parametrize("door", ["simulate", "live", "describe"])
def test_what_the_officer_has_approved_runs_at_every_door(ward, p2pfl, model, door):
    save(ward, model)
    path = approve_all(ward)
    if door == "describe":
        assert p2pfl("describe", "ward.toml").status == (0 if model == "description" else 2)
        return
    CALLS[door](ward / "ward.toml")
    assert len(used(ward)) == 3
    path.unlink()
    with pytest.raises(package.errors.InputError, match="asks for an approval of this experiment as it is"):
        CALLS[door](ward / "ward.toml")


@pytest.mark.parametrize(
    ("call", "model"),
    [("glm of a file", 'glm"\noptions = { formula = "low ~ age" }\n#'), ("describe", "description")],
)
def test_a_call_from_python_runs_the_file_that_the_officer_has_approved(ward, call, model):
    save(ward, model)
    file = ward / "ward.toml"
    file.write_text(file.read_text().replace("rounds = 2", "rounds = 20"))
    approve_all(ward)
    CALLS[call](file)
    assert approved_runs(ward) == ["care"] * 3
    save(ward, "cox")
    with pytest.raises(package.errors.InputError, match="asks for an approval of this experiment as it is"):
        CALLS[call](file)


def test_what_leaves_nobodys_machine_needs_no_approval(p2pfl, ward):
    approve_all(ward).unlink()
    assert p2pfl("describe", "ward.toml").status == 2
    assert p2pfl("describe", "ward.toml", "--name", "peer0").status == 0
    assert used(ward) == ["peer0.csv.budget.jsonl"]
    (ward / "ops.toml").write_text("")
    said = p2pfl("simulate", "ward.toml", "--name", "peer0", "--set", "telemetry.observers=ops.toml")
    assert said.status == 2
    assert "asks for an approval of this experiment as it is" in said.err


PRIVATE = """
[model]
name = "private_description"
options = { bounds = { age = [0, 99], weight = [0, 99] } }
[privacy]
mode = "pairwise"
epsilon = 2.0
mask_graph = "complete"
"""


@pytest.fixture
def private_ward(ward):
    """The ward with one more peer, and a private model whose noise is calibrated."""
    (ward / "peer3.csv").write_bytes((ward / "peer0.csv").read_bytes())
    text = EXPERIMENT.partition("[model]")[0].replace("rounds = 2", "rounds = 1").replace("peers = 3", "peers = 4")
    (ward / "ward.toml").write_text(text + PRIVATE)
    approve_all(ward)
    return ward


def approve_all(ward):
    """Let the officer approve the experiment of the ward, and return the path of the approval."""
    (ward / "policy.toml").write_text(CARE_POLICY)
    experiment, policy = read(ward / "ward.toml"), read_policy(ward / "policy.toml")
    given = approve(experiment, policy, OFFICER, peers=["north"], purpose="care", today=dt.date(2026, 1, 1))
    return write_approval(given, ward / "policy.toml")


def approved_runs(ward):
    return [AccountFile(file).read()[0].purpose for file in sorted(ward.glob("*.budget.jsonl"))]


def test_calibrated_noise_needs_no_other_approval(private_ward):
    experiment = read(private_ward / "ward.toml")
    assert plan(experiment, live=True).pinned != experiment
    asyncio.run(live(experiment, baselines=False))
    assert approved_runs(private_ward) == ["care"] * 4


@pytest.mark.slow
def test_processes_of_a_run_have_the_approval_of_what_was_written(p2pfl, private_ward):
    said = p2pfl("run", "ward.toml", "--no-baselines")
    assert said.status == 0, said.err
    assert approved_runs(private_ward) == ["care"] * 4
