"""The header of a board is written only of an experiment that the board can play."""

import copy

import msgspec
import pytest

from boards import MICRO
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import Experiment, read
from p2pfl.network.protocol.wire.wire_codec import VERSION
from p2pfl.privacy.keys import Identity, Roster, SeededSource

RING = {
    "topology": {"kind": "ring", "peers": 4},
    "model": {"hidden": [32]},
    "learning": {"algorithm": "dpsgd", "device": "cpu"},
}
REFUSED = {
    "privacy.mode=pairwise": "a board does not have privacy.mode = 'pairwise'; set it to its default",
    "learning.optimizer=adam": "a board does not have learning.optimizer = 'adam'; set it to \"sgd\"",
    "learning.algorithm=scaffold": (
        'a board does not have learning.algorithm = \'scaffold\'; set it to "dpsgd" or "fedavg"'
    ),
    "model.name=cnn": 'a board does not have model.name = \'cnn\'; set it to "mlp" or "linear"',
    "compression.name=float16": "a board does not have compression.name = 'float16'; set it to its default",
    "data.scale=true": "a board does not have data.scale = True; set it to its default",
    "learning.dtype=float64": "a board does not have learning.dtype = 'float64'; set it to its default",
    "robustness.rule=median": "a board does not have robustness.rule = 'median'; set it to its default",
    "learning.algorithm=fedavg": "a board weights all peers alike; set learning.weighted = false",
    "transport.pace.every=10 min": "a board does not have transport.pace",
    "transport.gather.quorum=0.5": "a board waits for all its neighbours; leave out transport.gather.quorum",
    "transport.chunk=4096": "a board reads a model in one message; set transport.chunk to 10664 at least",
    "topology.kind=one_peer_exponential": (
        "a board has one list of neighbours, which weight it alike; choose an undirected graph"
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_settings_that_a_board_does_not_have_are_refused_in_a_sentence(flash, change):
    with pytest.raises(ExperimentError) as refused:
        flash.flashed(read(RING, changes=[change]), "peer1")
    assert str(refused.value).startswith(REFUSED[change])


def unset_keys(part, beginning=""):
    """Yield all keys that are empty by default."""
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, msgspec.Struct):
            yield from unset_keys(value, f"{beginning}{name}.")
        elif value is None:
            yield beginning + name


def with_value(part, first, *rest):
    """Return a copy of a part of an experiment in which one key has a value, which nothing else checks."""
    changed = copy.copy(part)
    msgspec.structs.force_setattr(changed, first, with_value(getattr(part, first), *rest) if rest else "some")
    return changed


@pytest.mark.parametrize("key", [*unset_keys(Experiment())])
def test_setting_that_is_empty_by_default_is_read_or_refused_in_a_sentence(flash, key):
    experiment = with_value(Experiment(), *key.split("."))
    if (key.startswith(flash.FREE) and key not in flash.BARRED) or key in flash.ANY:
        flash.check_settings(experiment)
    else:
        with pytest.raises(ExperimentError, match=f"a board does not have {key} = .*; set it to its default"):
            flash.check_settings(experiment)


SEEDS = {name: SeededSource(3).bytes(32, purpose="identity", peer=name) for name in ("peer0", "peer1", "peer2")}


def listed(tmp_path, roster):
    roster.write(tmp_path / "roster.toml")
    return read(RING, changes=[f"trust.roster={tmp_path / 'roster.toml'}"])


@pytest.fixture
def roster():
    return Roster({name: Identity(seed).public for name, seed in SEEDS.items()})


@pytest.mark.parametrize("peer", ["peer0", "peer1"])
def test_revoked_key_of_a_neighbour_or_of_the_board_is_refused(flash, tmp_path, roster, peer):
    experiment = listed(tmp_path, roster.revoke(roster.peers[peer], reason="stolen"))
    with pytest.raises(ExperimentError, match=f'the roster revokes the key of "{peer}"; give it a new identity'):
        flash.flashed(experiment, "peer1", SEEDS["peer1"])


def test_neighbour_that_the_roster_lacks_is_refused(flash, tmp_path, roster):
    experiment = listed(tmp_path, Roster({name: key for name, key in roster.peers.items() if name != "peer2"}))
    with pytest.raises(ExperimentError, match='the roster does not contain "peer2"; add its key'):
        flash.flashed(experiment, "peer1", SEEDS["peer1"])


@pytest.mark.parametrize("given", [None, "peer0"])
def test_board_of_a_roster_has_the_private_key_of_its_name(flash, tmp_path, roster, given):
    experiment = listed(tmp_path, roster)
    with pytest.raises(ExperimentError, match="name the file of its private key by --identity"):
        flash.flashed(experiment, "peer1", given and SEEDS[given])
    assert flash.octets(SEEDS["peer1"]) in flash.flashed(experiment, "peer1", SEEDS["peer1"])


def test_board_has_the_version_of_the_wire_format_of_python():
    """Where this fails, see whether the messages of a plain round have changed, and only then raise the board's."""
    assert f"#define WIRE_VERSION {VERSION}\n" in (MICRO / "wire.h").read_text()


def test_unknown_peer_is_refused(flash):
    with pytest.raises(ExperimentError, match='"eve" is no peer of the experiment; its peers are peer0, peer1'):
        flash.check_plan(flash.plan(read(RING)), "eve")


def test_program_ends_with_the_sentence_or_writes_the_header(flash, tmp_path, capsys):
    file = tmp_path / "ring.toml"
    file.write_text('[topology]\nkind = "ring"\npeers = 4\n[learning]\nalgorithm = "dpsgd"\n')
    assert flash.main([str(file), "peer1", "--set", "data.scale=true"]) == 2
    assert capsys.readouterr() == ("", "a board does not have data.scale = True; set it to its default\n")
    assert flash.main([str(file), "peer1"]) == 0
    assert "#define MICRO_NEIGHBOURS 2\n" in capsys.readouterr().out
