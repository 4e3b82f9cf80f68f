import json
import os
import stat

import pytest

from p2pfl.experiment import read
from p2pfl.experiment.schema import Experiment
from p2pfl.network.transport.address import Address
from p2pfl.network.transport.broker import embedded
from p2pfl.results import Run
from ports import reserved_port

URL = "mqtt://ada:s3cret@127.0.0.1:1"


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "small.toml", "--broker", URL),
        ("peer", "small.toml", "--name", "peer0", "--broker", URL),
        ("peer", "small.toml", "--name", "peer0", "--broker", "mqtt://127.0.0.1:1", "--broker", URL),
        ("run", "small.toml", "--set", f"transport.broker={URL}"),
        ("simulate", "secret.toml"),
    ],
    ids=["run", "peer", "list", "set", "file"],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(p2pfl, place, arguments):
    (place / "secret.toml").write_text(f'{(place / "small.toml").read_text()}\n[transport]\nbroker = "{URL}"\n')
    said = p2pfl(*arguments)
    assert said.status == 2
    assert "transport.broker contains a password for mqtt://127.0.0.1:1; set P2PFL_BROKER_USER" in said.err
    assert "s3cret" not in said.out + said.err
    assert len(said.err.splitlines()) == 1
    assert not (place / "runs").exists()


@pytest.mark.slow
def test_a_password_over_a_line_that_others_may_hear_is_warned_of_once(p2pfl, monkeypatch):
    monkeypatch.setitem(os.environ, "P2PFL_BROKER_USER", "peer0")
    monkeypatch.setitem(os.environ, "P2PFL_BROKER_PASSWORD", "s3cret")
    with embedded() as broker:
        monkeypatch.setattr(Address, "here", False)
        said = p2pfl("run", "small.toml", "--broker", broker.url)
    assert said.status == 0
    assert said.err.count("WARNING: a password goes to") == 1
    assert f"a password goes to {broker.url} unencrypted" in said.err
    assert "s3cret" not in said.err


def test_a_login_of_the_environment_reaches_no_file(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "P2PFL_BROKER_PASSWORD", "s3cret")
    with Run(Experiment(), folder=tmp_path / "run"):
        pass
    assert not any("s3cret" in path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file())


def test_a_list_of_brokers_and_an_outage_are_read(p2pfl, place):
    changes = ['transport.broker=["mqtt://a", "mqtts://b"]', "transport.outage=60"]
    transport = read(place / "small.toml", changes=changes).transport
    assert transport.broker == ("mqtt://a", "mqtts://b")
    assert transport.outage == 60.0
    absent = [f"--broker=mqtt://127.0.0.1:{port}" for port in (1, 2)]
    said = p2pfl("peer", "small.toml", "--name", "peer0", *absent, "--set", "transport.outage=0")
    assert said.status == 2
    assert said.err.count("nothing listens there") == 2


@pytest.fixture
def vacant():
    """A port on which nothing listens."""
    with reserved_port() as port:
        yield port


@pytest.mark.slow
def test_peers_that_start_before_their_broker_wait_for_it_and_say_so(fork, vacant, place):
    url = f"mqtt://127.0.0.1:{vacant}"
    command = ("peer", "small.toml", "--set=topology.peers=2", "--broker", url, "--name")
    peers = [fork(*command, f"peer{number}") for number in range(2)]
    for peer in peers:
        said = peer.until("this peer retries for up to 600 s (transport.outage)")
        assert f"cannot connect to an MQTT broker at {url} because nothing listens there" in said
    with embedded(port=vacant):
        ended = [peer.end() for peer in peers]
    assert [(each.status, each.err.count("retries for up to")) for each in ended] == [(0, 1), (0, 1)]
    for number, each in enumerate(ended):
        [folder] = (place / "runs").glob(f"*-peer{number}")
        summary = json.loads((folder / "summary.json").read_text())
        assert {*summary["alone"]} == {*summary["scores"]} == {"loss", "accuracy"}
        assert f"Alone it reaches accuracy {summary['alone']['accuracy']:.3f}" in each.err


@pytest.mark.nightly
def test_a_run_that_starts_before_its_broker_waits_for_it_and_says_so(start, vacant):
    run = start("run", "small.toml", "--broker", f"mqtt://127.0.0.1:{vacant}")
    run.until("this peer retries for up to 600 s (transport.outage)")
    with embedded(port=vacant):
        assert run.end().status == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", [("run",), ("peer", "--name", "peer0")], ids=["run", "peer"])
def test_a_broker_that_does_not_come_in_time_is_a_failure_of_the_run(p2pfl, vacant, command):
    broker = ("--broker", f"mqtt://127.0.0.1:{vacant}", "--set", "transport.outage=0.05")
    said = p2pfl(command[0], "small.toml", *command[1:], *broker)
    assert said.status == 1
    assert "this peer gave up after 0.05 s (transport.outage)" in said.err.splitlines()[-1]
    assert "Traceback" not in said.err


@pytest.mark.nightly
def test_a_peer_that_waits_for_its_broker_can_be_interrupted(start, vacant):
    peer = start("peer", "small.toml", "--name", "peer0", "--broker", f"mqtt://127.0.0.1:{vacant}")
    peer.until("this peer retries for up to 600 s")
    peer.ctrl_c()
    assert peer.end().status == 130


def test_a_configuration_is_written_for_the_peers_of_an_experiment(p2pfl, place):
    said = p2pfl("broker", "small.toml", "--config", "broker")
    assert said.status == 0
    assert said.out == "mosquitto -c broker/mosquitto.conf\n"
    names = sorted(path.name for path in (place / "broker" / "credentials").iterdir())
    assert names == ["peer0.toml", "peer1.toml", "peer2.toml"]
    assert stat.S_IMODE((place / "broker" / "credentials").stat().st_mode) == 0o700
    assert "user peer1\ntopic write p2pfl/v1/small/peer/peer1/state\n" in (place / "broker" / "acl").read_text()
    assert "listener 8883 127.0.0.1" in (place / "broker" / "mosquitto.conf").read_text()


def test_an_access_list_has_the_prefix_of_all_topics(p2pfl, place):
    text = (place / "small.toml").read_text()
    (place / "below.toml").write_text(f'{text}\n[transport]\nprefix = "plant7/"\n')
    assert p2pfl("broker", "below.toml", "--config", "below").status == 0
    topics = [line.split()[-1] for line in (place / "below" / "acl").read_text().splitlines() if "topic" in line]
    assert topics
    assert all(topic.startswith("plant7/p2pfl/v1/small/") for topic in topics)


def test_an_observer_gets_a_password_of_its_own(p2pfl, place):
    said = p2pfl("broker", "small.toml", "--config", "watched", "--observer", "ops")
    assert said.status == 0, said.err
    assert (place / "watched" / "credentials" / "ops.toml").is_file()
    assert "topic write p2pfl/v1/small/watch/ops/to/+" in (place / "watched" / "acl").read_text()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["small.toml", "--observer", "../ops"], "'../ops' cannot be an observer; use 1 to 22 letters"),
        (["small.toml", "--observer", "peer1"], "'peer1' cannot be an observer"),
        (["--observer", "ops"], "--observer makes passwords, which go with those of peers; name the EXPERIMENT"),
    ],
)
def test_what_cannot_be_an_observer_is_refused(p2pfl, options, why):
    said = p2pfl("broker", "--config", "refused", *options)
    assert said.status == 2
    assert why in said.err


def test_a_configuration_needs_neither_the_model_nor_the_data_of_the_peers(p2pfl, place):
    text = (place / "small.toml").read_text()
    (place / "clinic.toml").write_text(
        text.replace('"linear"', '"not.here:Model"').replace('"wine"', '"not.here:data"')
    )
    said = p2pfl(
        "broker", "clinic.toml", "--trust-code", "--config", "broker", "--host", "::", "--public", "broker.example"
    )
    assert said.status == 0, said.err
    assert "its certificate is for localhost, 127.0.0.1," in said.err
    assert "broker.example: name other hosts with --public" in said.err
    assert (place / "broker" / "credentials" / "peer2.toml").is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="mosquitto stays who we are")
def test_a_configuration_below_a_folder_that_mosquitto_cannot_pass_through_is_warned_of(p2pfl, place):
    wall = place / "private"
    for above in place.parents:
        above.chmod(above.stat().st_mode | 0o001)
    place.chmod(0o755)
    wall.mkdir(mode=0o700)
    said = p2pfl("broker", "small.toml", "--config", "private/deep/broker")
    assert said.status == 0
    assert (
        f"WARNING: mosquitto gives up root, and its user cannot pass through {wall}, so it will not start" in said.err
    )
    wall.chmod(0o711)
    assert "WARNING" not in p2pfl("broker", "small.toml", "--config", "private/deep/broker").err


def test_what_a_configuration_lacks_is_said(p2pfl):
    said = p2pfl("broker", "--config", "broker")
    assert said.status == 2
    assert "neither an experiment, whose peers get passwords, nor" in said.err
    said = p2pfl("broker", "small.toml")
    assert said.status == 2
    assert "an experiment has no effect without --config DIR" in said.err
