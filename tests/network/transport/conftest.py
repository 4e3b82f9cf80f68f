import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from certificates import certificate, revocations, write
from p2pfl.network.transport.broker import Program, embedded, iotcore, mosquitto, run_program
from p2pfl.network.transport.folder import FolderTransport
from p2pfl.network.transport.lasting import LastingTransport
from p2pfl.network.transport.memory import MemoryTransport
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.network.transport.topic_prefix import PrefixedTransport

COUNTER = itertools.count()


@dataclass(frozen=True)
class Certificates:
    """A CA, what it signed for the broker and for a peer, a CA of others, and certificates too early and late.

    A broker with the list of revoked certificates refuses those of a peer in ``refused``, each for a reason.
    """

    ca: Path
    broker: Path
    broker_key: Path
    peer: Path
    peer_key: Path
    stranger: Path
    early: Path
    late: Path
    refused: dict[str, Path]
    revoked: Path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "broker", "peer", "stranger")}
    ca = certificate("a CA", key=keys["ca"], ca=True)
    broker, peer = (
        certificate(name, key=keys[name], issuer=ca.subject, issuer_key=keys["ca"]) for name in ("broker", "peer")
    )
    early = certificate("broker", key=keys["broker"], issuer=ca.subject, issuer_key=keys["ca"], begins=2110)
    late = certificate("broker", key=keys["broker"], issuer=ca.subject, issuer_key=keys["ca"], ends=2021)
    mine = {"key": keys["peer"], "issuer": ca.subject, "issuer_key": keys["ca"]}
    others = {"key": keys["peer"], "issuer": ca.subject, "issuer_key": keys["stranger"]}
    refused = {
        "revoked": certificate("peer", **mine),
        "expired": certificate("peer", **mine, ends=2021),
        "not valid yet": certificate("peer", **mine, begins=2110),
        "of another authority": certificate("peer", **others),
    }
    return Certificates(
        ca=write(folder, "ca.pem", ca),
        broker=write(folder, "broker.pem", broker),
        broker_key=write(folder, "broker.key", keys["broker"]),
        peer=write(folder, "peer.pem", peer),
        peer_key=write(folder, "peer.key", keys["peer"]),
        stranger=write(folder, "stranger.pem", certificate("another CA", key=keys["stranger"], ca=True)),
        early=write(folder, "early.pem", early),
        late=write(folder, "late.pem", late),
        refused={why: write(folder, f"{why}.pem".replace(" ", "-"), each) for why, each in refused.items()},
        revoked=revocations(folder, refused["revoked"], issuer=ca.subject, issuer_key=keys["ca"]),
    )


def configured(*lines, replace=None):
    """The embedded mosquitto with further lines in its configuration."""
    found = mosquitto() or pytest.skip("mosquitto is not installed")

    def configuration(host, port):
        text = found.configuration(host, port)
        for old, new in (replace or {}).items():
            text = text.replace(old, new)
        return text + "\n".join(lines) + "\n"

    return run_program(Program(found.kind, found.command, configuration), host="127.0.0.1", port=0)


@pytest.fixture(scope="session")
def mosquitto_url():
    if mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    with embedded(kind="mosquitto") as broker:
        yield broker.url


@pytest.fixture(scope="session")
def iotcore_url():
    if iotcore() is None:
        pytest.skip("iotcore is not installed")
    with embedded(kind="iotcore") as broker:
        yield broker.url


@pytest.fixture(scope="session")
def tls_url(certificates):
    """A broker that shows a certificate and asks for one."""
    lines = [
        f"cafile {certificates.ca}",
        f"certfile {certificates.broker}",
        f"keyfile {certificates.broker_key}",
        "require_certificate true",
    ]
    with configured(*lines) as broker:
        yield broker.url.replace("mqtt://", "mqtts://")


WEBSOCKETS = """
id = 0
[router]
id = 0
max_connections = 1000
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[ws.1]
name = "websockets"
listen = "{host}:{port}"
next_connection_delay_ms = 1
[ws.1.connections]
connection_timeout_ms = 60000
max_payload_size = 2097152
max_inflight_count = 100
"""

SERVE = (
    "import logging, sys; from iotcore.iotcore import IotCoreBroker;"
    "logging.getLogger('rumqttd').setLevel(logging.CRITICAL + 1); IotCoreBroker(config_path=sys.argv[1]).run_forever()"
)


@pytest.fixture(scope="session")
def websocket_url(tmp_path_factory):
    """iotcore speaks websockets from a file; Debian's mosquitto does not."""
    found = iotcore() or pytest.skip("iotcore is not installed")
    file = tmp_path_factory.mktemp("websockets") / "rumqttd.toml"

    def command(host, port):
        file.write_text(WEBSOCKETS.format(host=host, port=port))
        return [sys.executable, "-c", SERVE, str(file)]

    with run_program(Program(found.kind, command), host="127.0.0.1", port=0) as broker:
        yield broker.url.replace("mqtt://", "ws://")


@pytest.fixture(
    params=[
        "memory",
        "memory that lasts",
        "folder",
        "folder that lasts",
        "memory below a prefix",
        "folder below a prefix",
        "mosquitto",
        "mosquitto below a prefix that lasts",
        "mosquitto that lasts",
        "mosquitto with MQTT 5",
        "mosquitto with TLS",
        "iotcore",
        "iotcore with websockets",
    ]
)
def transport(request):
    kind, separator, _ = request.param.partition(" that lasts")
    kind, below, _ = kind.partition(" below a prefix")
    made = make_transport(kind, request)
    if below:
        made = PrefixedTransport(made, "plant7/hall.2/")
    return LastingTransport([made]) if separator else made


def make_transport(kind, request):
    match kind:
        case "memory":
            return MemoryTransport()
        case "folder":
            return FolderTransport(request.getfixturevalue("tmp_path"), beat=0.2)
        case "mosquitto":
            return MqttTransport(request.getfixturevalue("mosquitto_url"))
        case "mosquitto with MQTT 5":
            return MqttTransport(request.getfixturevalue("mosquitto_url"), version=5)
        case "mosquitto with TLS":
            files = request.getfixturevalue("certificates")
            url = request.getfixturevalue("tls_url")
            return MqttTransport(url, ca=files.ca, certificate=files.peer, key=files.peer_key)
        case "iotcore with websockets":
            return MqttTransport(request.getfixturevalue("websocket_url"))
        case _:
            return MqttTransport(request.getfixturevalue("iotcore_url"))


@pytest.fixture
def room():
    """A prefix of topics and names that no other test uses."""
    return f"room{next(COUNTER)}"


@pytest.fixture
def configured_broker():
    """Start the embedded mosquitto with other settings."""
    return configured
