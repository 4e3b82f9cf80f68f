"""What neighbours must agree on."""

import pytest
import torch
from safetensors.torch import save_file

from graph_files import save_graph
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.topology import ring, star

TABLE = {"topology": {"kind": "ring", "peers": 4}, "data": {"name": "wine"}, "model": {"name": "mlp", "hidden": [4]}}


def test_peers_whose_frozen_weights_differ_do_not_mix_what_was_trained_on_them(tmp_path):
    resolved = plan(read(TABLE))
    base = resolved.learner.state_dict(resolved.learner.start(["peer0"])[0])
    last = max(name for name in base if name.endswith("weight"))
    other = base | {last: base[last] + 1}
    facts = []
    for name, tensors in (("a", base), ("b", other)):
        path = tmp_path / f"{name}.safetensors"
        save_file({key: value.contiguous() for key, value in tensors.items()}, path)
        changes = [f'model.pretrained="{path}"', f'model.frozen=["{last}"]']
        facts.append(plan(read(TABLE, changes=changes)).facts)
    assert facts[0]["start"] != facts[1]["start"]
    assert {**facts[0], "start": ""} == {**facts[1], "start": ""}


def test_several_files_are_a_schedule_in_the_order_given(tmp_path):
    for name, graph in (("a", ring(4)), ("b", star(4))):
        save_graph(graph, tmp_path / f"{name}.json")
    table = TABLE | {"topology": {"kind": ["a.json", "b.json"]}}
    (tmp_path / "e.toml").write_text('[topology]\nkind = ["a.json", "b.json"]\n[data]\nname = "wine"\n')
    topology = plan(read(tmp_path / "e.toml")).topology
    assert topology.period == 2
    assert topology.at(0).edges == ring(4).edges
    assert topology.at(3).edges == star(4).edges
    assert read(table).topology.kind == ("a.json", "b.json")
    assert torch.is_tensor(plan(read(tmp_path / "e.toml")).learner.start(["peer0"]))


def test_each_owner_decides_alone_who_may_look_at_a_peer():
    shared = {"share": "scores", "observers": "observers.toml"}
    assert plan(read(TABLE | {"telemetry": shared})).facts == plan(read(TABLE)).facts


@pytest.mark.parametrize(
    ("telemetry", "privacy", "why"),
    [
        (
            {"share": "scores", "observers": "o.toml"},
            {"mode": "pairwise", "epsilon": 8.0, "clip": 1.0},
            "with private noise, whose guarantee does not cover scores of private data",
        ),
        (
            {"share": "health", "observers": "o.toml"},
            {"mode": "pairwise", "noise": 0.1, "clip": 1.0, "participation": 0.5},
            "with privacy.participation below 1, because rounds and times reveal who takes part",
        ),
    ],
)
def test_telemetry_that_would_break_a_promise_is_refused(telemetry, privacy, why):
    with pytest.raises(ExperimentError, match=f"telemetry.share.* does not work {why}"):
        plan(read(TABLE | {"telemetry": telemetry, "privacy": privacy}))


def test_live_peers_alone_need_the_keys_of_those_who_may_look():
    experiment = read(TABLE | {"telemetry": {"share": "health"}})
    with pytest.raises(ExperimentError, match=r"telemetry.share.* does not work without telemetry\.observers"):
        plan(experiment, live=True)
    assert plan(experiment).facts == plan(read(TABLE)).facts


@pytest.mark.parametrize("share", ["health", "unaccounted"])
def test_telemetry_that_would_show_the_size_of_secret_batches_is_refused(share):
    telemetry = {"share": share, "observers": "o.toml"}
    why = "with learning.example_noise, because the time of a training reveals"
    with pytest.raises(ExperimentError, match=f"telemetry.share.* does not work {why}"):
        plan(read(TABLE | {"telemetry": telemetry, "learning": {"example_noise": 1.0}}))


def test_scores_are_shared_beside_a_guarantee_if_the_owner_says_so():
    telemetry = {"share": "unaccounted", "observers": "o.toml"}
    privacy = {"mode": "pairwise", "epsilon": 8.0, "clip": 1.0}
    assert plan(read(TABLE | {"telemetry": telemetry, "privacy": privacy})).experiment.telemetry.share == "unaccounted"
