"""Live peers and the simulation of one experiment end in the same rows.

Tolerance: both compute in double precision and differ only in the order of sums (a live peer adds
rows in the order of turns, the stack in the order of its sparse matrix; training one row and many
takes other kernels), so rows agree to a few units in the last place, amplified by a few steps of
training: 1e-10 is far above that and far below any other effect. Where rows are rounded onto the
grid of the masks, a unit in the last place can tip a number that lies half-way (and averages of
grid points often do), so there they agree to one step of the grid.
"""

from collections import Counter

import pytest
import torch

import hospitals
from p2pfl.experiment import read
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.peer.neighbourhoods import live as module
from p2pfl.network.protocol.wire.wire_rows import encode_row
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.broker import embedded
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from swarms import SMALL, live

pytestmark = pytest.mark.slow

TOLERANCE = 1e-10
GRID = 2.0**-20

EXPONENTIAL = ["topology.kind=one_peer_exponential", "topology.peers=8"]
ADAPT = 'learning.algorithm_options={order="adapt_then_combine"}'
LATE = 'learning.algorithm_options={overlap="late", fragments=3}'
NORMED = ["model.name=norming:Normed", "model.hidden=[64]"]
OWNED = ["data.split=iid", "model.hidden=[64]"]
MASKED = ["privacy.mode=pairwise"]
WORDS = ["data.name=owning:words", "data.options={classes=2}", "model.name=owning:Words"]
PIXELS = ["data.name=owning:pictures", "data.options={classes=3}", "model.name=owning:Pixels"]
CASES = {
    "FedAvg": [],
    "FedAvg, all alike": ["learning.weighted=false"],
    "FedAvg, half of the peers": ["learning.fraction=0.5"],
    "FedAvg, Chebyshev": ["gossip.acceleration=chebyshev"],
    "FedAvg, one-peer exponential": ["topology.kind=one_peer_exponential", "topology.peers=8"],
    "FedAvg, static exponential": ["topology.kind=exponential"],
    "FedAvg, star": ["topology.kind=star"],
    "FedAvg, random cycles, masks": ["topology.kind=random_regular", "privacy.mode=pairwise"],
    "D-PSGD, one-peer exponential": ["learning.algorithm=dpsgd", *EXPONENTIAL],
    "FedAvg, stopping rule": ["learning.stop=0.6"],
    "FedAvg, early stopping": ["data.validation=0.3", "learning.patience=1", "rounds=25", "learning.rate=4.0"],
    "D-PSGD on a ring, early stopping": [
        *("learning.algorithm=dpsgd", "topology.kind=ring", "data.validation=0.3", "learning.patience=1", "rounds=30"),
        "learning.rate=4.0",
    ],
    "FedAvg, clipped gradients, warm-up, schedule by step": [
        *("learning.max_norm=0.3", "learning.schedule.warmup=5", "learning.schedule=CosineAnnealingLR"),
        *("learning.schedule.options={T_max=20}", "learning.schedule.by=step"),
    ],
    "FedAvg, Adam": ["learning.optimizer=adam", "learning.rate=0.01"],
    "FedAvg, masks": ["privacy.mode=pairwise"],
    "FedAvg, masks, noise, clip": ["privacy.mode=pairwise", "privacy.noise=0.01", "privacy.clip=1.0"],
    "FedAvg, clip": ["privacy.mode=independent", "privacy.clip=0.1"],
    "FedAvg, masks, half of the peers": ["privacy.mode=pairwise", "learning.fraction=0.5"],
    "FedAvg, private noise": ["privacy.mode=independent", "privacy.noise=0.01"],
    "FedAvg, masks on a denser graph": ["privacy.mode=pairwise", "privacy.mask_graph=complete", "topology.kind=ring"],
    "FedAvg, masks, secret participation": [
        "privacy.mode=pairwise",
        "privacy.noise=0.01",
        "privacy.clip=1.0",
        "privacy.participation=0.5",
    ],
    "FedAvg, masks and noise for an epsilon": ["privacy.mode=pairwise", "privacy.epsilon=8.0"],
    "FedAvg, scaled features, consensus": ["data.scale=true", "learning.consensus=true"],
    "FedAvg, scaled features, consensus, masks": [
        "data.scale=true",
        "learning.consensus=true",
        "privacy.mode=pairwise",
        "topology.kind=complete",
    ],
    "FedAvg, sums": ["privacy.mode=secagg", "topology.kind=complete", "gossip.steps=1"],
    "FedAvg, sums, noise, clip": [
        *("privacy.mode=secagg", "topology.kind=complete", "gossip.steps=1", "privacy.noise=0.01", "privacy.clip=1.0"),
    ],
    "D-PSGD, sums": [
        *("privacy.mode=secagg", "topology.kind=random_regular", "topology.peers=10", "gossip.steps=1"),
        "learning.algorithm=dpsgd",
    ],
    "FedPer, sums": [
        *("privacy.mode=secagg", "topology.kind=complete", "gossip.steps=1", "learning.algorithm=fedper"),
    ],
    "exact diffusion, sums": [
        *("privacy.mode=secagg", "topology.kind=random_regular", "topology.peers=10", "gossip.steps=1"),
        "learning.algorithm=exact_diffusion",
    ],
    "FedAvg, stragglers left out": [
        *("learning.epochs=3", "learning.stragglers=0.5", "learning.stragglers.drop=true"),
    ],
    "FedProx, stragglers, masks": [
        *("learning.algorithm=fedprox", "learning.epochs=3", "learning.stragglers=0.5", "privacy.mode=pairwise"),
    ],
    "SCAFFOLD, half of the peers": ["learning.algorithm=scaffold", "learning.fraction=0.5", "rounds=5"],
    "SCAFFOLD, option I": ["learning.algorithm=scaffold", 'learning.algorithm_options.option="I"'],
    "FedNova, masks": ["learning.algorithm=fednova", "privacy.mode=pairwise"],
    "FedAvgM": ["learning.algorithm=fedavgm"],
    "DiLoCo, AdamW": ["learning.algorithm=diloco", "learning.optimizer=adamw", "learning.rate=0.01"],
    "NoLoCo, pairs": [
        *("learning.algorithm=diloco", "learning.algorithm_options={momentum=0.5, nesterov=false}"),
        *("topology.kind=base", "topology.degree=1", "topology.peers=8", "gossip.steps=1"),
    ],
    "DiLoCo, mixing from the start, pairs, AdamW": [
        *("learning.algorithm=diloco", 'learning.algorithm_options={overlap="start"}'),
        *("topology.kind=base", "topology.degree=1", "topology.peers=8"),
        *("learning.optimizer=adamw", "learning.rate=0.01"),
    ],
    "DiLoCo, late fragments": ["learning.algorithm=diloco", LATE],
    "DiLoCo, late fragments, masks": ["learning.algorithm=diloco", LATE, "privacy.mode=pairwise"],
    "DiLoCo, mixing from the start, masks, noise, clip": [
        *("learning.algorithm=diloco", 'learning.algorithm_options={overlap="start"}'),
        *("privacy.mode=pairwise", "privacy.noise=0.01", "privacy.clip=1.0"),
    ],
    "DiLoCo, mixing from the start, masks, settled rounds": [
        *("learning.algorithm=diloco", 'learning.algorithm_options={overlap="start"}'),
        *("privacy.mode=pairwise", "privacy.departures=go_on"),
    ],
    "DiLoCo, late, sums": [
        *("learning.algorithm=diloco", 'learning.algorithm_options={overlap="late"}'),
        *("privacy.mode=secagg", "topology.kind=complete", "gossip.steps=1"),
    ],
    "DiLoCo, late, 4 bits": [
        *("learning.algorithm=diloco", 'learning.algorithm_options={overlap="late"}'),
        *("compression.name=quantise", "compression.options.bits=4"),
    ],
    "DiLoCo, late fragments, top 20 % in 2 bits": [
        *("learning.algorithm=diloco", LATE, "compression.name=top_k", "compression.options={share=0.2, bits=2}"),
    ],
    "DiLoCo, pairs, top 20 % in 2 bits": [
        *("learning.algorithm=diloco", "topology.kind=base", "topology.degree=1", "topology.peers=6", "rounds=8"),
        *("gossip.steps=1", "compression.name=top_k", "compression.options={share=0.2, bits=2}"),
    ],
    "FedAdam, masks": ["learning.algorithm=fedadam", "privacy.mode=pairwise"],
    "FedSGD": ["learning.algorithm=fedsgd"],
    "D-PSGD": ["learning.algorithm=dpsgd"],
    "D-PSGD, momentum": ["learning.algorithm=dpsgd", "learning.options={momentum=0.9}"],
    "CHOCO-SGD, QSGD": ["learning.algorithm=choco", "compression.name=qsgd", "compression.options.levels=7"],
    "CHOCO-SGD, top 10 %": ["learning.algorithm=choco", "compression.name=top_k", "compression.options.share=0.1"],
    "D-PSGD that adapts first": ["learning.algorithm=dpsgd", ADAPT],
    "D-PSGD that adapts first, masks": ["learning.algorithm=dpsgd", ADAPT, "privacy.mode=pairwise"],
    "FedAvg, random 20 %": [
        "compression.name=random_k",
        "compression.options.share=0.2",
        "compression.options.refresh=2",
    ],
    "FedAvg, 4 bits, squeezed": ["compression.name=quantise", "compression.options.bits=4", "compression.zstd=true"],
    "FedAvg, 4 bits, a schedule": [
        "compression.name=quantise",
        "compression.options={bits=4, refresh=2}",
        *EXPONENTIAL,
    ],
    "FedAvg, bfloat16, a schedule": ["compression.name=bfloat16", *EXPONENTIAL],
    "FedAvg, masks, squeezed": ["privacy.mode=pairwise", "compression.zstd=true"],
    "FedNova, QSGD": ["learning.algorithm=fednova", "compression.name=qsgd"],
    "FedPer, top 10 %": ["learning.algorithm=fedper", "compression.name=top_k", "compression.options.share=0.1"],
    "gradient push, 4 bits": [
        *(
            "learning.algorithm=sgp",
            "topology.kind=exponential",
            "compression.name=quantise",
            "compression.options.bits=4",
        ),
    ],
    "FedProx on one-way edges": ["learning.algorithm=fedprox", "topology.kind=exponential", "gossip.weights=push"],
    "D-PSGD, 8 bits": ["learning.algorithm=dpsgd", "compression.name=quantise"],
    "partial sharing": ["learning.algorithm=partial", "learning.algorithm_options={share=0.3}"],
    "partial sharing, masks": [
        "learning.algorithm=partial",
        "learning.algorithm_options={share=0.3}",
        "privacy.mode=pairwise",
    ],
    "D-PSGD, masks": ["learning.algorithm=dpsgd", "privacy.mode=pairwise"],
    "gradient tracking, two local steps": ["learning.algorithm=gradient_tracking", "learning.steps=2"],
    "gradient tracking, masks": ["learning.algorithm=gradient_tracking", "privacy.mode=pairwise"],
    "D2": ["learning.algorithm=d2"],
    "D2, masks": ["learning.algorithm=d2", "privacy.mode=pairwise"],
    "exact diffusion": ["learning.algorithm=exact_diffusion"],
    "exact diffusion, masks": ["learning.algorithm=exact_diffusion", "privacy.mode=pairwise"],
    "quasi-global momentum": ["learning.algorithm=qg_dsgdm"],
    "quasi-global momentum, masks": ["learning.algorithm=qg_dsgdm", "privacy.mode=pairwise"],
    "gradient push": ["learning.algorithm=sgp", "topology.kind=exponential"],
    "RelaySGD": ["learning.algorithm=relay_sgd", "topology.kind=path"],
    "D-PSGD, one-peer exponential, masks": [
        "learning.algorithm=dpsgd",
        "privacy.mode=pairwise",
        "topology.kind=one_peer_exponential",
        "topology.peers=8",
    ],
    "PowerGossip": ["learning.algorithm=power_gossip"],
    "PowerGossip, rank 2": ["learning.algorithm=power_gossip", "learning.algorithm_options={rank=2}"],
    "PowerGossip, single precision": ["learning.algorithm=power_gossip", "learning.dtype=float32"],
    "fine-tuning": ["learning.algorithm=fine_tuning"],
    "Ditto": ["learning.algorithm=ditto"],
    "Ditto, masks": ["learning.algorithm=ditto", "privacy.mode=pairwise"],
    "pFedMe": ["learning.algorithm=pfedme", "learning.algorithm_options={steps=3, inner=2}"],
    "Per-FedAvg": ["learning.algorithm=per_fedavg", 'learning.algorithm_options={steps=2, variant="hf"}'],
    "FedPer": ["learning.algorithm=fedper"],
    "FedPer, masks, half of the peers": [
        "learning.algorithm=fedper",
        "privacy.mode=pairwise",
        "learning.fraction=0.5",
    ],
    "FedRep": ["learning.algorithm=fedrep", "learning.algorithm_options={head_steps=3, body_steps=2}"],
    "FedBN": ["learning.algorithm=fedbn", *NORMED],
    "FedBN, masks, noise, clip, half of the peers": [
        *("learning.algorithm=fedbn", *NORMED, "learning.fraction=0.5"),
        *("privacy.mode=pairwise", "privacy.noise=0.01", "privacy.clip=1.0"),
    ],
    "FedBN, sums": [
        *("privacy.mode=secagg", "topology.kind=complete", "gossip.steps=1", "learning.algorithm=fedbn", *NORMED),
    ],
    "FedBN, top 10 %": ["learning.algorithm=fedbn", *NORMED, "compression.name=top_k", "compression.options.share=0.1"],
    "FedPer, local layers": ["learning.algorithm=fedper", "model.norm=local", *NORMED],
    "tokens, a Dataset of torch, masks": [*OWNED, *MASKED, *WORDS],
    "a class for each pixel": [*OWNED, *PIXELS],
    "multi-task": ["learning.algorithm=multitask"],
    "FedAvg, ClippedGossip, sign flips": [
        *("learning.weighted=false", "robustness.rule=clipped_gossip", "attack.name=sign_flip"),
    ],
    "FedAvg, trimmed mean, private noise": [
        *("learning.weighted=false", "robustness.rule=trimmed_mean"),
        *("privacy.mode=independent", "privacy.noise=0.01"),
    ],
    "D-PSGD, median of mixed rows, random lies": [
        *(
            "learning.algorithm=dpsgd",
            "robustness.rule=median",
            "robustness.options.nearest=true",
            "attack.name=random",
        ),
    ],
    "D-PSGD, Krum, flipped labels": [
        *("learning.algorithm=dpsgd", "robustness.rule=krum", "topology.kind=complete", "attack.name=label_flip"),
    ],
    "FedAvg, multi-Krum, sign flips, private noise": [
        *("learning.weighted=false", "robustness.rule=multi_krum", "topology.kind=complete", "attack.name=sign_flip"),
        *("privacy.mode=independent", "privacy.noise=0.01"),
    ],
    "FedAvg, scaled lies": ["learning.weighted=false", "attack.name=scaled"],
    "propagation": ["learning.algorithm=propagation"],
    "IFCA": ["learning.algorithm=ifca"],
}
TOTALS = ["model.name=boosting", "model.options={max_bins=8, max_depth=2}"]
CASES |= {
    "exact totals": [*TOTALS, "privacy.mode=none"],
    "exact totals, masks": [*TOTALS, "privacy.mode=pairwise", "privacy.mask_graph=complete"],
}


def tolerance(experiment):
    if experiment.learning.dtype == "float32":
        return 1e-6
    return TOLERANCE if experiment.privacy.mode == "none" else GRID


def difference(ended, run):
    """Largest difference between a live peer's model and the simulated one."""
    largest = 0.0
    for name, end in ended.items():
        model = end.peer.plan.learner.state_dict(end.state.rows[0])
        for key, value in run.models[name].items():
            largest = max(largest, float((value - model[key]).abs().max()))
    return largest


@pytest.mark.sampled(fast=0, all=8)
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
async def test_live_peers_in_memory_end_where_the_simulation_ends(changes):
    experiment = read(SMALL, changes=changes)
    source = SeededSource(11)
    ended = await live(experiment, MemoryTransport(), source=source)
    run = simulate(experiment, source=source, baselines=False)
    assert difference(ended, run) < tolerance(experiment)
    rounds = {end.records[-1].round for end in ended.values()}
    assert rounds == {run.metrics[-1].round}


@pytest.fixture(scope="module")
def broker():
    with embedded() as running:
        yield running


@pytest.mark.slow
@pytest.mark.sampled(fast=0, all=5)
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
async def test_live_peers_over_a_real_broker_end_where_the_simulation_ends(broker, changes):
    experiment = read(SMALL, changes=changes)
    source = SeededSource(11)
    ended = await live(experiment, connect(experiment, urls=[broker.url], peer="all"), source=source)
    run = simulate(experiment, source=source, baselines=False)
    assert difference(ended, run) < tolerance(experiment)


async def test_with_secret_keys_the_means_agree_although_masks_differ(broker):
    experiment = read(SMALL, changes=["privacy.mode=pairwise", "gossip.steps=40", "rounds=1"])
    ended = await live(experiment, connect(experiment, urls=[broker.url], peer="all"))
    run = simulate(experiment, baselines=False)
    live_mean = torch.cat([end.state.rows for end in ended.values()]).mean(0)
    rows = [
        ended[name].peer.plan.learner.layout.join({k: v[None] for k, v in run.models[name].items()}) for name in ended
    ]
    # 40 steps leave about 1e-6 of the masks, and the grid has steps of 1e-6
    assert torch.allclose(live_mean, torch.cat(rows).mean(0), atol=1e-5)


@pytest.mark.sampled(fast=0, all=3)
@pytest.mark.parametrize(
    "changes",
    [
        [],
        ["compression.name=top_k", "compression.options.share=0.1"],
        ["compression.name=qsgd", "compression.options.levels=7", "compression.zstd=true"],
        ["compression.name=float16"],
        ["learning.algorithm=partial", "learning.algorithm_options={share=0.3}"],
        ["privacy.mode=pairwise", "compression.zstd=true"],
    ],
    ids=str,
)
async def test_a_simulation_counts_the_bytes_of_rows_that_live_peers_send(monkeypatch, changes):
    experiment = read(SMALL, changes=["learning.weighted=false", *changes])  # no sizes are flooded
    sent: Counter[str] = Counter()

    def counted(row, **settings):
        parts = encode_row(row, **settings)
        sent["rows"] += len(parts[1])
        return parts

    monkeypatch.setattr(module, "encode_row", counted)
    source = SeededSource(11)
    await live(experiment, MemoryTransport(), source=source)
    run = simulate(experiment, source=source, baselines=False)
    assert sent["rows"] > 0
    slack = 0.01 if experiment.compression.zstd else 0.0  # a unit in the last place is squeezed otherwise
    assert run.summary["bytes_sent"] == pytest.approx(sent["rows"], rel=slack)


async def test_the_records_of_a_live_peer_and_of_the_simulation_agree():
    experiment = read(SMALL)
    ended = await live(experiment, MemoryTransport())
    run = simulate(experiment, baselines=False)
    for record in run.metrics:
        twin = ended[record.peer].records[record.round]
        assert twin.scores == pytest.approx(record.scores)
        assert twin.training_loss == pytest.approx(record.training_loss)
        assert twin.distance == pytest.approx(record.distance)
        assert twin.received == record.received


async def test_live_peers_and_the_simulation_agree_on_statistics_and_on_the_score_of_one_model():
    experiment = read(SMALL, changes=["data.scale=true", "learning.consensus=true", "privacy.mode=pairwise"])
    source = SeededSource(11)
    ended = await live(experiment, MemoryTransport(), source=source)
    told = simulate(experiment, source=source, baselines=False).summary
    for end in ended.values():
        assert end.peer.statistics.mean[0].tolist() == pytest.approx(told["statistics"]["mean"], abs=1e-7)
        assert end.peer.ended.common == pytest.approx(told["common"], abs=1e-4)  # masks on a grid move the model
        assert torch.equal(end.state.rows, ended["peer0"].state.rows)


async def test_live_peers_on_their_own_tables_end_where_the_simulation_ends(tmp_path):
    hospitals.write(tmp_path)
    learning = {"device": "cpu", "dtype": "float64", "weighted": False, "rate": 0.5}
    experiment = read(hospitals.experiment(tmp_path, learning=learning))
    source = SeededSource(11)
    ended = await live(experiment, MemoryTransport(), source=source)
    run = simulate(experiment, source=source, baselines=False)
    assert difference(ended, run) < 1e-10
