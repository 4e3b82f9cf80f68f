"""The transport, the algorithm and the privacy mode that the documentation writes keep their contracts."""

import re
from pathlib import Path

import pytest
import torch

import p2pfl
from p2pfl.network.transport import opened
from p2pfl.network.transport.schemes import SCHEMES
from p2pfl.testing import check_algorithm, check_mode, check_transport

DOCS = Path(__file__).parent.parent.parent / "docs"


def example(page, containing):
    """Run the Python block of a page that contains a text; return its names."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    [block] = [each for each in blocks if containing in each]
    names = {"__name__": "documented"}
    exec(compile(block, page, "exec", dont_inherit=True), names)  # noqa: S102 (that is what the page asks for)
    return names


async def test_the_documented_transport_keeps_the_contract(monkeypatch):
    monkeypatch.setitem(SCHEMES, "zlib+memory", None)  # removed afterwards, as the page registers it
    example("compose.md", "class ZlibTransport")
    await check_transport(lambda: opened("zlib+memory://documented"))


@pytest.mark.slow
def test_the_documented_algorithm_keeps_the_contract():
    check_algorithm(example("add-an-algorithm.md", "class Heavy:")["Heavy"](p2pfl.Averaging()))


RING = p2pfl.topology.ring(4)


@pytest.fixture
def learner():
    data = {peer: (torch.eye(4), torch.tensor([0, 1, 0, 1])) for peer in RING.peers}
    return p2pfl.TorchLearner(torch.nn.Linear(4, 2), data, rate=0.5)


@pytest.mark.slow
def test_the_documented_privacy_mode_keeps_the_contract():
    check_mode(example("compose.md", "class Rounded(")["Rounded"](noise=0.01))


def test_the_documented_privacy_mode_takes_totals_as_they_are(learner):
    mode = example("compose.md", "class Rounded(")["Rounded"](noise=0.01)
    together = {"learning": {"consensus": True}}  # one model in the end, by a total
    run = p2pfl.simulate(p2pfl.FedAvg(), learner, RING, rounds=2, privacy=mode, settings=together, baselines=False)
    first, *others = run.models.values()
    assert all(torch.equal(first[name], each[name]) for each in others for name in first)


def test_the_documented_privacy_mode_rounds_what_leaves(learner):
    mode = example("compose.md", "class Rounded(")["Rounded"]
    plain, rounded = (
        p2pfl.simulate(p2pfl.FedAvg(), learner, RING, rounds=2, privacy=privacy, baselines=False)
        for privacy in (None, mode(noise=0.01))
    )
    gaps = [(plain.models[p][n] - rounded.models[p][n]).abs().max() for p in RING.peers for n in plain.models[p]]
    assert 0 < max(gaps) < 0.05
    assert "rounded to 0.01" in rounded.summary["privacy"]["statement"]
