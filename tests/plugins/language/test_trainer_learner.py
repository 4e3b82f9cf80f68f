"""Trainers of Hugging Face as learners: unchanged, with one optimiser and one schedule over all rounds."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

import p2pfl
from p2pfl.core.errors import ExperimentError, ModelError, RunError
from p2pfl.plugins.language import TrainerLearner, token_scores
from p2pfl.privacy.keys import SeededSource
from p2pfl.testing import check_learner
from tiny_llama import LENGTH, Sequences, make_trainer, tiny_llama

MISSING = [name for name in ("transformers", "peft", "accelerate") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("language"),  # one process imports transformers
    pytest.mark.skipif(bool(MISSING), reason="transformers, peft and accelerate are not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
PEERS = ("ada", "bob", "cas")


def learner_of(folder, *, peers=PEERS, rounds=4, adapters="factors", rank=None, model=None, **settings):
    model = model or tiny_llama()
    trainers = {peer: make_trainer(model, peer, folder, **settings) for peer in peers}
    return TrainerLearner(trainers, rounds=rounds, seed=5, adapters=adapters, rank=rank)


def test_a_trainer_keeps_the_contract_of_learners(tmp_path):
    check_learner(learner_of(tmp_path), ["ada", "bob"])


def record_rates(trainer):
    """Return a list that receives the learning rate of each step of a trainer."""
    from transformers import TrainerCallback  # noqa: PLC0415 -- takes seconds

    rates = []

    class Rates(TrainerCallback):
        def on_optimizer_step(self, *_, **named):
            rates.append(named["optimizer"].param_groups[0]["lr"])

    trainer.add_callback(Rates())
    return rates


def test_four_rounds_of_one_peer_are_one_long_training_of_its_trainer(tmp_path):
    """The rates are those of one schedule over 12 steps, and the moments of AdamW go on."""
    settings = {"count": 4, "per_device_train_batch_size": 4, "weight_decay": 0.01}  # each batch is all samples
    learner = learner_of(tmp_path, peers=("ada",), **settings)
    rates = record_rates(learner.trainers["ada"])
    rows, memory = learner.start(["ada"]), None
    for round in range(4):
        fitted = learner.fit(rows, peers=["ada"], round=round, memory=memory)
        rows, memory = fitted.rows, fitted.memory
        assert fitted.report.steps.tolist() == [3]

    model = tiny_llama()
    tensors = learner.adapters.tensors(learner.start(["ada"])[0], shapes=learner.models["ada"].shapes, scales={})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(tensors[name])
    long = make_trainer(model, "ada", tmp_path, **settings | {"max_steps": 12})
    usual = record_rates(long)
    long.train()
    assert rates == pytest.approx(usual, rel=1e-12)
    oracle = torch.cat([value.flatten() for value in model.parameters() if value.requires_grad])
    torch.testing.assert_close(rows[0], oracle.detach(), atol=1e-5, rtol=1e-4)


def test_an_optimiser_that_began_again_would_end_elsewhere(tmp_path):
    learner = learner_of(tmp_path, peers=("ada",))
    rows = learner.start(["ada"])
    first = learner.fit(rows, peers=["ada"], round=0)
    kept = learner.fit(first.rows, peers=["ada"], round=1, memory=first.memory).rows
    fresh = learner.fit(first.rows, peers=["ada"], round=1).rows
    assert (kept - fresh).abs().max() > 1e-3


def test_each_round_draws_other_batches_even_with_a_seed_of_data(tmp_path):
    learner = learner_of(tmp_path, peers=("ada",), count=40, data_seed=3)
    rows, seen = learner.start(["ada"]), []
    data = learner.trainers["ada"].train_dataset
    for round in (0, 1, 0):
        data.served.clear()
        learner.fit(rows, peers=["ada"], round=round)
        seen.append(data.served[:12])
    assert seen[0] == seen[2] != seen[1]


def test_training_leaves_the_global_generators_as_they_were(tmp_path):
    learner = learner_of(tmp_path)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002 -- the global one is meant
    learner.fit(learner.start(["ada"]), peers=["ada"], round=0)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002


def test_the_total_of_losses_is_that_of_all_tokens_that_count(tmp_path):
    learner = learner_of(tmp_path)
    rows = learner.fit(learner.start(PEERS), peers=PEERS, round=0).rows
    one = rows[:1].expand(3, -1)
    total = learner.tallies(one, peers=PEERS).sum(0).numpy()
    scores = learner.tallied(rows[0], total, copies=1)
    model, losses = learner.trainers["ada"].model.eval(), []
    learner.evaluate(rows[:1], peers=["ada"])  # fills the model
    with torch.no_grad():
        for peer in PEERS:
            for sample in learner.trainers[peer].eval_dataset:
                logits = model(input_ids=sample["input_ids"][None]).logits[0].log_softmax(-1)
                places = [place for place, label in enumerate(sample["labels"]) if place and label != -100]
                losses += [-float(logits[place - 1, sample["labels"][place]]) for place in places]
    assert int(total[1]) == len(losses) == 3 * 4 * 9
    assert scores["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert scores["perplexity"] == pytest.approx(np.exp(np.mean(losses)), rel=1e-5)


def test_a_base_in_bfloat16_is_shared_and_only_adapters_are_rows(tmp_path):
    model = tiny_llama(dtype=torch.bfloat16)
    learner = learner_of(tmp_path, model=model)
    assert all(trainer.model is model for trainer in learner.trainers.values())
    kinds = {value.dtype for value in model.parameters() if not value.requires_grad}
    assert kinds == {torch.bfloat16}
    assert learner.dtype == torch.float32
    assert all("lora_" in name for name in learner.state_dict(learner.start(["ada"])[0]))
    fitted = learner.fit(learner.start(["ada"]), peers=["ada"], round=0)
    assert not torch.equal(fitted.rows, learner.start(["ada"]))


def test_gradient_accumulation_counts_steps_of_the_optimiser(tmp_path):
    settings = {"max_steps": -1, "num_train_epochs": 1, "gradient_accumulation_steps": 2, "count": 16}
    learner = learner_of(tmp_path, per_device_train_batch_size=2, gradient_checkpointing=True, **settings)
    assert learner.fit(learner.start(["ada"]), peers=["ada"], round=0).report.steps.tolist() == [4]


@pytest.mark.sampled(fast=0, all=2)  # factors as they are: test_trl.py, too
@pytest.mark.parametrize(
    ("adapters", "mask"), [("product", 0.0), ("factors", 0.0), ("alternate", 1.0), ("freeze_a", 1.0)]
)
async def test_live_peers_end_where_the_simulation_ends(tmp_path, adapters, mask):
    """Both add the losses of all tokens up to the same perplexity of the one model."""
    graph, source = p2pfl.topology.complete(3).named(PEERS), SeededSource(3)
    privacy = p2pfl.Pairwise(mask=mask) if mask else None
    parts = {"rounds": 2, "privacy": privacy, "source": source, "settings": {"learning": {"consensus": True}}}
    learner = learner_of(tmp_path, rounds=2, adapters=adapters)
    run = p2pfl.simulate(p2pfl.FedAvg(), learner, graph, **parts)
    lived = await p2pfl.live(p2pfl.FedAvg(), learner_of(tmp_path, rounds=2, adapters=adapters), graph, **parts)
    for peer in PEERS:
        for name, value in run.models[peer].items():
            torch.testing.assert_close(lived.models[peer][name], value, atol=1e-5, rtol=1e-4)
    each = torch.stack([learner.evaluate(row[None], peers=[peer])["loss"] for peer, row in rows_of(run, learner)])
    oracle = {"loss": float(each.mean()), "perplexity": float(each.mean().exp())}  # peers have as many tokens each
    assert run.summary["common"] == pytest.approx(oracle, rel=1e-5)
    assert lived.summary["common"] == pytest.approx(oracle, rel=1e-5)


def rows_of(run, learner):
    """Return the final row of each peer, whose models contain factors or their products."""
    for peer in PEERS:
        row = run.models[peer]
        yield (
            peer,
            learner.adapters.row(row, before=torch.zeros(learner.layout.size), scales=learner.models[peer].scales),
        )


def test_peers_with_other_ranks_average_products_or_columns(tmp_path):
    ranks = {"ada": 1, "bob": 2, "cas": 4}
    for adapters in ("freeze_a", "product"):
        trainers = {peer: make_trainer(tiny_llama(rank=rank), peer, tmp_path) for peer, rank in ranks.items()}
        learner = TrainerLearner(trainers, rounds=2, seed=5, adapters=adapters, rank=4)
        rows = learner.start(PEERS)
        before = learner.evaluate(rows, peers=PEERS)["loss"].mean()
        for round in range(2):
            rows = learner.fit(rows, peers=PEERS, round=round).rows.mean(0).expand(3, -1)
        assert learner.evaluate(rows, peers=PEERS)["loss"].mean() < before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"adapters": "mean"}, 'adapters is "mean"; choose one of factors, freeze_a'),
        ({"rank": 1}, "has rank 2; set rank to the largest of all peers"),
        ({"half": True}, "trains as torch.bfloat16, in which small steps are lost"),
    ],
)
def test_what_cannot_be_averaged_is_named(tmp_path, change, sentence):
    if change.pop("half", False):
        change["model"] = tiny_llama().bfloat16()
    with pytest.raises(ModelError, match=sentence):
        learner_of(tmp_path, **change)


def alone(folder, *, rank=2, adapters="freeze_a", rounds=4, base=11, reference=False):
    """Return the learner of one peer of a process of its own, whose adapters are drawn from a local seed."""
    model = tiny_llama(rank=rank)
    if base != 11:
        with torch.no_grad():
            next(value for value in model.parameters() if not value.requires_grad)[0, 0] += 1
    if reference:  # as DPOTrainer of TRL makes it
        model.add_adapter("ref", model.peft_config["default"])
        for name, value in list(model.named_parameters()):
            if ".default." in name:
                model.get_parameter(name.replace(".default.", ".ref.")).data.copy_(value.data)
    trainer = make_trainer(model, "ada", folder)
    return TrainerLearner({"ada": trainer}, rounds=rounds, seed=5, adapters=adapters, rank=4)


@pytest.mark.parametrize("adapters", ["freeze_a", "product"])
@pytest.mark.parametrize("reference", [False, True])
def test_processes_agree_on_the_base_whatever_rank_and_local_seed_their_peers_have(tmp_path, adapters, reference):
    low, high = (alone(tmp_path, rank=rank, adapters=adapters, reference=reference) for rank in (1, 4))
    assert low.base == high.base != ""
    others = alone(tmp_path, adapters=adapters, base=12), alone(tmp_path, adapters=adapters, rounds=5)
    assert len({low.base, *(other.base for other in others)}) == 3


class Scaled(torch.nn.Linear):
    """Layer that keeps the scale of its weights outside of its parameters, as layers in 4 bits do."""

    scale = torch.tensor(1.0)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight.scale"] = self.scale

    def forward(self, x):
        return self.scale * super().forward(x)


def test_scales_that_layers_keep_beside_their_weights_belong_to_the_base(tmp_path):
    bases = []
    for scale in (1.0, 1.0, 2.0):
        model = tiny_llama()
        head = model.get_base_model().lm_head
        scaled = Scaled(head.in_features, head.out_features, bias=False).requires_grad_(False)
        scaled.weight, scaled.scale = head.weight, torch.tensor(scale)
        model.get_base_model().lm_head = scaled
        bases.append(learner_of(tmp_path, peers=("ada",), model=model).base)
    assert bases[0] == bases[1] != bases[2]


def test_peers_learn_adapters_of_a_base_in_4_bits(tmp_path):
    """Weights twice as large have the same 4 bits and other scales, so they are another base."""
    pytest.importorskip("bitsandbytes")
    learners = [learner_of(tmp_path, model=in_4_bits(tmp_path / str(scale), scale=scale)) for scale in (1, 1, 2)]
    assert learners[0].base == learners[1].base != learners[2].base
    settings = {"rounds": 4, "seed": 5, "privacy": p2pfl.Pairwise(mask=0.01), "source": SeededSource(5)}
    first, again = (
        p2pfl.simulate(p2pfl.FedAvg(), each, p2pfl.topology.ring(3).named(PEERS), **settings) for each in learners[:2]
    )
    assert first.summary["together"] < learners[0].evaluate(learners[0].start(PEERS), peers=PEERS)["perplexity"].mean()
    assert all(torch.equal(value, again.models["ada"][name]) for name, value in first.models["ada"].items())


def in_4_bits(folder, *, scale):
    """Return a causal model with adapters whose linear layers are in 4 bits, its weights times a scale."""
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 -- takes seconds
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, set_seed  # noqa: PLC0415

    set_seed(11)
    model = tiny_llama(hidden_size=64, intermediate_size=64).unload()
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear):
                layer.weight *= scale
    model.save_pretrained(folder)
    four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=four, device_map="cpu")
    set_seed(13)
    return get_peft_model(model, LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj"], task_type="CAUSAL_LM"))


def test_trainers_of_a_process_have_the_same_base(tmp_path):
    models = {"ada": tiny_llama(), "bob": tiny_llama()}
    TrainerLearner({peer: make_trainer(model, peer, tmp_path) for peer, model in models.items()}, rounds=1)
    with torch.no_grad():
        next(value for value in models["bob"].parameters() if not value.requires_grad)[0, 0] += 1
    trainers = {peer: make_trainer(model, peer, tmp_path) for peer, model in models.items()}
    with pytest.raises(ModelError, match="the bases of the models of ada and bob differ; load both from the same"):
        TrainerLearner(trainers, rounds=1)


@pytest.mark.parametrize("adapters", ["product", pytest.param("freeze_a", marks=pytest.mark.nightly)])
def test_the_model_that_a_run_returns_is_the_one_that_was_evaluated(tmp_path, adapters):
    """The ranks differ, and with products the scales too."""
    ranks = {"ada": 1, "bob": 2, "cas": 4}
    alpha = {"alpha": 4} if adapters == "product" else {}
    models = {peer: tiny_llama(rank=rank, **alpha) for peer, rank in ranks.items()}
    trainers = {peer: make_trainer(model, peer, tmp_path) for peer, model in models.items()}
    learner = TrainerLearner(trainers, rounds=2, seed=5, adapters=adapters, rank=4)
    run = p2pfl.simulate(p2pfl.FedAvg(), learner, p2pfl.topology.complete(3).named(PEERS), rounds=2)
    for peer, model in models.items():
        model.load_state_dict(run.models[peer], strict=False)
        with torch.no_grad():
            for name, value in run.models[peer].items():
                assert torch.equal(model.get_parameter(name), value)
        scores = token_scores.scores(*token_scores.total_losses(trainers[peer]))
        assert scores["perplexity"] == pytest.approx(run.summary["per_peer"][peer]["together"], rel=1e-6)


def test_a_trainer_without_evaluation_data_among_others_is_named(tmp_path):
    def trainers(**data):
        made = {peer: make_trainer(tiny_llama(), peer, tmp_path) for peer in PEERS}
        for peer, own in data.items():
            made[peer].eval_dataset = own
        return made

    with pytest.raises(ModelError, match="bob has no eval_dataset, but others have; give one to all peers"):
        TrainerLearner(trainers(bob=None), rounds=1)
    with pytest.raises(ModelError, match="the eval_dataset of cas is several sets by name, but scores are"):
        TrainerLearner(trainers(cas={"easy": [], "hard": []}), rounds=1)
    learner = TrainerLearner(trainers(**dict.fromkeys(PEERS)), rounds=1)
    assert learner.evaluate(learner.start(PEERS), peers=PEERS) == {}


def test_what_is_no_trainer_with_training_data_is_named(tmp_path):
    with pytest.raises(
        ModelError, match="the trainer of ada is a PeftModelForCausalLM; give a Trainer of transformers"
    ):
        TrainerLearner({"ada": tiny_llama()}, rounds=1)
    for data in (None, Sequences(torch.zeros(0, LENGTH, dtype=torch.long))):
        trainer = make_trainer(tiny_llama(), "ada", tmp_path)
        trainer.train_dataset = data
        with pytest.raises(ModelError, match="the trainer of ada has no training samples; give it a train_dataset"):
            TrainerLearner({"ada": trainer}, rounds=1)


def test_a_trainer_that_stops_within_a_round_is_refused(tmp_path):
    from transformers import EarlyStoppingCallback  # noqa: PLC0415 -- takes seconds

    trainer = make_trainer(tiny_llama(), "ada", tmp_path)
    trainer.add_callback(EarlyStoppingCallback())
    with pytest.raises(
        ModelError, match=r"of ada has an EarlyStoppingCallback, .*; remove it, and set learning.patien"
    ):
        TrainerLearner({"ada": trainer}, rounds=1)


def test_peers_of_the_topology_without_a_trainer_are_named(tmp_path):
    learner = learner_of(tmp_path, peers=("ada", "bob"), rounds=1)
    with pytest.raises(ModelError, match="there is no trainer for peer0, only for ada, bob; name both alike"):
        p2pfl.simulate(p2pfl.FedAvg(), learner, p2pfl.topology.complete(2), rounds=1, baselines=False)


def test_evaluation_data_without_a_token_that_counts_are_named(tmp_path):
    learner = learner_of(tmp_path)
    tokens = learner.trainers["bob"].eval_dataset.tokens
    labels = torch.full_like(tokens, -100)
    labels[:, 0] = 3  # which nothing predicts
    dead = [{"input_ids": own, "labels": none} for own, none in zip(tokens, labels, strict=True)]
    learner.trainers["bob"].eval_dataset = dead
    rows = learner.start(PEERS)
    for use in (learner.evaluate, learner.tallies):
        with pytest.raises(ModelError, match="no token of the eval_dataset of bob counts, as all of its labels"):
            use(rows, peers=PEERS)


def test_an_error_of_a_callback_names_the_peer_and_keeps_its_cause(tmp_path):
    from transformers import TrainerCallback  # noqa: PLC0415 -- takes seconds

    class Broken(TrainerCallback):
        def on_step_end(self, *_, **__):
            raise RuntimeError("the disk is full")

    learner = learner_of(tmp_path, peers=("ada",))
    learner.trainers["ada"].add_callback(Broken())
    with pytest.raises(RunError, match="training of ada failed in round 0: RuntimeError: the disk is full") as error:
        learner.fit(learner.start(["ada"]), peers=["ada"], round=0)
    assert isinstance(error.value.__cause__, RuntimeError)


def test_a_round_beyond_the_schedule_is_refused(tmp_path):
    learner = learner_of(tmp_path, peers=("ada",), rounds=1)
    rows = learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows
    with pytest.raises(ModelError, match="scheduled over 1 rounds and the run has more"):
        learner.fit(rows, peers=["ada"], round=1)


def test_epsilon_is_stated_for_peers_and_refused_for_samples(tmp_path):
    graph = p2pfl.topology.complete(3).named(PEERS)
    parts = {"rounds": 2, "baselines": False}
    private = p2pfl.Pairwise(epsilon=8, colluders=0)
    found = p2pfl.simulate(p2pfl.FedAvg(), learner_of(tmp_path, rounds=2), graph, privacy=private, **parts)
    assert found.summary["privacy"]["epsilon"] == pytest.approx(8, rel=1e-6)
    assert found.summary["privacy"]["examples"] is None
    samples = {"learning": {"example_noise": 2.0}}
    with pytest.raises(ExperimentError, match="cannot bound what one sample changes; leave it out and set"):
        p2pfl.simulate(p2pfl.FedAvg(), learner_of(tmp_path, rounds=2), graph, settings=samples, **parts)


@pytest.mark.parametrize("disable_tqdm", [False, True])
def test_trainers_write_nothing_to_standard_output(tmp_path, capsys, disable_tqdm):
    learner = learner_of(tmp_path, peers=("ada",), disable_tqdm=disable_tqdm, logging_steps=1)
    learner.fit(learner.start(["ada"]), peers=["ada"], round=0)
    assert capsys.readouterr().out == ""
