"""The Python of the guide on language models runs as it stands, on a tiny Llama in place of SmolLM2."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from p2pfl.plugins.language import TrainerLearner
from tiny_llama import tiny_llama, tiny_tokenizer

MISSING = [name for name in ("transformers", "peft", "trl", "datasets") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("language"),  # one process imports transformers
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
PAGE = Path(__file__).parents[3] / "docs" / "language-models.md"
UNPACKING = "unpack_gguf("
PEERS = ("ada", "bob", "cas")


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """Return the names that the snippets define, run in order where each peer has a text and conversations."""
    folder = tmp_path_factory.mktemp("guide")
    first, *others = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        tiny_llama().unload().save_pretrained("smollm2")
        tiny_tokenizer().save_pretrained("smollm2")
        for step, peer in enumerate(PEERS, 1):
            words = [f"w{number * step % 27}" for number in range(700)]
            Path(f"{peer}.txt").write_text(" ".join(words), "utf-8")
            pairs = zip(words[:60:2], words[1:60:2], strict=True)
            lines = [
                {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
                for question, answer in pairs
            ]
            Path(f"{peer}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        names = {}
        assert UNPACKING in first
        exec(compile(re.sub(r"^(package|unpack_gguf).*\n", "", first, flags=re.MULTILINE), PAGE.name, "exec"), names)  # noqa: S102
        for block in others:
            exec(compile(block, PAGE.name, "exec"), names)  # noqa: S102 -- the snippets of our own page
        yield names


def test_peers_of_the_guide_learn_together(followed):
    run, learner = followed["run"], followed["learner"]
    before = learner.evaluate(learner.start(PEERS), peers=PEERS)["perplexity"].mean()
    assert run.summary["together"] < before
    assert sorted(learner.factor_errors) == [0, 1, 2, 3, 4]


def test_the_private_run_of_the_guide_states_its_epsilon(followed):
    assert followed["private"].summary["privacy"]["statement"].startswith("(8, 1e-05)-differential privacy of each pe")


def test_conversations_of_the_guide_are_packed_and_trained_on(followed):
    learner = TrainerLearner({peer: followed["chats"](peer) for peer in PEERS}, rounds=1)
    start = learner.start(PEERS)
    assert 0 < learner.samples(PEERS).max() < 26  # fewer sequences than the 26 conversations that train
    fitted = learner.fit(start, peers=PEERS, round=0)
    assert fitted.report.steps.tolist() == [4, 4, 4]
    assert (fitted.rows != start).any(dim=1).all()
    assert learner.evaluate(fitted.rows, peers=PEERS)["loss"].isfinite().all()
    assert not [*Path().rglob("checkpoint-*")]  # which trainers would write in each round
