"""Bundles of a small plant, and requests of its devices."""

import contextlib
import datetime as dt

from p2pfl.core.errors import InputError
from p2pfl.plugins.operate.bundles.fleet import Fleet
from p2pfl.privacy.keys import Identity, SecretSource
from p2pfl.privacy.keys.key_requests import request
from wine_files import wine_file

PLANT = wine_file("plant", rounds=3, more="[transport]\ngather = 120\n")
PEERS = ("peer0", "peer1", "peer2")
NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


def bundles(place, *, port=8883, machine="aarch64"):
    fleet = Fleet.open(str(place / "plant.toml"), out=place / "fleet", trust_code=True)
    wheel = place / "p2pfl_mqtt-0.3.0-py3-none-any.whl"
    fleet.write(brokers=[f"mqtts://127.0.0.1:{port}"], machines=[machine], wheel=wheel, now=NOW)
    return fleet


def asked(place, peer, *, folder=None):
    """The request of a device, which has its keys in a folder of its own."""
    keys = place / (folder or f"device-{peer}")
    keys.mkdir(exist_ok=True)
    with contextlib.suppress(InputError):
        Identity.generate(SecretSource(), peer=peer).save(keys / f"{peer}.pem")
    request(peer, keys=keys, to=keys / "request.toml")
    return keys / "request.toml"


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
