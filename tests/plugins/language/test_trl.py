"""Trainers of TRL as learners: conversations in packed sequences, and preferences against the frozen base."""

import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch

import p2pfl
from p2pfl.core.errors import ModelError
from p2pfl.plugins.language import TrainerLearner
from tiny_llama import LENGTH, tiny_llama, tiny_tokenizer

MISSING = [name for name in ("transformers", "peft", "trl", "datasets") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("language"),  # one process imports transformers
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
PEERS = ("ada", "bob", "cas")
USUAL = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "bf16": False}


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


def conversations(count):
    return [
        {
            "messages": [
                {"role": "user", "content": f"w{number % 5} w{number % 3}"},
                {"role": "assistant", "content": f"w{number % 5 + 10} w{number % 3 + 20}"},
            ]
        }
        for number in range(count)
    ]


def talking(folder, tokenizer, *, packing):
    """Return a trainer on 24 conversations of a data set on disk."""
    from datasets import Dataset, load_from_disk  # noqa: PLC0415 -- takes seconds
    from trl import SFTConfig, SFTTrainer  # noqa: PLC0415

    Dataset.from_list(conversations(24)).save_to_disk(folder / "talk")
    data = load_from_disk(folder / "talk")
    arguments = SFTConfig(
        output_dir=str(folder), max_steps=6, learning_rate=0.05, packing=packing, max_length=LENGTH, **USUAL
    )
    return SFTTrainer(tiny_llama(), args=arguments, train_dataset=data, eval_dataset=data, processing_class=tokenizer)


def test_packed_conversations_of_a_data_set_on_disk_train(tmp_path, tokenizer):
    learner = TrainerLearner({"ada": talking(tmp_path, tokenizer, packing=True)}, rounds=2, seed=1)
    start = learner.start(["ada"])
    fitted = learner.fit(start, peers=["ada"], round=0)
    assert fitted.report.steps.tolist() == [6]
    before, after = (learner.evaluate(rows, peers=["ada"])["loss"].item() for rows in (start, fitted.rows))
    assert after < before - 0.05
    assert learner.samples(["ada"]).item() < 24  # packed
    loss, count = learner.tallies(start, peers=["ada"])[0].tolist()
    assert count == 24 * 5  # of the six tokens of a conversation, all but the first are predicted
    assert loss / 2**24 / count == pytest.approx(before)


def test_no_conversation_sees_another_in_its_packed_sequence(tmp_path, tokenizer):
    packed, alone = (
        TrainerLearner({"ada": talking(tmp_path / str(packing), tokenizer, packing=packing)}, rounds=1, seed=1)
        for packing in (True, False)
    )
    rows = packed.fit(packed.start(["ada"]), peers=["ada"], round=0).rows
    (loss, count), (wanted, tokens) = (each.tallies(rows, peers=["ada"])[0].tolist() for each in (packed, alone))
    assert count == tokens
    assert loss == pytest.approx(wanted, rel=1e-6)


def test_texts_of_an_audit_are_planted_among_packed_sequences(tmp_path, tokenizer):
    learner = TrainerLearner({"ada": talking(tmp_path, tokenizer, packing=True)}, rounds=1, seed=1)
    length, words = learner.text_size("ada")
    texts = torch.randint(5, words, (5, length), generator=torch.Generator().manual_seed(3))
    there = np.array([True] * 4 + [False])
    planted = learner.with_texts(texts, np.arange(5), there, peer="ada")
    start = learner.start(["ada"])
    losses = [
        learner.text_losses(row[0], texts, peer="ada")
        for row in (start, planted.fit(start, peers=["ada"], round=0).rows)
    ]
    gain = (losses[0] - losses[1]).numpy()
    assert gain[there].mean() > gain[~there].mean() + 0.1


def preferring(folder, tokenizer, peer, *, model=None, max_steps=6, beta=0.5):
    """Return a trainer of DPO, whose every batch is all 16 pairs of its peer."""
    from datasets import Dataset  # noqa: PLC0415 -- takes seconds
    from trl import DPOConfig, DPOTrainer  # noqa: PLC0415

    own = sum(map(ord, peer)) % 3
    pairs = [{"prompt": f"user w{n % 5}", "chosen": f" w1{own} w11", "rejected": " w20 w21"} for n in range(16)]
    data = Dataset.from_list(pairs)
    settings = {"max_steps": max_steps, "per_device_train_batch_size": 16, "warmup_steps": 2}
    arguments = DPOConfig(output_dir=str(folder / peer), learning_rate=0.05, beta=beta, **settings, **USUAL)
    trainer = DPOTrainer(
        model or tiny_llama(), args=arguments, train_dataset=data, eval_dataset=data, processing_class=tokenizer
    )
    trainer.model.delete_adapter("ref")  # so the reference is the base without adapters, which peers share
    return trainer


def test_preferences_are_learned_against_the_frozen_base(tmp_path, tokenizer):
    """At the start the policy is its own reference, so the loss is log 2."""
    trainer = preferring(tmp_path, tokenizer, "ada")
    learner = TrainerLearner({"ada": trainer}, rounds=2, seed=1)
    start = learner.start(["ada"])
    assert [*trainer.model.peft_config] == ["default"]
    base = {name: value.clone() for name, value in trainer.model.named_parameters() if "lora_" not in name}
    rows, memory = start, None
    for round in range(2):
        fitted = learner.fit(rows, peers=["ada"], round=round, memory=memory)
        rows, memory = fitted.rows, fitted.memory
    before, after = (learner.evaluate(each, peers=["ada"]) for each in (start, rows))
    assert before["loss"].item() == pytest.approx(math.log(2), abs=1e-6)
    assert after["loss"].item() < 0.6
    assert after["rewards/accuracies"].item() == 1
    assert all(torch.equal(value, base[name]) for name, value in trainer.model.named_parameters() if name in base)
    assert all("lora_" in name for name in learner.layout.names)


def test_peers_that_weigh_the_reference_differently_or_not_at_all_are_named(tmp_path, tokenizer):
    trainers = {peer: preferring(tmp_path, tokenizer, peer, beta=beta) for peer, beta in (("ada", 0.5), ("bob", 0.1))}
    with pytest.raises(ModelError, match=r"beta is 0.5 at ada and 0.1 at bob, .*; give all peers the same"):
        TrainerLearner(trainers, rounds=1)
    for beta in (0.0, -0.1, math.nan):
        trainers["ada"].args.beta = beta
        with pytest.raises(ModelError, match=rf"beta of ada is {beta:g}, .*; set it above 0"):
            TrainerLearner({"ada": trainers["ada"]}, rounds=1)


def test_two_rounds_of_preferences_are_one_long_training(tmp_path, tokenizer):
    learner = TrainerLearner({"ada": preferring(tmp_path, tokenizer, "ada")}, rounds=2, seed=1)
    start = learner.start(["ada"])
    rows, memory = start, None
    for round in range(2):
        fitted = learner.fit(rows, peers=["ada"], round=round, memory=memory)
        rows, memory = fitted.rows, fitted.memory

    long = preferring(tmp_path, tokenizer, "ada", max_steps=12)
    ones = learner.adapters.tensors(start[0], shapes=learner.models["ada"].shapes, scales={})
    trained = {name: value for name, value in long.model.named_parameters() if value.requires_grad}
    with torch.no_grad():
        for name, value in trained.items():
            value.copy_(ones[name])
    long.train()
    oracle = torch.cat([value.detach().flatten() for value in trained.values()])
    assert (oracle - start[0]).abs().max() > 0.01
    torch.testing.assert_close(rows[0], oracle, atol=1e-5, rtol=1e-4)


async def test_live_peers_with_preferences_end_where_the_simulation_ends(tmp_path, tokenizer):
    """Peers of one process share a model, and with it the reference."""

    def learner():
        model = tiny_llama()
        return TrainerLearner(
            {peer: preferring(tmp_path, tokenizer, peer, model=model, max_steps=3) for peer in PEERS}, rounds=2, seed=1
        )

    graph = p2pfl.topology.complete(3).named(PEERS)
    run = p2pfl.simulate(p2pfl.FedAvg(), learner(), graph, rounds=2)
    lived = await p2pfl.live(p2pfl.FedAvg(), learner(), graph, rounds=2)
    for peer, model in run.models.items():
        for name, value in model.items():
            torch.testing.assert_close(lived.models[peer][name], value, atol=1e-5, rtol=1e-4)
    assert run.summary["metric"] == "rewards/accuracies"
    assert run.summary["together"] > 0.9
    assert all(record.scores["loss"] < math.log(2) for record in run.metrics)
