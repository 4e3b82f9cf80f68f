"""The run with which a peer goes on after one that a change of its swarm has ended."""

import json

import pytest

from p2pfl.cli.running.following import experiment_in, following, last_run
from p2pfl.core.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.experiment.approval import experiment_digest
from p2pfl.experiment.changed_run import settings_of
from p2pfl.experiment.swarm_change import SwarmChange, order_of
from p2pfl.privacy.keys import Identity, Roster
from p2pfl.results import Run
from p2pfl.results.lock import PEER_LOCK
from wine_files import wine_file

OPERATOR = Identity(bytes(range(32)))
KEYS = {f"peer{number}": Identity(bytes([number + 1] * 32)).public for number in range(4)}
PLANT = wine_file("plant", rounds=2, more='batch = "all"\n')


@pytest.fixture
def ended(p2pfl, place):
    """The run directory of a peer whose run has ended after two rounds."""

    def run(*changes):
        (place / "plant.toml").write_text(PLANT)
        said = p2pfl("simulate", "plant.toml", "--no-baselines", "--json", *changes)
        assert said.status == 0, said.err
        folder = place / "runs" / "plant-20300101-120000-peer0"
        (place / json.loads(said.out)["folder"]).rename(folder)
        (folder / PEER_LOCK).touch()
        return folder

    return run


def order(folder, *, last=2, peers=3, **changes):
    """Let a peer hold an order of its operator."""
    named = [f"{key.replace('__', '.')}={value}" for key, value in changes.items()]
    settings = settings_of(read(folder / "experiment.toml", changes=[*named, f"topology.peers={peers}"]))
    names = peers if isinstance(peers, list) else [*KEYS][:peers]
    roster = Roster({name: KEYS[name] for name in names}, operator=OPERATOR.public)
    made = SwarmChange(swarm="plant", number=4, run="0" * 64, settings=settings, roster=roster.text, last=last)
    (folder / "peers" / "peer0.change").write_bytes(made.signed(OPERATOR).encode())
    return roster


def test_the_next_run_has_the_settings_and_the_roster_of_the_order_and_the_last_models(ended):
    folder = ended()
    roster = order(folder, rounds=9, learning__rate=0.5)
    file, begun = following(folder, peer="peer0")
    assert begun is None
    after = read(file)
    assert (after.rounds, after.learning.rate, after.learning.batch) == (9, 0.5, "all")
    assert after.model.pretrained == f"{folder.resolve()}/peers/{{peer}}.safetensors"
    assert Roster.read(after.trust.roster) == roster


def test_with_a_codec_of_differences_all_begin_with_the_common_model(ended):
    folder = ended("--set", "learning.consensus=true", "--set", "compression.name=top_k")
    order(folder, peers=4)
    after = read(following(folder, peer="peer0")[0])
    assert after.model.pretrained == f"{folder.resolve()}/peers/peer0.safetensors"
    assert after.topology.peers == 4
    with pytest.raises(InputError, match="peers all know one model, and peer0 was away"):
        following(folder, peer="peer0", left=True)
    assert (folder / "next" / "experiment.toml").is_file()  # for the model of another device


def test_a_peer_that_left_a_run_follows_before_its_end_with_the_model_that_it_has(ended):
    folder = ended()
    order(folder, last=9)
    (folder / "summary.json").unlink()
    assert following(folder, peer="peer0") is None
    after = read(following(folder, peer="peer0", left=True)[0])
    assert after.model.pretrained == f"{folder.resolve()}/peers/{{peer}}.safetensors"
    assert order_of(after).late
    assert plan(after, only=["peer0"]).facts["start"] == order_of(after).change.start
    (folder / "peers" / "peer0.safetensors").unlink()
    without = read(following(folder, peer="peer0", left=True)[0])
    assert without.model.pretrained is None
    assert plan(without, only=["peer0"]).facts == plan(after, only=["peer0"]).facts
    assert experiment_digest(without) == experiment_digest(after)


def test_a_run_that_nobody_ended_by_an_order_is_followed_by_none(ended):
    folder = ended()
    assert following(folder, peer="peer0") is None
    order(folder, last=None)
    assert following(folder, peer="peer0") is None
    order(folder)
    (folder / "summary.json").unlink()
    assert following(folder, peer="peer0") is None


def test_a_peer_that_the_order_takes_out_ends_with_one_sentence(ended, capsys):
    folder = ended()
    order(folder, peers=["peer1", "peer2"])
    assert following(folder, peer="peer0") is None
    assert 'takes peer0 out of "plant"; its last model is in' in capsys.readouterr().err


def test_a_peer_that_ended_after_another_round_is_refused(ended):
    folder = ended()
    order(folder, last=1)
    with pytest.raises(InputError, match="peer0 ended after 2 rounds, and change 4 of the operator"):
        following(folder, peer="peer0")


def test_a_service_that_starts_again_goes_on_with_the_run_that_follows(ended, place):
    folder = ended()
    order(folder, rounds=9)
    file, _ = following(folder, peer="peer0")
    plant = read(place / "plant.toml")
    assert last_run("runs", plant, peer="peer0").resolve() == folder.resolve()
    then = place / "runs" / "plant-20300101-130000-peer0"
    then.mkdir()
    (then / "experiment.toml").write_text(file.read_text())
    assert following(folder, peer="peer0") == (file, then.resolve())
    assert last_run("runs", plant, peer="peer0").resolve() == then.resolve()
    with pytest.raises(InputError, match=r"data\.name differs"):
        last_run("runs", read(plant, changes=["data.name=digits"]), peer="peer0")


def test_a_run_that_follows_goes_on_from_where_its_folder_has_moved_to(ended, place):
    folder = ended()
    roster = order(folder, rounds=9)
    file, _ = following(folder, peer="peer0")
    Run(read(file), folder=place / "runs" / "plant-20300101-130000-peer0")
    (place / "ssd").mkdir()
    (place / "runs").rename(place / "ssd" / "runs")
    runs = place.resolve() / "ssd" / "runs"
    former, then = runs / folder.name, runs / "plant-20300101-130000-peer0"
    assert last_run(str(runs), read(place / "plant.toml"), peer="peer0") == then
    assert experiment_in(then) == former / "next" / "experiment.toml"
    after = read(experiment_in(then))
    assert after.model.pretrained == f"{former}/peers/{{peer}}.safetensors"
    assert after.trust.roster == f"{former}/next/roster.toml"
    assert Roster.read(after.trust.roster) == roster
