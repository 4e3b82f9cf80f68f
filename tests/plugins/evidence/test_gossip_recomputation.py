"""Models of gossip from kept rows: honest runs follow to the bit, and a model that does not is named."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch
from safetensors.torch import save_file

from p2pfl.cli import main
from p2pfl.cli.experiments import check_kept_rows
from p2pfl.core.errors import InputError, StorageError
from p2pfl.experiment import read
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.evidence.forgetting import model_files
from p2pfl.plugins.evidence.gossip_recomputation import recompute_gossip
from p2pfl.plugins.evidence.recomputation import plan_without_data
from p2pfl.plugins.evidence.verification import find_chains, verify
from p2pfl.privacy.keys import Identity, SeededSource
from p2pfl.results.evidence import Chain, RoundPlayed, RowSent, read_chain
from p2pfl.results.sent_rows import SentRow, keep_rows, read_row
from restarts import RestartablePeers
from swarms import SMALL

pytestmark = pytest.mark.slow

MASKED = ["topology.kind=complete", "topology.peers=4", "rounds=4", "privacy.mode=pairwise", "gossip.steps=1"]
LIAR = "peer1"


async def played(folder, *changes, kill=None, table=SMALL):
    """Play a run whose peers keep their rows, and return its experiment."""
    (folder / "peers").mkdir(parents=True)
    keep_rows(folder)
    experiment = read(table, changes=[*MASKED, *changes])
    async with asyncio.timeout(120):
        lives = RestartablePeers(experiment, MemoryTransport(), folder / "peers")
        lives.start()
        if kill is not None:
            await lives.until(lambda now: now[kill].mailbox.gossip_step >= (2, 0))
            await lives.kill(kill)
            lives.start(kill, resume=True)
        await lives.end()
    return experiment


def recomputed(experiment, folder):
    plan = plan_without_data(experiment)
    return verify(find_chains([folder]), recompute=lambda chains: recompute_gossip(plan, chains))


FOLLOWING = {
    "weighted averages": [],
    "equal weights": ["learning.weighted=false"],
    "a part of the peers in each round": ["learning.fraction=0.5", "privacy.colluders=0"],
    "several gossip steps": ["gossip.steps=3"],
    "an optimiser of the server": ["learning.algorithm=fedadam"],
    "steps of different lengths": ["learning.algorithm=fednova"],
    "two releases a round": ["learning.algorithm=gradient_tracking"],
    "attempts": ["privacy.departures=go_on"],
    "private noise under masks": ["privacy.clip=1.0", "privacy.noise=0.5"],
    "private noise alone": ["privacy.mode=independent", "privacy.clip=1.0", "privacy.noise=0.5"],
    "masks of single precision": ["learning.dtype=float32"],
}


@pytest.mark.parametrize("kind", FOLLOWING)
async def test_the_models_of_honest_peers_follow_from_their_rows_to_the_bit(tmp_path, kind):
    experiment = await played(tmp_path, *FOLLOWING[kind])
    result = recomputed(experiment, tmp_path)
    assert result.findings == ()
    assert "16 models of a peer and round, computed again from rows" in result.checked
    assert not any("the models of" in each for each in result.open)


async def test_models_of_tables_follow_without_the_tables(tmp_path):
    for number in range(4):
        lines = (f"{(7 * row + number) % 97},{'yes' if row % 3 else 'no'}" for row in range(20 + number))
        (tmp_path / f"peer{number}.csv").write_text("\n".join(["age,ill", *lines]))
    columns = {"age": "number", "ill": ["no", "yes"]}
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "ill", "columns": columns}
    table = SMALL | {"data": {"name": "table", "scale": True, "options": options}, "model": {"name": "linear"}}
    experiment = await played(tmp_path / "run", table=table)
    for path in tmp_path.glob("*.csv*"):
        path.unlink()
    result = recomputed(experiment, tmp_path / "run")
    assert result.findings == ()
    assert "16 models of a peer and round, computed again from rows" in result.checked


@pytest.mark.parametrize("algorithm", ["dpsgd", "ditto"])
async def test_a_model_that_training_changes_after_the_mixing_is_named_as_private(tmp_path, algorithm):
    result = recomputed(await played(tmp_path, f"learning.algorithm={algorithm}"), tmp_path)
    assert result.findings == ()
    assert not any("computed again" in each for each in result.checked)
    private = "the models of peer0 in 4 rounds from round 0, because training follows the mixing, and is private"
    assert private in result.open


@pytest.fixture
async def run(tmp_path):
    """A run of honest peers, with its folder."""
    return SimpleNamespace(experiment=await played(tmp_path), folder=tmp_path)


def rewrite(run, change, *, peer=LIAR):
    """Let a peer with its own key write its chain anew with other facts."""
    path = run.folder / "peers" / f"{peer}.evidence.jsonl"
    facts = [entry.fact for _, entry in read_chain(path)]
    path.unlink()
    chain = Chain(path, Identity.generate(SeededSource(1), peer=peer))
    for fact in facts:
        chain.append(change(fact))


def findings(run):
    return {(each.peer, each.round, each.sentence) for each in recomputed(run.experiment, run.folder).findings}


async def test_a_model_of_one_round_that_does_not_follow_is_named_with_peer_and_round(run):
    def change(fact):
        return (
            msgspec.structs.replace(fact, row="0" * 64) if isinstance(fact, RoundPlayed) and fact.round == 2 else fact
        )

    rewrite(run, change)
    assert findings(run) == {(LIAR, 2, "the model does not follow from the rows that it received")}


async def test_a_row_that_somebody_has_changed_is_named(run):
    digest = next(
        entry.fact.row
        for _, entry in read_chain(run.folder / "peers" / f"{LIAR}.evidence.jsonl")
        if isinstance(entry.fact, RowSent) and entry.fact.round == 1
    )
    path = run.folder / "rows" / LIAR / f"{digest}.row"
    other = SentRow(torch.zeros(3), None)
    other.write(path.parent)
    (path.parent / f"{other.digest}.row").rename(path)
    result = recomputed(run.experiment, run.folder)
    assert [*map(str, result.findings)] == [f"{path} is not the row of its digest; ask its peer for the file again"]
    assert "the models of peer0 in 1 round from round 1, because somebody has changed a row" in result.open
    save_file({"row": torch.zeros(10_000)}, path)
    assert "a row of this run has at most" in str(*recomputed(run.experiment, run.folder).findings)


FAULTY = {
    "too short": (lambda sent: SentRow(sent.row[1:], sent.mass), "shape"),
    "without its weight": (lambda sent: SentRow(sent.row, None), "shape"),
    "too heavy": (lambda sent: SentRow(sent.row, 1e9), "mass"),
}


@pytest.mark.parametrize("kind", FAULTY)
async def test_a_row_that_honest_receivers_reject_accuses_none_of_them(run, kind):
    change, fault = FAULTY[kind]
    sent = {
        entry.fact.round: entry.fact.row
        for _, entry in read_chain(run.folder / "peers" / f"{LIAR}.evidence.jsonl")
        if isinstance(entry.fact, RowSent)
    }
    former, faulty = sent[1], change(read_row([run.folder], LIAR, sent[1], size=10_000))
    faulty.write(run.folder / "rows" / LIAR)

    def note(fact):
        if isinstance(fact, RowSent) and fact.row == former:
            return msgspec.structs.replace(fact, row=faulty.digest)
        if isinstance(fact, RoundPlayed) and former in fact.received.get(LIAR, {}).values():
            received = fact.received | {LIAR: dict.fromkeys(fact.received[LIAR], faulty.digest)}
            return msgspec.structs.replace(fact, received=received, row="0" * 64)
        return fact

    for number in range(4):
        rewrite(run, note, peer=f"peer{number}")
    result = recomputed(run.experiment, run.folder)
    assert {each.peer for each in result.findings} <= {LIAR}
    reason = f"because the row of {LIAR} is no model of this run ({fault})"
    assert f"the models of peer0 in 1 round from round 1, {reason}" in result.open


async def test_rounds_without_a_kept_row_are_named_as_not_checked(run):
    for path in (run.folder / "rows" / LIAR).iterdir():
        path.unlink()
    result = recomputed(run.experiment, run.folder)
    assert result.findings == ()
    assert "the models of peer0 in 4 rounds from round 0, because peer1 has not kept its row" in result.open


async def test_a_peer_that_was_killed_is_no_liar(tmp_path):
    result = recomputed(await played(tmp_path, "rounds=8", "privacy.departures=go_on", kill="peer2"), tmp_path)
    assert result.findings == ()
    assert any("computed again from rows" in each for each in result.checked)


async def test_forgetting_deletes_the_rows(run):
    assert {path for path in model_files(run.folder) if path.suffix == ".row"} == {
        *(run.folder / "rows").glob("*/*.row")
    }


@pytest.mark.fast
def test_a_row_that_cannot_be_kept_is_an_error_of_the_disk(tmp_path):
    with pytest.raises(StorageError, match="cannot be made"):
        SentRow(torch.zeros(3), None).write(tmp_path / "absent" / LIAR)


@pytest.mark.fast
def test_a_run_that_began_without_rows_does_not_keep_them_later(tmp_path):
    resolved = plan_without_data(read(SMALL, changes=MASKED))
    with pytest.raises(InputError, match="this run began without --keep-rows"):
        check_kept_rows(resolved, wanted=True, resumed=tmp_path)
    check_kept_rows(resolved, wanted=False, resumed=tmp_path)
    keep_rows(tmp_path)
    check_kept_rows(resolved, wanted=True, resumed=tmp_path)


REFUSED = {
    "models in clear": (["--set", "privacy.mode=none"], "models leave in clear"),
    "neighbours of a ring": (["--set", "topology.kind=ring"], "rows of all would show more"),
    "secure sums": (["--set", "privacy.mode=secagg"], "no models leave as they are averaged"),
    "robust rules": (
        ["--set", "robustness.rule=median", "--set", "privacy.mode=none", "--set", "learning.weighted=false"],
        "peers do not average all models that leave",
    ),
}


@pytest.mark.fast
@pytest.mark.parametrize("kind", REFUSED)
def test_rows_are_not_kept_where_they_would_show_more_than_each_peer_has_seen(tmp_path, monkeypatch, capsys, kind):
    monkeypatch.chdir(tmp_path)
    changes, sentence = REFUSED[kind]
    common = ["--set", "topology.kind=complete", "--set", "topology.peers=4", "--set", "privacy.mode=pairwise"]
    assert main(["run", "digits", "--keep-rows", *common, *changes]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("runs").exists()
