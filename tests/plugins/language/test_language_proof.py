"""``python -m benchmarks.language`` with a tiny random Llama: all that it shows of SmolLM2."""

from importlib.util import find_spec

import pytest

from benchmarks.language import parsed, prove, tiny

MISSING = [name for name in ("transformers", "peft", "accelerate") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("language"),  # one process imports transformers
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
TEXT = b"In the beginning was the word, and every peer had other words of it. " * 40


def test_live_peers_equal_the_simulation_and_survive_a_death(tmp_path):
    options = "--tiny --peers 4 --rounds 2 --steps 2 --sequences 4 --tests 1 --length 32 --mask 0.01 --patience 20"
    given = parsed(["--text", str(tmp_path), *options.split()])
    figures = prove(tiny(TEXT, given), given)
    assert figures["live - simulated"] < 1e-5
    assert 4 * figures["trained"] < figures["bytes a peer and round"] < 5 * figures["trained"] + 20_000
    assert 0 < figures["naive error"][1] < 1
    assert figures["epsilon"]
    survivors = [each["after a death"] for each in figures["perplexity"].values()]
    assert survivors[-1] is None
    for each, after in zip(list(figures["perplexity"].values())[:-1], survivors[:-1], strict=True):
        assert after < each["before"]
        assert each["together"] < each["before"]
