"""Memory and speed of peers on one GPU that fine-tune adapters of one shared base of a billion parameters.

    python -m benchmarks.gpu_lora [--peers 1 2 4 8] [--rounds 3] [--steps 2] [--batch 8] [--length 1024] [--rank 16]
    python -m benchmarks.gpu_lora --tiny --device cpu

A random Llama of the shape of Llama 3.2 1B, in bfloat16, made from its configuration; LoRA in all its layers, and a
``Trainer`` of Hugging Face for each peer with AdamW. A simulation of FedAvg on a complete graph trains them in turn.

Memory is that of the card (on the CPU, of the process): ``resting`` is what is allocated after the last round, and
``peak`` the most in it; ``more`` is by how much each grows with a peer. Tokens a second are those of all rounds but the
first and the last, with all that a simulation does between trainings. The share of the peak is that of the
floating-point operations of all products of a token, over those of a product of two matrices of 8,192 x 8,192 in
bfloat16.
"""

import argparse
import gc
import resource
import sys
import tempfile
import time
import warnings
from typing import Any, NamedTuple

import torch

import p2pfl
from benchmarks.gpu import product
from p2pfl.plugins.language import TrainerLearner

LARGE_SHAPE = {
    "vocab_size": 32_000,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
"""Shape of Llama 3.2 1B with a smaller vocabulary: 1.10e9 parameters."""

TINY_SHAPE = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}

HEADS = "peers  resting MiB     more  peak MiB     more  tokens/s  of peak    loss"
"""Heads of the columns of the table."""

LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SEED, TESTED = 7, 4


class Figures(NamedTuple):
    """Memory, time and loss of a simulation.

    Attributes
    ----------
    resting, peak
        Bytes of the card after the last round, and at most in it.
    seconds
        Seconds of a round.
    loss
        Mean loss of the last training.
    """

    resting: int
    peak: int
    seconds: float
    loss: float


def build_model(options: argparse.Namespace) -> Any:
    """Return a random model with adapters, on its device."""
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 -- takes seconds
    from transformers import AutoModelForCausalLM, LlamaConfig, set_seed  # noqa: PLC0415 -- takes seconds

    set_seed(SEED)
    shape = TINY_SHAPE if options.tiny else LARGE_SHAPE
    config = LlamaConfig(**shape, max_position_embeddings=options.length, tie_word_embeddings=False, use_cache=False)
    with torch.device(options.device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        lora = LoraConfig(r=options.rank, lora_alpha=2 * options.rank, target_modules=LAYERS, task_type="CAUSAL_LM")
        return get_peft_model(model, lora)


def make_trainer(model: Any, number: int, options: argparse.Namespace) -> Any:
    """Return the trainer of a peer, on random tokens of its own."""
    from transformers import Trainer, TrainingArguments  # noqa: PLC0415 -- takes seconds

    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        per_device_eval_batch_size=TESTED,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=1,
        optim="adamw_torch_fused",
        bf16=True,
        logging_nan_inf_filter=False,  # it would wait for the card at each step
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=options.device == "cpu",
    )
    words, random = model.config.vocab_size, torch.Generator().manual_seed(number)
    rows = torch.randint(words, (options.steps * options.batch + TESTED, options.length), generator=random)
    own = [{"input_ids": row, "labels": row} for row in rows]
    return Trainer(model=model, args=arguments, train_dataset=own[TESTED:], eval_dataset=own[:TESTED])


def count_operations(model: Any, *, length: int) -> int:
    """Return the number of floating-point operations in all products for one token of a sequence.

    They are a product and a sum for each weight in the forward pass, and in the backward pass for the gradient of the
    inputs, and once more where the weight trains; and those of attention, of which each token sees half of the others.
    """
    linear = [layer.weight for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
    config = model.config
    attention = config.num_hidden_layers * config.hidden_size
    return sum((6 if weight.requires_grad else 4) * weight.numel() for weight in linear) + 6 * length * attention


def simulate_peers(trainers: dict[str, Any], options: argparse.Namespace) -> Figures:
    """Simulate the peers that have these trainers, and return what it took."""
    learner = TrainerLearner(trainers, rounds=options.rounds, seed=SEED)
    topology = p2pfl.topology.complete(len(trainers)).named(trainers)
    ends, resting, peaks, losses = list[float](), list[int](), list[int](), list[float]()

    def note(records: Any) -> None:
        ends.append(time.perf_counter())
        resting.append(allocated())
        peaks.append(torch.cuda.max_memory_allocated() if options.device == "cuda" else allocated())
        losses.append(sum(record.training_loss for record in records) / len(records))
        if options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def allocated() -> int:
        if options.device == "cuda":
            torch.cuda.synchronize()
            return torch.cuda.memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    settings = {"evaluation": {"every": options.rounds}}
    parts = {"rounds": options.rounds, "seed": SEED, "settings": settings, "baselines": False}
    p2pfl.simulate(p2pfl.FedAvg(), learner, topology, observe=note, **parts)
    # the last round has an evaluation
    seconds = (ends[-2] - ends[0]) / (len(ends) - 2)
    return Figures(resting[-1], peaks[-1], seconds, losses[-1])


def free_memory(device: str) -> None:
    """Free the memory that a simulation no longer uses."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument(
        "--rounds", type=int, default=3, help="at least 3, of which the first and the last do not count"
    )
    parser.add_argument("--steps", type=int, default=2, help="of a peer in a round")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tiny", action="store_true", help="a model of 0.2 million parameters")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("--rounds must be at least 3, of which the first and the last do not count")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("this machine has no GPU that torch can use by CUDA; --tiny --device cpu runs on the CPU")
    warnings.simplefilter("ignore")
    begun = time.perf_counter()
    peak = product(torch.bfloat16) if options.device == "cuda" else None
    model = build_model(options)
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    base = sum(each.nbytes for each in model.parameters() if not each.requires_grad)
    count = sum(each.numel() for each in model.parameters())
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    work = count_operations(model, length=options.length)
    trainers = {f"peer{number}": make_trainer(model, number, options) for number in range(max(options.peers))}
    print(
        f"{name}, torch {torch.__version__}; {count:,} parameters, of which {trained:,} train with rank {options.rank}"
    )
    sizes = [f"{count / 2**20:.1f}" for count in (base, 4 * trained, 8 * trained)]
    print(f"MiB: base {sizes[0]}, adapter {sizes[1]}, state of its optimiser {sizes[2]}")
    tokens = options.batch * options.length
    rate = "" if peak is None else f"; products of 8192: {peak / 1e12:.0f} TFLOP/s"
    print(
        f"{work / 1e9:.2f} GFLOP a token, {tokens:,} tokens a step{rate}; ready in {time.perf_counter() - begun:.1f} s"
    )
    print(HEADS)
    before: tuple[int, Figures] | None = None
    for peers in options.peers:
        free_memory(options.device)
        figures = simulate_peers(dict(list(trainers.items())[:peers]), options)
        speed = peers * options.steps * tokens / figures.seconds
        share = "-" if peak is None else f"{speed * work / peak:.1%}"
        more = ["", ""]
        if before is not None:
            fewer, other = before
            more = [
                f"{(new - old) / (peers - fewer) / 2**20:.1f}"
                for new, old in ((figures.resting, other.resting), (figures.peak, other.peak))
            ]
        print(
            f"{peers:>5}{figures.resting / 2**20:>13.1f}{more[0]:>9}{figures.peak / 2**20:>10.1f}{more[1]:>9}"
            f"{speed:>10,.0f}{share:>9}{figures.loss:>8.3f}",
            flush=True,
        )
        before = peers, figures


if __name__ == "__main__":
    sys.exit(main())
