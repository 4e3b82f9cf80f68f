"""A device with its files, and a real mosquitto that tests break."""

import asyncio
import contextlib
import datetime as dt
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from certificates import certificate, write
from fleets import PLANT
from p2pfl.network.protocol.wire.message_codec import rights
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from p2pfl.network.transport.hardened import configure
from p2pfl.plugins.operate.checks import neighbours
from p2pfl.plugins.operate.doctor import examine
from p2pfl.privacy.keys import Identity, Roster, SecretSource
from wine_files import wine_file

SMALL = wine_file("small", peers=2)

PEERS = ("peer0", "peer1")


@dataclass
class Site:
    """The folder of a device, an experiment in it, and the broker's configuration."""

    folder: Path
    url: str = ""
    changes: list[str] = field(default_factory=list)

    @property
    def broker(self):
        return self.folder / "broker"

    def identity(self, peer):
        return Identity.load(self.folder / "keys" / f"{peer}.pem")

    def examine(self, *changes, peer="peer0"):
        """What the doctor finds."""
        how = {"peer": peer, "runs": self.folder / "runs", "environment": {}}
        return asyncio.run(examine(str(self.folder / "small.toml"), changes=[*self.changes, *changes], **how))

    def found(self, check, *changes, **how):
        """The one finding of a check."""
        findings = self.examine(*changes, **how)
        [finding] = [each for each in findings if each.check == check] or [findings]
        return finding

    def certify(self, *, begins=2020, ends=2120):
        """Replace the certificate of the broker by one that an authority has signed, and return the authority's."""
        keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
        authority = certificate("our authority", key=keys[0], ca=True)
        broker = certificate(
            "a broker", key=keys[1], issuer=authority.subject, issuer_key=keys[0], begins=begins, ends=ends
        )
        write(self.broker, "broker.pem", broker)
        write(self.broker, "broker.key", keys[1])
        return write(self.folder, "ca.pem", authority)

    @contextlib.contextmanager
    def listening(self, *lines, replace=None):
        """Run mosquitto with the configuration, and further lines in it."""
        found = mosquitto() or pytest.skip("mosquitto is not installed")

        def configuration(host, port):
            text = (self.broker / "mosquitto.conf").read_text()
            for old, new in {
                "listener 8883 127.0.0.1": f"user root\nlistener {port} {host}",
                **(replace or {}),
            }.items():
                assert old in text
                text = text.replace(old, new)
            return "\n".join([text, *lines]) + "\n"

        with run_program(Program(found.kind, found.command, configuration), host="127.0.0.1", port=0) as broker:
            self.changes = [*self.changes, f"transport.broker={broker.url.replace('mqtt:', 'mqtts:')}"]
            self.url = broker.url.replace("mqtt:", "mqtts:")
            yield self


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A device whose files are right."""
    monkeypatch.setattr(neighbours, "SILENCE_SECONDS", 0.5)
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "keys").mkdir(mode=0o700)
    made = {name: Identity.generate(SecretSource(), peer=name) for name in PEERS}
    for name, identity in made.items():
        identity.save(tmp_path / "keys" / f"{name}.pem")
    Roster({name: identity.public for name, identity in made.items()}).write(tmp_path / "roster.toml")
    configure(tmp_path / "broker", rights=rights("small"), peers=PEERS, host="127.0.0.1", port=8883)
    files = {
        "transport.ca": "broker/broker.pem",
        "transport.credentials": "broker/credentials",
        "trust.keys": "keys",
        "trust.roster": "roster.toml",
    }
    return Site(tmp_path, changes=[f"{key}={tmp_path / path}" for key, path in files.items()])


@pytest.fixture
def now():
    return dt.datetime.now(dt.UTC)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with an experiment and something in place of a wheel."""
    (tmp_path / "plant.toml").write_text(PLANT)
    (tmp_path / "p2pfl_mqtt-0.3.0-py3-none-any.whl").write_bytes(b"a wheel")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path
