"""The section ``[compression]``."""

import sys

import pytest

from p2pfl.core.codecs import QSGD, Half, Quantise
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.core.sparse_codecs import RandomK, TopK
from p2pfl.experiment import plan, read
from p2pfl.experiment.catalogue import CODECS, codec_traits
from p2pfl.simulation import simulate

SMALL = {
    "seed": 3,
    "rounds": 4,
    "topology": {"peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "mlp", "hidden": [16]},
    "learning": {"device": "cpu"},
}


def planned(*changes):
    return plan(read(SMALL, changes=changes))


@pytest.mark.parametrize(
    ("changes", "codec"),
    [
        ([], None),
        (["compression.name=float16"], Half("float16")),
        (["compression.name=bfloat16"], Half("bfloat16")),
        (["compression.name=top_k", "compression.options.share=0.1"], TopK(0.1)),
        (["compression.name=random_k"], RandomK(0.01, seed=3)),
        (["compression.name=qsgd", "compression.options.levels=7"], QSGD(7, seed=3)),
        (["compression.name=quantise"], Quantise(8)),
    ],
    ids=str,
)
def test_every_name_is_a_codec(changes, codec):
    assert planned(*changes).codec == codec


@pytest.mark.parametrize("kind", ["ring", "base"])
def test_a_codec_of_differences_knows_how_many_graphs_take_turns(kind):
    codec = ["compression.name=top_k", "compression.options.share=0.1"]
    plan = planned(*codec, f"topology.kind={kind}", *(["topology.degree=1"] if kind == "base" else []))
    assert plan.played.algorithm.period == plan.topology.period
    assert (plan.topology.period > 1) == (kind == "base")


@pytest.mark.parametrize("name", CODECS)
def test_codecs_that_send_differences_are_known_by_name(name):
    made = planned(f"compression.name={name}").codec
    assert codec_traits(name) == made.traits
    assert made.traits.differences == (name not in {"float16", "bfloat16"})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            ["compression.name=float16", "privacy.mode=pairwise"],
            'does not work with privacy.mode = "pairwise", whose masks .* do not cancel',
        ),
        (["compression.name=top_k", "privacy.mode=independent", "privacy.noise=0.1"], "does not work with privacy"),
        (["compression.name=float16", "learning.algorithm=partial"], "with partial, which shares another part"),
        (["compression.name=qsgd", "learning.algorithm=gradient_tracking"], "no past in common; leave one"),
        (
            ["compression.name=float16", "learning.algorithm=relay_sgd", "topology.kind=path"],
            "subtracts from what it receives exactly what it had sent",
        ),
        (["compression.name=float16", "learning.algorithm=multitask"], "compares the rows"),
        (["compression.name=quantise", "gossip.acceleration=chebyshev"], "which expects plain mixing"),
        (["compression.name=top_k", "compression.options.share=0.9"], '"top_k" sends .* bytes for a model of .* bytes'),
        (["compression.name=top_q"], 'name is "top_q"; set it to .*"top_k".*; did you mean "top_k"'),
        (
            ["compression.options.share=0.5"],
            'options = .* has no effect, because compression.name is "none"; leave it out',
        ),
        (
            ["compression.name=quantise", "compression.options.levels=7"],
            "quantise has no option levels; its options are: bits",
        ),
        (
            ["compression.name=float16", "compression.options.refresh=7"],
            "float16 has no option refresh; its options are: none",
        ),
        (
            ["compression.name=quantise", "compression.options.bits=9"],
            r"^compression\.options: bits is 9, not from 2 to 8",
        ),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_said_in_one_sentence(changes, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        planned(*changes)


def test_without_the_library_zstd_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(
        InputError,
        match=(
            r'compression\.zstd needs zstandard, which is not installed; run pip install "p2pfl-mqtt\[zstd\]", or '
            r"leave compression\.zstd out"
        ),
    ):
        planned("compression.zstd=true")


@pytest.mark.slow
def test_squeezing_changes_the_bytes_and_nothing_else():
    pytest.importorskip("zstandard")
    for mode in ("none", "pairwise"):
        plain = simulate(read(SMALL, changes=[f"privacy.mode={mode}"]), baselines=False)
        tight = simulate(read(SMALL, changes=[f"privacy.mode={mode}", "compression.zstd=true"]), baselines=False)
        assert tight.summary["together"] == plain.summary["together"]
        assert tight.summary["bytes_sent"] < plain.summary["bytes_sent"]


def test_neighbours_must_agree_on_the_compression():
    facts = planned("compression.name=qsgd", "compression.options.levels=7").facts
    assert facts["compression.name"] == "qsgd"
    assert facts["compression.options"] == "{'levels': 7}"


@pytest.mark.slow
def test_over_an_eighth_of_the_bytes_a_run_ends_near_where_it_ends_without():
    plain = simulate(read(SMALL, changes=["rounds=20"]), baselines=False).summary
    short = simulate(
        read(SMALL, changes=["rounds=20", "compression.name=quantise", "compression.options.bits=4"]), baselines=False
    ).summary
    assert short["bytes_sent"] < plain["bytes_sent"] / 6
    assert short["together"] > plain["together"] - 0.05
