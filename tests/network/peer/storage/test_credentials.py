import asyncio

import pytest

from p2pfl.core.errors import InputError, PeerError, StorageError
from p2pfl.experiment import plan, read, schema
from p2pfl.network.peer import Peer
from p2pfl.network.peer.storage.credentials import credentials
from p2pfl.network.protocol.session.streams import Streams
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import FirstUse, Identity, Roster, SecretSource
from swarms import SMALL
from waiting import DEADLINE


def test_without_settings_an_identity_lasts_for_one_run_and_trust_is_on_first_use():
    one, other = (credentials(schema.TrustSettings(), peer="ada") for _ in range(2))
    assert one.identity.public != other.identity.public
    assert isinstance(one.trust, FirstUse)
    one.keep()  # nowhere


def test_a_folder_of_keys_is_made_and_used_again(tmp_path):
    settings = schema.TrustSettings(keys=str(tmp_path / "new" / "keys"))
    assert credentials(settings, peer="ada").identity.public == credentials(settings, peer="ada").identity.public


def test_a_key_that_was_trusted_on_first_use_is_the_only_one_next_time(tmp_path):
    settings = schema.TrustSettings(keys=str(tmp_path))
    bob, mallory = (Identity.generate(SecretSource(), peer="bob") for _ in range(2))
    first = credentials(settings, peer="ada")
    first.trust.remember("bob", bob.public)
    first.keep()
    again = credentials(settings, peer="ada")
    again.trust.check("bob", bob.public)
    with pytest.raises(PeerError, match="as before"):
        again.trust.check("bob", mallory.public)


def test_two_peers_of_a_device_that_are_shown_different_keys_under_one_name_stop(tmp_path):
    settings = schema.TrustSettings(keys=str(tmp_path))
    bob, mallory = (Identity.generate(SecretSource(), peer="bob") for _ in range(2))
    ada, eve = credentials(settings, peer="ada"), credentials(settings, peer="eve")
    ada.trust.remember("bob", bob.public)
    eve.trust.remember("bob", mallory.public)
    ada.keep()
    with pytest.raises(PeerError, match="as before"):
        eve.keep()
    assert Roster.read(tmp_path / "known.toml").peers == {"bob": bob.public}


def test_keys_that_are_written_are_not_written_again(tmp_path):
    settings = schema.TrustSettings(keys=str(tmp_path))
    ada = credentials(settings, peer="ada")
    ada.trust.remember("bob", Identity.generate(SecretSource(), peer="bob").public)
    ada.keep()
    (tmp_path / "known.toml").unlink()
    ada.keep()
    credentials(settings, peer="ada").keep()
    assert not (tmp_path / "known.toml").exists()
    ada.trust.remember("cyd", Identity.generate(SecretSource(), peer="cyd").public)
    ada.keep()
    assert set(Roster.read(tmp_path / "known.toml").peers) == {"bob", "cyd"}


@pytest.mark.slow
async def test_a_key_is_written_at_the_first_meeting_before_the_first_model_leaves(tmp_path, monkeypatch):
    experiment = read(SMALL, changes=["rounds=1", "topology.kind=complete", "topology.peers=3"])
    names, transport = ("peer0", "peer1", "peer2"), MemoryTransport()
    known, put = [], Streams.put

    def putting(streams, model, *, phase):
        known.append([set(Roster.read(file).peers) for file in tmp_path.glob("*/known.toml")])
        put(streams, model, phase=phase)

    async def one(name):
        owned = credentials(schema.TrustSettings(keys=str(tmp_path / name)), peer=name)
        how = {"identity": owned.identity, "trust": owned.trust, "remember": owned.keep}
        async with Peer(name, plan(experiment, only=[name]), transport=transport, incarnation=1, **how) as peer:
            await peer.run()

    monkeypatch.setattr(Streams, "put", putting)
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))
    assert {"peer1", "peer2"} in known[0] or {"peer0", "peer2"} in known[0] or {"peer0", "peer1"} in known[0]
    assert all(len(peers) == 2 for peers in known[-1])


def test_a_roster_with_another_key_of_ours_is_refused_before_anything_starts(tmp_path):
    Roster({"ada": Identity.generate(SecretSource(), peer="ada").public}).write(tmp_path / "roster.toml")
    Identity.generate(SecretSource(), peer="ada").save(tmp_path / "ada.pem")
    with pytest.raises(PeerError, match='"ada" presents the key'):
        credentials(schema.TrustSettings(roster=str(tmp_path / "roster.toml"), keys=str(tmp_path)), peer="ada")


@pytest.mark.parametrize("roster", [True, False])
def test_a_key_that_is_gone_and_that_others_know_is_not_made_anew(tmp_path, roster):
    Roster({"ada": Identity.generate(SecretSource(), peer="ada").public}).write(tmp_path / "roster.toml")
    settings = schema.TrustSettings(
        roster=str(tmp_path / "roster.toml") if roster else None, keys=str(tmp_path / "gone")
    )
    with pytest.raises(InputError, match=r"gone/ada\.pem does not exist, and the others accept no other key; bring it"):
        credentials(settings, peer="ada", again=not roster)
    assert not (tmp_path / "gone").exists()


def test_a_roster_is_not_overwritten_by_what_was_seen(tmp_path):
    ada = Identity.generate(SecretSource(), peer="ada")
    ada.save(tmp_path / "ada.pem")
    Roster({"ada": ada.public}).write(tmp_path / "roster.toml")
    owned = credentials(schema.TrustSettings(roster=str(tmp_path / "roster.toml"), keys=str(tmp_path)), peer="ada")
    owned.keep()
    assert not (tmp_path / "known.toml").exists()


@pytest.mark.parametrize("file", ["ada.pem", "known.toml", "roster.toml"])
def test_a_file_that_cannot_be_used_is_refused_by_its_name(tmp_path, file):
    (tmp_path / file).write_text("junk")
    (tmp_path / file).chmod(0o600)
    roster = str(tmp_path / "roster.toml") if file == "roster.toml" else None
    with pytest.raises(InputError, match=file):
        credentials(schema.TrustSettings(roster=roster, keys=str(tmp_path)), peer="ada")


def test_a_key_that_others_can_read_is_refused(tmp_path):
    Identity.generate(SecretSource(), peer="ada").save(tmp_path / "ada.pem")
    (tmp_path / "ada.pem").chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        credentials(schema.TrustSettings(keys=str(tmp_path)), peer="ada")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match="cannot be made"):
        credentials(schema.TrustSettings(keys=str(tmp_path / "taken" / "keys")), peer="ada")


def test_peers_of_one_device_add_to_the_keys_that_they_remember(tmp_path):
    settings = schema.TrustSettings(keys=str(tmp_path))
    ada, bob, cyd = (Identity.generate(SecretSource(), peer=peer) for peer in ("ada", "bob", "cyd"))
    lives = [credentials(settings, peer=peer) for peer in ("ada", "bob")]
    lives[0].trust.remember("bob", bob.public)
    lives[1].trust.remember("ada", ada.public)
    lives[1].trust.remember("cyd", cyd.public)
    for life in lives:
        life.keep()
    assert set(Roster.read(tmp_path / "known.toml").peers) == {"ada", "bob", "cyd"}
