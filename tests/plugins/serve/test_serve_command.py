"""``p2pfl serve`` beside live peers on a real broker, and what it refuses before it starts."""

import asyncio
import json
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

import hospitals
from p2pfl.network.transport.broker import embedded, mosquitto, run_program
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.plugins.serve.mqtt_server import TOPIC
from p2pfl.plugins.serve.serve_command import default_topic
from waiting import wait_until

HERE = ("--broker", "mqtt://localhost")
ROWS = [{"age": 63, "sex": "f", "weight": 70_000, "ward": "east"}]


@pytest.fixture
def url():
    if mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    with embedded(kind="mosquitto") as broker:
        yield broker.url


def fetch(address, rows=None):
    body = None if rows is None else json.dumps(rows).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})  # noqa: S310 (our own server)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def rounds_of(address):
    """Return a function that returns the round that answers; -1 before the first."""

    def served():
        status, about = fetch(address)
        return about["round"] if status == 200 else -1

    return served


@pytest.mark.slow
async def test_a_model_answers_over_http_and_mqtt_while_its_peer_learns(place, start, url):
    hospitals.write(place)
    (place / "wards.toml").write_text(tomli_w.dumps(hospitals.experiment(place, rounds=2000)))
    (place / "runs").mkdir()
    served = start(
        *("serve", "runs", "--name", "peer0", "--port", "0", "--broker", url),
        *("--topic", "plant/ml", "--discovery", "homeassistant"),
    )
    address = served.until("serves http").split()[1]
    assert fetch(address) == (503, {"error": "no peer has written a model yet; ask again after its first round"})
    run = start("run", "wards.toml", "--broker", url)
    round = rounds_of(address)
    await wait_until(lambda: round() >= 0, "the first model answers", every=0.05)
    first = round()
    await wait_until(lambda: round() > first, "a newer model answers", every=0.05)
    status, answer = fetch(f"{address}predict", ROWS)
    assert (status, answer["peer"]) == (200, "peer0")
    assert answer["predictions"][0] in {"well", "ill"}
    assert fetch(f"{address}predict", [{"age": 1}])[0] == 400
    run.ctrl_c()
    run.end()
    last = json.loads((place / "runs").glob("*/metrics.jsonl").__next__().read_text().splitlines()[-1])["round"]
    await wait_until(lambda: round() >= last - 1, "the last checkpoint answers", every=0.05)
    async with MqttTransport(url).join("client") as client:
        await client.subscribe("plant/ml/model", "plant/ml/state", "plant/ml/answer/+", "homeassistant/#")
        retained = {}
        async with asyncio.timeout(60):
            while len(retained) < 3:
                message = await anext(client)
                retained[message.topic] = message.data
        assert json.loads(retained["plant/ml/model"])["round"] == round()
        assert retained["plant/ml/state"] == b"online"
        sensor = json.loads(retained["homeassistant/sensor/plant_ml/round/config"])
        assert (sensor["state_topic"], sensor["availability_topic"]) == ("plant/ml/model", "plant/ml/state")

        async def ask(name, body):
            await client.publish(f"plant/ml/predict/{name}", body)
            async with asyncio.timeout(60):
                while (message := await anext(client)).topic != f"plant/ml/answer/{name}":
                    pass
            return json.loads(message.data)

        assert await ask("one", json.dumps(ROWS).encode()) == fetch(f"{address}predict", ROWS)[1]
        assert await ask("two", b"?") == {"error": "the request is not JSON; send a list of rows"}
        served.ctrl_c()
        assert served.end().status == 130
        async with asyncio.timeout(60):
            while (message := await anext(client)).topic != "plant/ml/state":
                pass
        assert message.data == b"offline"


@pytest.mark.slow
async def test_an_exact_model_answers_once_its_peer_has_it(place, start, url):
    hospitals.write(place)
    columns = {name: each for name, each in hospitals.COLUMNS.items() if name != "ward"}
    options = {"path": str(place / "{peer}.csv"), "target": "outcome", "columns": columns}
    experiment = hospitals.experiment(
        place,
        rounds=20,
        data={"name": "table", "options": options},
        model={"name": "glm"},
        privacy={"mode": "pairwise"},
        learning={},
    )
    (place / "totals.toml").write_text(tomli_w.dumps(experiment))
    (place / "runs").mkdir()
    served = start("serve", "runs", "--name", "peer1", "--port", "0")
    address = served.until("serves http").split()[1]
    said = start("run", "totals.toml", "--broker", url, "--no-baselines").end()
    assert said.status == 0, said.err
    await wait_until(lambda: rounds_of(address)() >= 0, "the model answers", every=0.05)
    status, answer = fetch(f"{address}predict", [{name: ROWS[0][name] for name in ("age", "sex", "weight")}])
    assert (status, answer["peer"], answer["classes"]) == (200, "peer1", ["well", "ill"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["missing"], "missing does not exist; name a model, a run directory, or a folder of run directories"),
        (["missing/a.safetensors"], "missing does not exist; name peers/NAME.safetensors of a run directory"),
        (["torn.safetensors"], "torn.safetensors is not a safetensors file"),
        ([".", "--topic", "plant/ml"], "are for a broker; add --broker mqtt://host:1883"),
        ([".", "--broker", "mqtt://localhost", "--topic", "a/#"], "--topic 'a/#' is not a prefix of topics"),
        ([".", "--name", "+"], "--name '+' is not the name of a peer"),
        ([".", "--name", "a/#"], "--name 'a/#' is not the name of a peer"),
        (["torn.safetensors", "--name", "a"], "torn.safetensors is the model of one peer; leave out --name"),
        ([".", "--port", "65536"], "65536 is not a port from 0 to 65535"),
        ([".", "--host", ""], "the address to listen on is empty; give --host 127.0.0.1"),
        ([".", "--host", "a..b"], "a..b:8800 cannot be used"),
        ([".", "--host", "192.0.2.1"], "192.0.2.1:8800 cannot be used"),
        ([".", "--store", "a.sqlite=hall"], "and --store are for a broker; add --broker mqtt://host:1883"),
        (
            [".", *HERE, "--store", "a.csv=hall"],
            "--store 'a.csv=hall' is not a table and a topic; use readings.sqlite=",
        ),
        ([".", *HERE, "--store", "a.sqlite"], "--store: '' is not a topic filter; use one such as"),
        ([".", *HERE, "--store", "a.sqlite=a/#/b"], "--store: 'a/#/b' is not a topic filter"),
        (
            [".", *HERE, "--store", "b/a.sqlite=hall"],
            "b/a.sqlite cannot be written (unable to open database file); name",
        ),
        ([".", *HERE, "--store", "torn.db=hall"], "torn.db cannot be written (file is not a database); name a SQLite"),
        ([".", "--broker", "file:///tmp", "--store", "a.sqlite=hall"], "file:///tmp"),
        ([".", "--broker", "pigeon://roof"], "no transport is registered for pigeon://"),
    ],
)
def test_wrong_arguments_are_named_in_one_sentence(p2pfl, place, arguments, sentence):
    (place / "torn.safetensors").write_bytes(b"torn")
    (place / "torn.db").write_bytes(b"torn" * 100)
    said = p2pfl("serve", *arguments)
    assert said.status == 2
    assert sentence in said.err


@pytest.mark.parametrize(
    ("place", "name", "topic"),
    [
        ("runs", "ada", "p2pfl-serve/ada"),
        ("a/my runs+", None, "p2pfl-serve/my_runs_"),
        ("run/peers/ada.best.safetensors", None, "p2pfl-serve/ada.best"),
        ("/", None, "p2pfl-serve/model"),
    ],
)
def test_the_topic_follows_from_the_arguments_alone(place, name, topic):
    assert default_topic(Path(place), name=name) == topic
    assert TOPIC.fullmatch(topic)


@pytest.mark.slow
def test_http_answers_while_the_broker_refuses_the_login(start):
    program = mosquitto()
    if program is None:
        pytest.skip("mosquitto is not installed")

    def closed(host, port):
        return program.configuration(host, port).replace("allow_anonymous true", "allow_anonymous false")

    with run_program(replace(program, configuration=closed), host="127.0.0.1", port=0) as broker:
        served = start("serve", ".", "--port", "0", "--broker", broker.url)
        address = served.until("serves http").split()[1]
        assert "HTTP answers on, and the broker is tried again every 60 s" in served.until("HTTP answers on")
        assert fetch(address)[0] == 503
        served.ctrl_c()
        assert served.end().status == 130


@pytest.mark.slow
def test_on_all_addresses_one_sentence_says_so(start):
    served = start("serve", ".", "--host", "0.0.0.0", "--port", "0")  # noqa: S104
    assert "everybody who reaches 0.0.0.0 can ask; use --host 127.0.0.1" in served.until("everybody")
    served.until("serves http")
    served.ctrl_c()
    assert served.end().status == 130
