"""Peers read data that grow between rounds: live as simulated, and again after a restart."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from p2pfl.algorithms import State
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.core.neighbourhood import Public
from p2pfl.data.readings import rows_of
from p2pfl.data.tables import cells
from p2pfl.experiment import plan, read
from p2pfl.experiment.growing_data import GrowingData
from p2pfl.experiment.resolving import federate_data
from p2pfl.experiment.swarm_agreement import directly
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch import swarm as launcher
from p2pfl.network.peer.storage.checkpoint import Checkpoint, CheckpointStore, pack, unpack
from p2pfl.network.transport import MemoryTransport
from p2pfl.results.notices.kinds import DataOutdated, DataRead, DataReplaced, DataUnreadable
from p2pfl.simulation import simulate
from p2pfl.simulation.sharding import Shard
from streaming import FIRST, MORE
from swarms import SMALL, live, timeless

pytestmark = pytest.mark.slow

GROWING = [
    *("data.name=streaming:stream", "data.options={classes=2}", "data.split=iid", "data.refresh=2", "rounds=6"),
    *("topology.kind=complete", "topology.peers=3", "topology.options={}", "gossip.steps=1", "learning.batch=16"),
]


class PowerError(Exception):
    """The power fails."""


SETTINGS = {
    "plain": [],
    "masks": ["privacy.mode=pairwise"],
    "scaled": ["data.scale=true"],
    "validation": ["data.validation=0.2"],
    "scaffold": ["learning.algorithm=scaffold"],
    "fednova": ["learning.algorithm=fednova"],
    "scaffold of a few, unequal": [
        *("learning.algorithm=scaffold", "learning.fraction=0.34", "data.name=streaming:uneven"),
        "topology.peers=6",
    ],
    "all alike, D-PSGD": ["learning.algorithm=dpsgd"],
}


def growing(*more):
    return read(SMALL, changes=[*GROWING, *more])


@pytest.mark.parametrize("more", SETTINGS.values(), ids=SETTINGS)
def test_peers_with_data_that_grow_end_as_their_simulation(more):
    experiment, notices = growing(*more), []
    simulated = simulate(experiment, baselines=False)
    ended = timeless(live(experiment, MemoryTransport(), notice=notices.append))
    close = 2.0**-20 if "privacy.mode=pairwise" in more else 1e-10
    for peer, each in ended.items():
        row = torch.cat([value.flatten() for value in simulated.models[peer].values()])
        torch.testing.assert_close(each.state.rows[0], row, atol=close, rtol=0)
    told = sorted((each.peer, each.round, each.rows, each.new) for each in notices if isinstance(each, DataRead))
    assert told == sorted(
        (each.peer, each.round, each.rows, each.new) for each in simulated.events if isinstance(each, DataRead)
    )
    if "data.name=streaming:uneven" not in more:
        assert told[:2] == [("peer0", 2, FIRST + 2 * MORE, 2 * MORE), ("peer0", 4, FIRST + 4 * MORE, 2 * MORE)]


def test_data_that_one_peer_cannot_read_stop_neither_the_swarm_nor_its_simulation():
    experiment, notices = growing("data.name=streaming:failing"), []
    simulated = simulate(experiment, baselines=False)
    ended = timeless(live(experiment, MemoryTransport(), notice=notices.append))
    for peer, each in ended.items():
        row = torch.cat([value.flatten() for value in simulated.models[peer].values()])
        torch.testing.assert_close(each.state.rows[0], row, atol=1e-10, rtol=0)
    told, same = (
        sorted(str(each) for each in events if isinstance(each, DataRead | DataUnreadable))
        for events in (notices, simulated.events)
    )
    assert told == same
    assert [each.round for each in notices if isinstance(each, DataUnreadable)] == [2]
    assert {each.round for each in notices if isinstance(each, DataRead) and each.peer == "peer0"} == {4}
    assert {each.round for each in notices if isinstance(each, DataRead) and each.peer == "peer1"} == {2, 4}


@pytest.mark.parametrize("patience", [[], ["learning.patience=2"]], ids=["all rounds", "patience"])
def test_models_are_the_best_on_the_rows_that_judge_them_now(patience):
    experiment = growing("data.name=streaming:turning", "data.validation=0.3", "learning.rate=0.1", *patience)
    simulated = simulate(experiment, baselines=False)
    ended = timeless(live(experiment, MemoryTransport()))
    for peer, each in ended.items():
        best = each.peer.best.best
        assert best.round >= 4  # losses on the rows from before are smaller
        assert best.round == simulated.summary["best"][peer]["round"]
        assert best.loss == pytest.approx(simulated.summary["best"][peer]["loss"])
        assert each.peer.done == 6


@pytest.mark.fast
def test_weights_follow_the_rows_that_came():
    grown, fixed = (
        simulate(growing(f"data.options={{classes=2, more={more}}}"), baselines=False) for more in (MORE, 0)
    )
    assert any(not torch.equal(value, fixed.models["peer0"][name]) for name, value in grown.models["peer0"].items())
    assert not [each for each in fixed.events if isinstance(each, DataRead)]


def test_a_simulation_that_resumes_has_the_rows_of_the_last_reading(tmp_path):
    def interrupt(records):
        if records[0].round == 3:
            raise PowerError

    whole, place = simulate(growing(), baselines=False), tmp_path / "run"
    with pytest.raises(PowerError):
        simulate(growing(), baselines=False, folder=place, observe=interrupt)
    resumed = simulate(growing(), baselines=False, folder=place, resume=True)
    for peer, model in whole.models.items():
        for name, value in model.items():
            torch.testing.assert_close(resumed.models[peer][name], value, rtol=0, atol=0)


@pytest.mark.usefixtures("tables")
def test_a_simulation_does_not_resume_with_features_that_other_rows_scale(tmp_path):
    def interrupt(records):
        if records[0].round == 3:
            raise PowerError

    experiment, place = read(SMALL, changes=[*TABLE, "data.scale=true"]), tmp_path / "run"
    with pytest.raises(PowerError):
        simulate(experiment, baselines=False, folder=place, observe=interrupt)
    with pytest.raises(InputError, match="do not keep the mean and deviation of the beginning; simulate it anew"):
        simulate(experiment, baselines=False, folder=place, resume=True)


def test_the_loss_on_new_rows_is_that_of_the_model_before_it_trains_on_them():
    rounds = simulate(growing("rounds=2"), baselines=False)
    told = [each for each in simulate(growing("rounds=3"), baselines=False).events if isinstance(each, DataRead)]
    resolved = plan(growing())
    later = plan(growing("data.options={classes=2, round=2}", "data.refresh=3"))
    whole = later.federation
    new = {peer: part[-told[number].new :] for number, (peer, part) in enumerate(_all_rows(whole).items())}
    judged = type(whole)(whole.dataset, whole.train, whole.validation, new)
    rows = torch.stack(
        [torch.cat([value.flatten() for value in rounds.models[peer].values()]) for peer in resolved.federation.peers]
    )
    losses = later.learner.on(judged).evaluate(rows, peers=resolved.federation.peers)["loss"]
    assert losses.tolist() == pytest.approx([each.loss for each in told])


def _all_rows(federation):
    return {peer: rows_of(federation, peer) for peer in federation.peers}


TABLE = [
    *("data.name=table", 'data.options={path="{peer}.csv", target="y", columns={x="number", y=["a", "b"]}}'),
    *("data.split=iid", "data.refresh=2", "topology.kind=complete", "topology.peers=2", "topology.options={}"),
    *("gossip.steps=1", "rounds=6"),
]


def append(peer, rows, *, offset=0):
    """Append rows to the table of a peer."""
    file = Path(f"{peer}.csv")
    lines = file.read_text("utf-8").splitlines() if file.exists() else ["x,y"]
    numbers = range(len(lines) - 1, len(lines) - 1 + rows)
    lines += [f"{offset + (number * 37 % 101) / 50},{'ab'[number % 2]}" for number in numbers]
    file.write_text("\n".join([*lines, ""]), "utf-8")


def at_round(number, act):
    """Act when a peer has ended a round."""

    def observe(record, state):
        del state
        if record.round == number and record.peer == "peer0":
            act()

    return observe


async def swarm(experiment, *, observe=None, notices=None, stores=None, former=None):
    """Run two peers over one transport."""
    transport, ended = MemoryTransport(), {}

    async def one(name):
        store = None if stores is None else stores[name]
        peer = Peer(
            name,
            plan(experiment, only=[name]),
            transport=transport,
            incarnation=5 if former is None else 6,
            observe=observe,
            notice=None if notices is None else notices.append,
            store=store,
            former=None if former is None else former[name],
        )
        async with peer:
            ended[name] = (peer, await peer.run())

    async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
        for name in ("peer0", "peer1"):
            tasks.create_task(one(name))
    return ended


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for peer in ("peer0", "peer1"):
        append(peer, 60)
    return tmp_path


@pytest.mark.fast
@pytest.mark.usefixtures("tables")
def test_rows_that_are_appended_to_a_table_are_trained_on():
    notices = []
    ended = timeless(
        swarm(read(SMALL, changes=TABLE), observe=at_round(0, lambda: append("peer0", 300)), notices=notices)
    )
    first = next(each for each in notices if isinstance(each, DataRead) and each.peer == "peer0")
    assert (first.round, first.rows, first.new, first.appended) == (2, 360, 300, True)
    peer = ended["peer0"][0]
    assert sum(peer.plan.federation.sizes("peer0")) == 360
    assert first.train == peer.plan.federation.sizes("peer0").train


@pytest.mark.fast
@pytest.mark.usefixtures("tables")
def test_a_peer_that_reads_its_table_once_says_once_that_it_has_changed():
    notices, once = [], [each for each in TABLE if each != "data.refresh=2"]
    timeless(swarm(read(SMALL, changes=once), observe=at_round(1, lambda: append("peer0", 300)), notices=notices))
    told = [each for each in notices if isinstance(each, DataOutdated)]
    assert [(each.peer, each.round) for each in told] == [("peer0", 2)]


@pytest.mark.usefixtures("tables")
def test_a_database_has_changed_with_the_log_beside_it():
    once = read(SMALL, changes=[each for each in TABLE if each != "data.refresh=2"])
    data = GrowingData.of(plan(once, only=["peer0"]), ("peer0",))
    assert data.outdated() == ()
    Path("peer0.csv-wal").write_bytes(b"rows")
    assert data.outdated() == ("peer0",)
    Path("peer0.csv-wal").unlink()
    Path("peer0.csv").unlink()
    assert data.outdated() == ()  # a file that is gone is no new rows


def test_a_table_that_cannot_be_read_is_no_reason_to_stop(tables):
    notices = []
    damage = at_round(0, lambda: (tables / "peer0.csv").write_text("x,y\n1.5,nobody\n", "utf-8"))
    ended = timeless(swarm(read(SMALL, changes=TABLE), observe=damage, notices=notices))
    told = [each for each in notices if isinstance(each, DataUnreadable)]
    assert [(each.peer, each.round) for each in told] == [("peer0", 2)]
    assert sum(ended["peer0"][0].plan.federation.sizes("peer0")) == 60


@pytest.mark.fast
def test_a_table_whose_last_line_has_no_end_is_not_read(tables):
    data = GrowingData.of(plan(read(SMALL, changes=TABLE), only=["peer0"]), ("peer0",))
    table = tables / "peer0.csv"
    whole = table.read_text("utf-8")
    table.write_text(whole + "1.2,b\n1.5,a", "utf-8")  # the rest of 1.5,a or of 1.5,ab is on its way
    kept, failed = data.again(2)
    assert "does not end, so it may be half written" in failed["peer0"]
    assert sum(kept.plan.federation.sizes("peer0")) == 60
    again, failed = kept.again(3)
    assert not failed  # it was told
    table.write_text(whole + "1.2,b\n1.5,a\n", "utf-8")
    after, failed = again.again(3)
    assert (sum(after.plan.federation.sizes("peer0")), failed, after.due(3)) == (62, {}, ())


@pytest.mark.fast
def test_a_table_that_is_written_while_it_is_read_is_not_taken(tables, monkeypatch):
    data = GrowingData.of(plan(read(SMALL, changes=TABLE), only=["peer0"]), ("peer0",))
    as_it_was = cells._csv

    def meanwhile(path, form, *, header):
        append("peer0", 1)
        return as_it_was(path, form, header=header)

    monkeypatch.setattr(cells, "_csv", meanwhile)
    kept, failed = data.again(2)
    assert f"{tables / 'peer0.csv'}".rsplit("/", 1)[1] in failed["peer0"]
    assert "was written while it was read" in failed["peer0"]
    assert sum(kept.plan.federation.sizes("peer0")) == 60


@pytest.mark.fast
def test_a_table_that_lacks_rows_is_taken_once_two_readings_agree(tables):
    data = GrowingData.of(plan(read(SMALL, changes=TABLE), only=["peer0"]), ("peer0",))
    table = tables / "peer0.csv"
    lines = table.read_text("utf-8").splitlines(keepends=True)
    table.write_text("".join(lines[:31]), "utf-8")
    first, failed = data.again(2)
    assert "has 30 rows and lacks some of the 60 that it had" in failed["peer0"]
    table.write_text("".join(lines[:41]), "utf-8")  # its writer goes on
    second, failed = first.again(3)
    assert (sum(second.plan.federation.sizes("peer0")), failed) == (60, {})
    third, failed = second.again(4)
    assert (sum(third.plan.federation.sizes("peer0")), failed, third.due(4)) == (40, {}, ())
    table.write_text("".join(lines), "utf-8")
    whole, _ = third.again(6)
    assert sum(whole.plan.federation.sizes("peer0")) == 60


@pytest.mark.fast
@pytest.mark.parametrize("stored", ["csv", "sqlite"])
def test_a_window_of_the_last_rows_moves_with_a_table(tables, stored):
    changes = [*TABLE[:1], TABLE[1].replace(".csv", f".{stored}"), *TABLE[2:]]
    (tables / f"peer0.{stored}.toml").write_text("window = 50", "utf-8")

    def write():
        if stored == "sqlite":
            rows = [line.split(",") for line in (tables / "peer0.csv").read_text("utf-8").splitlines()[1:]]
            with closing(sqlite3.connect(tables / "peer0.sqlite")) as database, database:
                database.execute("CREATE TABLE IF NOT EXISTS readings (x REAL, y TEXT)")
                (known,) = database.execute("SELECT count(*) FROM readings").fetchone()
                database.executemany("INSERT INTO readings VALUES (?, ?)", rows[known:])

    write()
    data = GrowingData.of(plan(read(SMALL, changes=changes), only=["peer0"]), ("peer0",))
    before = rows_of(data.plan.federation, "peer0")
    append("peer0", 20)
    write()
    moved, failed = data.again(2)
    assert (len(before), sum(moved.plan.federation.sizes("peer0")), failed) == (50, 50, {})
    change = moved.changes(data, moved.plan.learner.initial[None])["peer0"]
    assert (change.rows, change.new, change.appended) == (50, 20, False)


@pytest.mark.fast
def test_a_reservoir_takes_the_rows_of_a_table_that_grows_at_once(tables):
    (tables / "peer0.csv.toml").write_text("reservoir = 50", "utf-8")
    data = GrowingData.of(plan(read(SMALL, changes=TABLE), only=["peer0"]), ("peer0",))
    new = 0
    for round in range(2, 22, 2):
        append("peer0", 10)
        before, (data, failed) = data, data.again(round)
        assert (sum(data.plan.federation.sizes("peer0")), failed, data.due(round)) == (50, {}, ())
        new += sum(each.new for each in data.changes(before, data.plan.learner.initial[None]).values())
    assert 20 < new < 75  # of 100 that came: 50 times the sum of 1 / n from 61 to 160 is 48
    fresh = GrowingData.of(plan(read(SMALL, changes=TABLE), only=["peer0"]), ("peer0",))
    assert fresh.position("peer0").digest == data.position("peer0").digest
    resumed, changed = fresh.resumed({"peer0": data.position("peer0")})
    assert (changed, resumed.position("peer0")) == ({}, data.position("peer0"))


@pytest.mark.fast
def test_a_reservoir_of_a_table_that_is_half_written_is_taken_once_two_readings_agree(tables):
    (tables / "peer0.csv.toml").write_text("reservoir = 50", "utf-8")
    data = GrowingData.of(plan(read(SMALL, changes=TABLE), only=["peer0"]), ("peer0",))
    lines = (tables / "peer0.csv").read_text("utf-8").splitlines(keepends=True)
    (tables / "peer0.csv").write_text("".join(lines[:56]), "utf-8")
    doubted, failed = data.again(2)
    assert "lacks some of the 50 that it had" in failed["peer0"]
    assert doubted.position("peer0") == data.position("peer0")
    taken, failed = doubted.again(3)
    assert (sum(taken.plan.federation.sizes("peer0")), failed) == (50, {})


@pytest.mark.parametrize("scaled", [True, False])
def test_a_peer_resumes_although_few_rows_came_since_its_account_was_written(tables, scaled):
    (tables / "peers").mkdir()
    stores = {name: CheckpointStore(tables / "peers", name) for name in ("peer0", "peer1")}

    def act(record, state):
        del state
        if record.peer == "peer0" and record.round == 0:
            append("peer0", 3)
        if record.round == 3:
            raise PowerError

    experiment = read(SMALL, changes=[*TABLE, f"data.scale={str(scaled).lower()}"])
    with pytest.raises(BaseExceptionGroup):
        timeless(swarm(experiment, observe=act, stores=stores))
    append("peer0", 2)
    left = {name: store.former() for name, store in stores.items()}
    notices = []
    ended = timeless(swarm(experiment, stores=stores, former=left, notices=notices))
    assert sum(ended["peer0"][0].plan.federation.sizes("peer0")) == 65
    assert not [each for each in notices if isinstance(each, DataReplaced)]
    assert [(each.round, each.new) for each in notices if isinstance(each, DataRead)] == [(4, 2)]
    if scaled:  # a launcher that resumes reports what the peers agreed on at the beginning
        agreed, found = left["peer0"].kept[0].statistics, launcher._scaled(plan(experiment), tables)[1]
        assert torch.equal(found.mean[0], agreed.mean[0])
        assert not torch.equal(found.mean[0], directly(plan(experiment))[1].mean[0])
    verification = pytest.importorskip("p2pfl.plugins.evidence.verification")
    verified = verification.verify(verification.find_chains([tables]))
    assert not verified.findings
    assert "peer0 began again with other data, which data.refresh permits" in verified.open


def test_a_peer_that_resumes_has_the_rows_of_its_checkpoint(tables):
    stores = {name: CheckpointStore(tables / "peers", name) for name in ("peer0", "peer1")}
    (tables / "peers").mkdir()

    def act(record, state):
        del state
        if record.peer == "peer0" and record.round == 0:
            append("peer0", 40)
        if record.round == 3:
            raise PowerError

    experiment = read(SMALL, changes=TABLE)
    with pytest.raises(BaseExceptionGroup):
        timeless(swarm(experiment, observe=act, stores=stores))
    left = {name: store.former() for name, store in stores.items()}
    kept = left["peer0"].kept[0]
    assert (kept.round, kept.data.round, kept.data.rows) == (3, 2, 100)
    append("peer0", 500)
    sizes = []

    def look(record, state):
        del state
        if record.peer == "peer0":
            sizes.append((record.round, sum(peers["peer0"].plan.federation.sizes("peer0"))))

    peers, notices = {}, []
    made = Peer.rounds_from

    def noted(self, first, data):
        rounds = made(self, first, data)
        peers[self.name] = type("Now", (), {"plan": property(lambda _: rounds.parts.plan)})()
        return rounds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Peer, "rounds_from", noted)
        timeless(swarm(experiment, observe=look, stores=stores, former=left, notices=notices))
    assert sizes == [(3, 100), (4, 600), (5, 600)]
    assert not [each for each in notices if isinstance(each, DataReplaced)]


def test_a_peer_whose_table_was_replaced_says_so_and_takes_what_is_there(tables):
    (tables / "peers").mkdir()
    stores = {name: CheckpointStore(tables / "peers", name) for name in ("peer0", "peer1")}

    def act(record, state):
        del state
        if record.round == 3:
            raise PowerError

    experiment = read(SMALL, changes=TABLE)
    with pytest.raises(BaseExceptionGroup):
        timeless(swarm(experiment, observe=act, stores=stores))
    left = {name: store.former() for name, store in stores.items()}
    lines = (f"{row / 7},{'ab'[row % 3 % 2]}\n" for row in range(90))
    (tables / "peer0.csv").write_text("x,y\n" + "".join(lines), "utf-8")
    notices = []
    ended = timeless(swarm(experiment, stores=stores, former=left, notices=notices))
    assert [each.peer for each in notices if isinstance(each, DataReplaced)] == ["peer0"]
    assert sum(ended["peer0"][0].plan.federation.sizes("peer0")) == 90


@pytest.mark.parametrize("offset", [0, 1000])
def test_a_device_whose_window_has_moved_while_it_slept_says_which_feature_has_changed(tables, offset):
    (tables / "peer0.csv.toml").write_text("window = 50", "utf-8")
    asleep = GrowingData.of(plan(read(SMALL, changes=TABLE), only=["peer0"]), ("peer0",))
    row = torch.ones(1, 3)
    checkpoint = Checkpoint("peer0", 7, State(row, Public(row)), data=asleep.position("peer0"))
    position = unpack(pack(checkpoint)).data
    append("peer0", 60, offset=offset)
    awake = GrowingData.of(plan(read(SMALL, changes=TABLE), only=["peer0"]), ("peer0",))
    awake, changed = awake.resumed({"peer0": position})
    index, feature = changed["peer0"]
    assert feature == "x"
    assert (index > 0.25) == (offset > 0)
    said = str(DataReplaced(peer="peer0", drift=index, feature=feature))
    assert ("x has changed (population stability index" in said) == (offset > 0)
    assert awake.position("peer0").shares != position.shares
    assert awake.resumed({"peer0": replace(position, shares=b"")})[1] == {"peer0": None}  # of an earlier version


@pytest.mark.fast
def test_a_checkpoint_keeps_the_position_and_older_ones_have_none(tables):
    (tables / "peers").mkdir()
    stores = {name: CheckpointStore(tables / "peers", name) for name in ("peer0", "peer1")}
    timeless(swarm(read(SMALL, changes=TABLE), stores=stores))
    kept = stores["peer0"].former().kept[0]
    assert unpack(pack(kept)).data == kept.data
    assert kept.data.rows == 60


def test_single_samples_are_charged_at_the_rate_of_the_rows_of_each_round():
    experiment = growing("learning.example_noise=1.0", "learning.max_norm=1.0", "learning.dtype=float32")
    meter = timeless(live(experiment, MemoryTransport()))["peer0"].peer.meter
    sizes = [
        len(plan(growing(f"data.options={{classes=2, round={round}}}")).federation.train["peer0"])
        for round in (0, 2, 4)
    ]
    assert {steps.rate: count for steps, count in meter.samples.own["peer0"].items()} == {
        16 / size: 2 for size in sizes
    }


def test_fewer_rows_cost_single_samples_more_and_the_notice_says_so():
    experiment = growing(
        *("learning.example_noise=1.0", "learning.max_norm=1.0", "learning.dtype=float32"),
        "data.name=streaming:shrinking",
    )
    notices = []
    meter = timeless(live(experiment, MemoryTransport(), notice=notices.append))["peer0"].peer.meter
    first = next(each for each in notices if isinstance(each, DataRead) and each.peer == "peer0")
    assert first.rate == 16 / first.train
    assert first.rate in {steps.rate for steps in meter.samples.own["peer0"]}
    assert "each round costs single samples more epsilon" in str(first)


REFUSED = {
    "data.refresh=2": "is no table or function of each peer",
    "learning.schedule={name='StepLR', options={step_size=2}, by='step'}": "more rows make more steps in a round",
    "learning.algorithm=gossip_learning": "run cycles of their own",
    "privacy.mode=secagg": "the protection depends on all sizes",
}


@pytest.mark.fast
@pytest.mark.parametrize(("key", "because"), REFUSED.items())
def test_what_data_that_grow_do_not_work_with_is_refused(key, because):
    given = [key] if key == "data.refresh=2" else ["data.name=streaming:stream", "data.refresh=2", key]
    with pytest.raises(ExperimentError, match=r"data\.refresh") as error:
        plan(read(SMALL | {"gossip": {}}, changes=["data.split=iid", *given]))
    assert because in str(error.value)


@pytest.mark.fast
def test_workers_are_refused():
    with pytest.raises(ExperimentError, match="each peer reads its own data again; leave --workers out"):
        federate_data(growing(), ("ada", "bob"), share=Shard(["ada", "bob"]))
