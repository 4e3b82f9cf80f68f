"""Rare exchanges: loss at equal tokens, the share of time that remains for training, and how well it was predicted.

    python -m benchmarks.rare_exchanges [--rows loss killed time forecast] [--ways NAME ...] [--text FILE] [--size 10M]
        [--dim 64 --layers 2 --context 32 --rounds 20 --steps 20 --batch 8] [--tests 64] [--seeds 0 1 2]
        [--device cuda --precision mixed]
        [--large-dim 320 --large-layers 8 --large-rounds 6 --mbit 50 --latency 0.1 --seconds 10]

``loss``: a GPT of letters and eight peers, each with a part of its own of a text. All ways take as many steps. The
first of ``--ways`` is the reference. Several ``--seeds`` of models and batches end in means and ranges.
``--size 10M`` is a GPT of 9.9 million parameters, 30 rounds of 30 steps of 16 windows of 128 letters.
``killed``: the same live, in virtual time, and one peer killed half-way, beside a simulation in which all stay.
``time``: a GPT of about 10 million parameters over links of 50 Mbit/s and 100 ms, by pairs, in virtual time. A round of
training takes ``--seconds``.
``forecast``: real processes over relays with such links, beside the prediction. They sleep and take one step, so that
training lasts about as long on a busy machine. A model and a rate of a tenth give the same times but for computing.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.faults.mortal import Mortal
from benchmarks.faults.nursery import Nursery
from benchmarks.faults.relay import Relays
from p2pfl import topology as graphs
from p2pfl.algorithms import DiLoCo, Gossip
from p2pfl.core.codecs import Codec, Quantise
from p2pfl.core.draws import draw
from p2pfl.core.sparse_codecs import TopK
from p2pfl.data import Dataset, Federation
from p2pfl.experiment import Experiment, Plan, plan, read
from p2pfl.experiment.composing import compose
from p2pfl.experiment.schema import TrainingTimes
from p2pfl.learning import TorchLearner
from p2pfl.network.peer import Peer
from p2pfl.network.virtual.clock import WHO, VirtualLoop
from p2pfl.network.virtual.forecast import Network, forecast
from p2pfl.network.virtual.virtual_network import Conditions, WorldTransport
from p2pfl.privacy.keys import FIRST, SeededSource
from p2pfl.results import Record, Run
from p2pfl.simulation import simulate

PEERS = 8
TEXT = Path(__file__).parents[2] / "shared" / "data" / "text" / "tinyshakespeare.txt"
LETTERS = 65
"""Letters of random texts."""


class Block(nn.Module):
    """Layer of a transformer: attention to earlier letters, then a perceptron."""

    def __init__(self, dim: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.queries = nn.Linear(dim, 3 * dim)
        self.merge = nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.register_buffer("future", torch.ones(context, context).triu(1).bool(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the letters ``[n, T, D]`` after the layer."""
        n, length, dim = x.shape
        q, k, v = self.queries(self.first(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(dim / self.heads)).masked_fill(self.future, -math.inf)
        x = x + self.merge((weights.softmax(-1) @ v).transpose(1, 2).reshape(n, length, dim))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """Decoder of letters: logits of each next one, ``[n, letters, T]``.

    Parameters
    ----------
    letters, dim, layers, heads, context
        Size of the alphabet, and of the model.
    """

    def __init__(self, letters: int, dim: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, dim), nn.Parameter(0.02 * torch.randn(context, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads, context) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, letters, bias=False)
        for each in self.modules():
            if isinstance(each, nn.Linear | nn.Embedding):
                nn.init.normal_(each.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of letters ``[n, T]``."""
        return self.head(self.norm(self.blocks(self.letters(x) + self.places))).transpose(1, 2)


def model(options: argparse.Namespace, letters: int, *, seed: int) -> GPT:
    """Return the same model in each call with a seed."""
    torch.manual_seed(seed)
    return GPT(letters, options.dim, options.layers, options.heads, options.context)


def federation(text: str, *, context: int, tests: int) -> tuple[Federation, int]:
    """Return windows of the text, a part of it for each peer and the last tenth for tests; and the alphabet's size."""
    alphabet = sorted({*text})
    codes = np.array([alphabet.index(letter) for letter in text])
    windows = torch.from_numpy(codes[: len(codes) // (context + 1) * (context + 1)].reshape(-1, context + 1))
    train = np.arange(int(0.9 * len(windows)))
    names = tuple(f"peer{number}" for number in range(PEERS))
    parts = dict(zip(names, np.array_split(train, PEERS), strict=True))
    held = np.linspace(len(train), len(windows) - 1, tests).astype(np.int64)
    data = Dataset(windows[:, :-1].contiguous(), windows[:, 1:].contiguous(), len(alphabet))
    return Federation(data, parts, dict.fromkeys(names, np.arange(0)), dict.fromkeys(names, held)), len(alphabet)


def ways(
    options: argparse.Namespace, *, seed: int
) -> Mapping[str, tuple[DiLoCo, graphs.Topology | graphs.Schedule, Codec | None]]:
    """Return algorithms, graphs and codecs by name; the first one is the reference."""
    outer = {"global_rate": options.outer, "momentum": options.momentum}
    complete, pairs, ring = graphs.complete(PEERS), graphs.base(PEERS), graphs.ring(PEERS)
    one, three = Gossip(1), Gossip(3)
    noloco = DiLoCo(one, global_rate=options.outer, momentum=0.5, nesterov=False)
    return {
        "all-reduce": (DiLoCo(one, **outer), complete, None),
        "NoLoCo, pairs": (noloco, pairs, None),
        "NoLoCo, random pairs": (noloco, graphs.epidemic_oracle(PEERS, degree=1, seed=seed), None),
        "pairs": (DiLoCo(one, **outer), pairs, None),
        "start, pairs": (DiLoCo(one, overlap="start", **outer), pairs, None),
        "start, 3 steps by pairs": (DiLoCo(three, overlap="start", **outer), pairs, None),
        "late, 2 fragments, 3 steps by pairs": (DiLoCo(three, fragments=2, overlap="late", **outer), pairs, None),
        "ring, 4 bits": (DiLoCo(three, **outer), ring, Quantise(4)),
        "complete, top 2 % in 2 bits": (DiLoCo(one, **outer), complete, TopK(0.02, bits=2)),
        "pairs, 4 bits": (DiLoCo(one, **outer), pairs, Quantise(4)),
        "pairs, top 10 % in 2 bits": (DiLoCo(one, **outer), pairs, TopK(0.1, bits=2)),
    }


def learner_of(options: argparse.Namespace, data: Federation, letters: int, *, seed: int) -> TorchLearner:
    """Return the learner of a GPT by AdamW, whose rate rises in the first round and then falls to 0."""
    return TorchLearner(
        model(options, letters, seed=seed),
        data,
        seed=seed,
        optimizer="adamw",
        rate=options.rate,
        steps=options.steps,
        batch=options.batch,
        warmup=options.steps,
        schedule="CosineAnnealingLR",
        schedule_options={"T_max": options.rounds * options.steps},
        schedule_by="step",
        device=options.device,
        precision=options.precision,
    )


def losses(options: argparse.Namespace) -> None:
    """Print the loss of each way at equal tokens, of all models and of their mean, and distances from the first."""
    data, letters = federation(options.text.read_text("utf-8"), context=options.context, tests=options.tests)
    sized = sum(each.numel() for each in model(options, letters, seed=0).parameters())
    tokens = options.rounds * options.steps * options.batch * options.context
    print(f"GPT of {sized:,} parameters, {PEERS} peers, {tokens:,} tokens a peer, H = {options.steps}")
    print(f"{'way':38} {'loss':>7} {'':>8} {'of mean':>8} {'':>8} {'MB a peer':>10} {'processor s':>12} {'seed':>5}")
    found: dict[str, list[tuple[float, float]]] = {}  # by way the losses, relative to the first way, of each seed
    for seed in options.seeds:
        reference: tuple[float, float] | None = None
        for name, (algorithm, graph, codec) in ways(options, seed=seed).items():
            if options.ways and name not in options.ways:
                continue
            begun = time.process_time()
            run = played(options, learner_of(options, data, letters, seed=seed), algorithm, graph, codec, seed=seed)
            loss, mean = statistics.fmean(last_losses(run).values()), mean_loss(run)
            reference = reference or (loss, mean)
            found.setdefault(name, []).append((loss / reference[0] - 1, mean / reference[1] - 1))
            sent = run.summary["bytes_sent"] / PEERS / 1e6
            spent = time.process_time() - begun
            figures = f"{loss:7.4f} {loss / reference[0] - 1:+8.2%} {mean:8.4f} {mean / reference[1] - 1:+8.2%}"
            print(f"{name:38} {figures} {sent:10.1f} {spent:12.0f} {seed:5}", flush=True)
    for name, each in found.items() if len(options.seeds) > 1 else ():
        figures = "; of mean ".join(
            f"{statistics.fmean(some):+.2%} ({min(some):+.2%} to {max(some):+.2%})" for some in zip(*each, strict=True)
        )
        print(f"{name:38} {figures}", flush=True)


def played(
    options: argparse.Namespace,
    learner: TorchLearner,
    algorithm: DiLoCo,
    graph: graphs.Topology | graphs.Schedule,
    codec: Codec | None,
    *,
    seed: int,
) -> Run:
    """Return a simulation of a way."""
    parts: dict[str, Any] = {} if codec is None else {"codec": codec}
    return simulate(algorithm, learner, graph, rounds=options.rounds, seed=seed, baselines=False, **parts)


def last_losses(run: Run) -> dict[str, float]:
    """Return the loss of each peer after the last round."""
    last = max(record.round for record in run.metrics)
    return {record.peer: record.scores["loss"] for record in run.metrics if record.round == last}


def mean_loss(run: Run) -> float:
    """Return the loss of the mean of all models after the last round."""
    last = max(record.round for record in run.metrics)
    return next(record.mean_model["loss"] for record in run.metrics if record.round == last and record.mean_model)


def own(
    *, peer: str, peers: tuple[str, ...], seed: int, context: int, samples: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random letters of one peer and their successors; times depend on their number alone."""
    letters = torch.from_numpy(draw(seed, "letters", peer).integers(LETTERS, size=(samples, context + 1)))
    del peers
    return letters[:, :-1].contiguous(), letters[:, 1:].contiguous()


def large(options: argparse.Namespace, *, overlap: str, broker: str = "embedded") -> Experiment:
    """Return the experiment whose times are predicted and measured: one local step, and models of full size."""
    size = {"letters": LETTERS, "dim": options.large_dim, "layers": options.large_layers, "heads": 4, "context": 16}
    return read(
        {
            "name": "rare-exchanges",
            "rounds": options.large_rounds,
            "topology": {"kind": "base", "peers": PEERS, "degree": 1},
            "data": {
                "name": "benchmarks.rare_exchanges:own",
                "options": {"classes": LETTERS, "context": 16, "samples": 4},
                "test": 0.25,
            },
            "model": {"name": "benchmarks.rare_exchanges:GPT", "options": size},
            "learning": {
                "algorithm": "diloco",
                "algorithm_options": {"overlap": overlap},
                "optimizer": "adamw",
                "rate": 1e-3,
                "steps": 1,
                "batch": 1,
                "device": "cpu",
            },
            "gossip": {"steps": 1},
            "transport": {"broker": broker, "patience": 600.0, "gather": 600.0, "checkpoint": options.large_rounds},
        }
    )


def lines(options: argparse.Namespace) -> Network:
    """Return links of so many bits a second and such a latency, half of it to the broker and half from there."""
    rate = options.mbit * 1e6 / 8
    link = Conditions(latency=options.latency / 2, up=rate, down=rate)
    return Network(link=link, training=TrainingTimes(seconds=options.seconds))


def times(options: argparse.Namespace) -> None:
    """Print the predicted share of time that remains for training."""
    print(f"{'overlap':8} {'numbers':>12} {'seconds a round':>16} {'computing':>10}")
    for overlap in ("none", "start", "late"):
        run = forecast(large(options, overlap=overlap), lines(options), baselines=False)
        numbers = sum(each.numel() for each in run.models["peer0"].values())
        each = run.summary["wall_s"] / options.large_rounds
        print(f"{overlap:8} {numbers:12,} {each:16.1f} {run.summary['computing']:10.1%}", flush=True)


def forecasts(options: argparse.Namespace) -> None:
    """Print the predicted time beside that of processes over relays, which have such links and train as long."""
    over = lines(options)
    print(f"{'overlap':8} {'predicted s':>12} {'measured s':>12} {'error':>8} {'computing':>10} {'measured':>10}")
    for overlap in ("none", "start"):
        broker = Mortal()
        wanted = large(options, overlap=overlap, broker=broker.start())
        names = plan(wanted).topology.peers
        said = forecast(wanted, over, baselines=False).summary
        takes = {name: over.takes(name, seed=wanted.seed) for name in names}
        conditions = {name: over.conditions(name) for name in names}
        with TemporaryDirectory() as folder, ExitStack() as stack:
            relays = stack.enter_context(Relays("127.0.0.1", broker.port, conditions))
            nursery = stack.enter_context(Nursery(wanted, Path(folder) / "run", urls=relays.urls, takes=takes))
            nursery.end(within=7200.0)
        broker.stop(in_order=True)
        seconds = max(nursery.heard_at.values()) - max(nursery.began_at.values())
        spans = sum(nursery.heard_at[name] - nursery.began_at[name] for name in names)
        trained = sum(record.seconds_training for record in nursery.records.values())
        error = said["wall_s"] / seconds - 1
        figures = (
            f"{said['wall_s']:12.1f} {seconds:12.1f} {error:+8.1%} {said['computing']:10.1%} {trained / spans:10.1%}"
        )
        print(f"{overlap:8} {figures}", flush=True)


def survivors(options: argparse.Namespace) -> None:
    """Print the loss of seven live peers after the eighth was killed half-way, beside that of a run with all."""
    data, letters = federation(options.text.read_text("utf-8"), context=options.context, tests=options.tests)
    seed = options.seeds[0]
    for name in options.ways or ["start, 3 steps by pairs"]:
        algorithm, graph, codec = ways(options, seed=seed)[name]
        learner = learner_of(options, data, letters, seed=seed)
        whole = last_losses(played(options, learner, algorithm, graph, codec, seed=seed))
        plan = compose(algorithm, learner, graph, rounds=options.rounds, seed=seed, codec=codec)
        less = play_live(plan, killed=graph.peers[-1], at=options.rounds // 2)
        with_it, without = (statistics.fmean(each[peer] for peer in graph.peers[:-1]) for each in (whole, less))
        print(
            f"{name}: loss of seven peers {with_it:.4f}, with the eighth killed half-way {without:.4f} "
            f"({without / with_it - 1:+.2%})",
            flush=True,
        )


def play_live(plan: Plan, *, killed: str | None, at: int) -> dict[str, float]:
    """Return the last loss of each live peer in virtual time; one may be killed after a round, without a farewell."""
    loop = VirtualLoop()
    transport = WorldTransport(loop, {peer: Conditions(latency=0.05) for peer in plan.topology.peers})
    losses: dict[str, float] = {}
    tasks: dict[str, asyncio.Task[None]] = {}

    def observe(record: Record, peer: str) -> None:
        losses[peer] = record.scores["loss"]
        if killed is not None and record.round == at and peer == killed:
            for channel in list(transport.broker.channels.values()):
                if channel.who == killed:
                    channel.vanish("its process was killed", after=1.0)
            loop.call_soon(tasks[killed].cancel)

    async def live(name: str) -> None:
        WHO.set(name)
        peer = Peer(
            name,
            plan,
            transport=transport,
            source=SeededSource(1),
            incarnation=FIRST,
            observe=lambda record, _: observe(record, name),
        )
        async with peer:
            await peer.run()

    async def swarm() -> None:
        tasks.update({name: asyncio.create_task(live(name)) for name in plan.topology.peers})
        ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
        for name, result in zip(tasks, ended, strict=True):
            if isinstance(result, BaseException) and name != killed:
                raise result

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(swarm())
    return losses


SIZES: Mapping[str, Mapping[str, int | float]] = {
    "small": {},
    "10M": {
        "dim": 320, "layers": 8, "heads": 8, "context": 128, "rounds": 30, "steps": 30, "batch": 16, "rate": 1e-3
    },
}  # fmt: skip
"""Other defaults of the options by name."""

ROWS = {"loss": losses, "killed": survivors, "time": times, "forecast": forecasts}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the chosen rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rare_exchanges", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--ways", nargs="+", metavar="NAME", help="of the loss; all by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["full", "mixed"], default="full")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tests", type=int, default=64, help="windows of the held-out text that are evaluated")
    for name, kind, usual in (
        ("dim", int, 64), ("layers", int, 2), ("heads", int, 4), ("context", int, 32), ("rounds", int, 20),
        ("steps", int, 20), ("batch", int, 8), ("rate", float, 3e-3), ("outer", float, 0.7), ("momentum", float, 0.5),
        ("large-dim", int, 320), ("large-layers", int, 8), ("large-rounds", int, 6), ("mbit", float, 50.0),
        ("latency", float, 0.1), ("seconds", float, 10.0),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind, default=usual)
    parser.add_argument("--size", choices=list(SIZES), default="small", help="defaults of model and training")
    parser.set_defaults(**SIZES[parser.parse_args(arguments).size])
    options = parser.parse_args(arguments)
    for row in options.rows:
        ROWS[row](options)


if __name__ == "__main__":
    main()
