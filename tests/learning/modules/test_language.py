"""Models of transformers with LoRA adapters of peft: only the adapters and the head travel and are saved."""

import json
from importlib.util import find_spec

import pytest
import torch

from p2pfl.core.errors import ModelError
from p2pfl.experiment import plan, read
from p2pfl.learning import build
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.broker import embedded
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from swarms import live

MISSING = [name for name in ("transformers", "peft") if find_spec(name) is None]  # their import takes seconds
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("language"),  # one process imports transformers
    pytest.mark.skipif(bool(MISSING), reason="transformers and peft are not installed"),
    pytest.mark.filterwarnings(
        "ignore::FutureWarning",  # of peft and transformers about each other
        "ignore::DeprecationWarning",
        "ignore:There is a performance drop:UserWarning",  # vmap runs the attention row by row
    ),
]

TINY = {
    "model_type": "bert",
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}
GPT = {"model_type": "gpt2", "vocab_size": 20, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}
LORA = {"r": 2, "target_modules": ["query", "value"]}
TABLE = {
    "rounds": 1,
    "topology": {"kind": "complete", "peers": 3},
    "data": {"name": "owning:words", "options": {"classes": 2}},
    "model": {"name": "transformers:AutoModelForSequenceClassification", "options": {"config": TINY, "lora": LORA}},
    "learning": {"device": "cpu", "steps": 1},
    "privacy": {"mode": "pairwise"},
}


@pytest.fixture(scope="module")
def resolved():
    return plan(read(TABLE))


def test_only_adapters_and_head_are_in_a_row(resolved):
    names = resolved.learner.layout.names
    assert all("lora_" in name or "classifier" in name for name in names)
    assert resolved.shared == 4 * 2 * 8 + 2 * 8 + 2  # two matrices for query and for value; the head
    whole = sum(parameter.numel() for parameter in resolved.learner.model.parameters())
    assert resolved.shared < whole / 5


def test_only_adapters_and_head_are_saved(resolved, tmp_path):
    run = simulate(resolved, folder=tmp_path / "run", baselines=False)
    for model in run.models.values():
        assert set(model) == set(resolved.learner.layout.names)
    assert (tmp_path / "run" / "peers" / "peer0.safetensors").stat().st_size < 20_000


def test_adapters_of_a_run_start_another(resolved, tmp_path):
    run = simulate(resolved, folder=tmp_path / "run", baselines=False)
    file = tmp_path / "run" / "peers" / "peer0.safetensors"
    again = plan(read(TABLE, changes=[f"model.pretrained={file}"]))
    start = again.learner.state_dict(again.learner.start(["peer0"])[0])
    for name, value in run.models["peer0"].items():
        assert torch.equal(start[name], value)


def test_the_scores_of_many_rows_are_those_of_one(resolved):
    learner, peers = resolved.learner, ["peer0", "peer1"]
    rows = learner.fit(learner.start(peers), peers=peers, round=0).rows
    alone = learner.fit(learner.start(["peer1"]), peers=["peer1"], round=0).rows
    torch.testing.assert_close(rows[1:], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("broker", ["memory", "mosquitto"])
@pytest.mark.parametrize("privacy", ["none", "pairwise"])
async def test_live_peers_exchange_the_adapters_alone_and_end_where_the_simulation_ends(broker, privacy):
    changes = ["rounds=2", f"privacy.mode={privacy}", *(["privacy.mask=1.0"] if privacy == "pairwise" else [])]
    experiment = read(TABLE, changes=changes)
    source = SeededSource(11)
    if broker == "memory":
        ended = await live(experiment, MemoryTransport(), source=source)
    else:
        with embedded() as running:
            ended = await live(experiment, connect(experiment, urls=[running.url], peer="all"), source=source)
    run = simulate(experiment, source=source, baselines=False)
    for name, end in ended.items():
        found = end.peer.plan.saved(end.state.rows[0], peer=end.peer.name)
        assert end.state.rows.shape == (1, end.peer.plan.shared)
        assert found.keys() == run.models[name].keys()
        for key, value in run.models[name].items():
            torch.testing.assert_close(found[key], value, atol=1e-4, rtol=1e-4)


def test_a_causal_model_predicts_the_next_token():
    options = {"config": GPT, "lora": {"r": 2, "target_modules": ["c_attn"], "fan_in_fan_out": True}}
    model = build("transformers:AutoModelForCausalLM", shape=(5,), classes=20, seed=1, options=options)
    tokens = torch.randint(20, (3, 5), generator=torch.Generator().manual_seed(0))
    assert model(tokens).shape == (3, 20, 5)
    assert all("lora_" in name for name, value in model.named_parameters() if value.requires_grad)


def test_noise_on_the_gradients_of_samples_protects_each_with_adapters():
    """A sample is a sequence; only the adapters train."""
    model = {"config": LLAMA, "lora": {"r": 2, "target_modules": ["q_proj", "v_proj"]}}
    made = plan(
        read(
            {
                "rounds": 2,
                "topology": {"kind": "complete", "peers": 3},
                "data": {"name": "tiny_llama:texts", "options": {"classes": 32}},
                "model": {"name": "transformers:AutoModelForCausalLM", "options": model},
                "learning": {"device": "cpu", "steps": 2, "batch": 8, "example_noise": 2.0},
            }
        )
    )
    assert all("lora_" in name for name in made.learner.layout.names)
    found = simulate(made, baselines=False).summary["privacy"]
    assert 0 < found["examples"]["epsilon"] < 1
    assert "differential privacy of each single sample inside a peer" in found["statement"]


def test_padding_is_left_out_of_the_attention():
    options = {"config": TINY, "pad": 0}
    model = build("transformers:AutoModelForSequenceClassification", shape=(5,), classes=2, seed=1, options=options)
    model.eval()
    short, long = torch.tensor([[3, 4, 5]]), torch.tensor([[3, 4, 5, 0, 0]])
    torch.testing.assert_close(model(short), model(long), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("AutoModelForSequenceClassification", {}, "needs `path`, the folder of a pretrained model, or `config`"),
        ("AutoModelForSequenceClassification", {"path": "nobody/none"}, "the model nobody/none is not on this machine"),
        ("Nothing", {"config": TINY}, 'transformers has no model class "Nothing"'),
        (
            "AutoModelForSequenceClassification",
            {"config": TINY, "lora": {"r": 2, "target_modules": ["nothing"]}},
            r"model\.options\.lora does not fit the model \(.*modules",
        ),
        (
            "AutoModelForSequenceClassification",
            {"config": TINY, "lora": {"r": 2, "megatron_config": {"a": 1}, "megatron_core": "evil"}},
            r"model\.options\.lora\.megatron_config makes peft import a module by its name; leave it out",
        ),
    ],
)
def test_what_cannot_be_built_is_named(name, options, sentence):
    with pytest.raises(ModelError, match=sentence):
        build(f"transformers:{name}", shape=(5,), classes=2, seed=1, options=options)


def test_code_beside_a_model_is_not_run_even_if_somebody_presses_y(tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: "y")
    marker = tmp_path / "imported"
    names = {"AutoConfig": "evil.Settings", "AutoModelForSequenceClassification": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": names}))
    (tmp_path / "evil.py").write_text(
        f"open({str(marker)!r}, 'w').close()\nfrom transformers import PretrainedConfig as Settings\nModel = Settings\n"
    )
    with pytest.raises(ModelError, match="contains custom code"):
        build(
            "transformers:AutoModelForSequenceClassification",
            shape=(5,),
            classes=2,
            seed=1,
            options={"path": str(tmp_path)},
        )
    assert not marker.exists()
