import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers import (
    PAPERS,
    Line,
    __main__,
    deck2018,
    fed_heart,
    fedprox,
    mcmahan2017,
    mcmahan2017_cnn,
    personal,
    pfedme,
    scaffold,
)
from benchmarks.papers import bytes as sent_bytes
from p2pfl import simulate
from p2pfl.experiment import plan, read


@pytest.fixture
def _data(monkeypatch):
    folder = Path(os.environ.get("P2PFL_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no folder with data sets; set P2PFL_DATA")
    monkeypatch.setenv("P2PFL_DATA", str(folder))
    deck2018.data.cache_clear()


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.usefixtures("_data")
@pytest.mark.parametrize(("setting", "steps"), [(1, 10), (1, 1000), (2, 1), (2, 100)])
def test_the_deck_takes_as_many_steps_as_printed(setting, steps):
    taken, beta = deck2018.trained(setting, steps=steps, rate=0.1)
    assert taken == deck2018.PUBLISHED[setting][deck2018.STEPS.index(steps)][-1]
    if steps == 1:
        assert beta.tolist() == pytest.approx(deck2018.POOLED[setting], abs=1e-4)


def test_without_its_data_a_paper_is_not_run(monkeypatch):
    monkeypatch.delenv("P2PFL_DATA", raising=False)
    deck2018.data.cache_clear()
    (line,), _ = __main__.run("deck2018")
    assert (line.measured, line.met) == ("not run", None)
    assert "set P2PFL_DATA" in line.why


@pytest.mark.slow
@pytest.mark.usefixtures("_data")
def test_four_hospitals_score_as_published_to_four_decimals():
    found = fed_heart.federated(44, order=0)
    assert [round(score, 4) for score in found] == list(fed_heart.PUBLISHED[44])


@pytest.mark.nightly
@pytest.mark.usefixtures("_data")
@pytest.mark.parametrize("method", ["FedProx", "FedAdam"])
def test_what_is_made_of_federated_averaging_scores_as_published_but_for_one_patient(method):
    changes, published = fed_heart.METHODS[method]
    right = 254 * fed_heart.federated(42, *changes, order=0)[0]
    assert abs(right - 254 * published[42][0]) < 1.02  # published to four decimals; batches have another order


@pytest.mark.slow
@pytest.mark.usefixtures("_data")
def test_users_of_pfedme_hold_as_many_samples_as_its_paper_says():
    personal.pictures.cache_clear()
    sizes = [int(0.75 * len(places)) for places, _ in pfedme.users()]
    assert (min(sizes), max(sizes)) == (1165, 3834)
    assert {tuple(labels.unique().tolist()) for _, labels in pfedme.users()} == {
        tuple(sorted((user, (user + 1) % 10))) for user in range(10)
    }


@pytest.mark.parametrize(("ends", "met"), [(((1.0, 0.7), (0.5, 0.8)), True), (((0.5, 0.7), (1.0, 0.8)), False)])
def test_losses_decide_which_curve_is_better_whatever_accuracy_says(ends, met, monkeypatch):
    points = dict(zip(("FedAvg", "FedProx, mu = 0"), ends, strict=True))
    monkeypatch.setattr(fedprox, "curve", lambda _name, _share, arm: [(1, 9.0, 0.0), (fedprox.ROUNDS, *points[arm])])
    line = fedprox.kept("IID", 0.9)
    assert line.met is met
    assert bool(line.why) is not met


@pytest.mark.slow
@pytest.mark.usefixtures("_data")
def test_the_federation_of_the_paper_is_a_hundred_peers_of_six_hundred_with_two_or_few_more_classes():
    federation = plan(read(mcmahan2017.TABLE, changes=mcmahan2017.SHARDS)).federation
    assert {len(part) for part in federation.train.values()} == {600}
    assert {len(part) for part in federation.test.values()} == {10_000}
    classes = [len(federation.dataset.targets[torch.from_numpy(part)].unique()) for part in federation.train.values()]
    assert max(classes) <= 4
    assert sum(classes) / 100 < 2.5


def test_the_networks_have_as_many_parameters_as_the_paper_says():
    assert sum(parameter.numel() for parameter in mcmahan2017_cnn.cnn().parameters()) == 1_663_370
    assert mcmahan2017_cnn.cnn()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_rows_of_those_who_take_part_are_all_that_is_needed():
    changes = ["topology.peers=20", "data.name=digits", "model.hidden=[8]", "rounds=3", "learning.batch=8"]
    resolved = plan(read(mcmahan2017.TABLE, changes=changes))
    run = simulate(resolved, baselines=False)
    *_, row = mcmahan2017.models(resolved, most=3)
    for model in run.models.values():
        assert torch.allclose(resolved.learner.layout.join(model), row[0], atol=1e-6)


@given(curve=st.lists(st.floats(0, 0.8), max_size=8), end=st.floats(0.9, 1))
def test_a_curve_crosses_its_target_in_the_last_of_its_rounds(curve, end):
    crossed = mcmahan2017.crossing([*curve, end], target=0.85)
    assert max(0, len(curve) - 1) <= crossed <= len(curve)


@given(curve=st.lists(st.floats(0, 0.8), max_size=8))
def test_a_curve_below_its_target_does_not_cross_it(curve):
    assert mcmahan2017.crossing(curve, target=0.85) is None


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_has_a_name_and_lines(name):
    text = (Path(__main__.__file__).parent / f"{name}.py").read_text("utf-8")
    assert __main__.title(name) != name
    assert "def lines(" in text


PAGE = "# Page\n\nhead\n\n## b\n\nkept\n\n| x |\n"


def test_a_paper_replaces_its_own_section_alone():
    section = __main__.section("a", [Line("k | l", "1", "2", met=False, why="late")], seconds=2.4)
    assert section.startswith("## a\n\n`python -m benchmarks.papers a`, 2 s\n\n- ")
    assert section.endswith("k | l: 2 (published: 1); **no**: late\n")
    once = __main__.written(PAGE, {"a": section})
    assert once.startswith("# Page\n\nhead\n\n## a\n")
    assert once.endswith("\n## b\n\nkept\n\n| x |\n")
    assert __main__.written(once, {"a": section}) == once


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (Line("x", "1", "1", met=True), 0),
        (Line("x", "1", "2", met=False), 1),
        (Line("x", "1", "2", met=False, why="known"), 0),
        (Line("x", "1", "not run", met=None, why="an hour"), 0),
    ],
)
def test_the_status_tells_of_a_line_that_is_not_met_and_does_not_say_why(line, status, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(PAPERS, "deck2018", lambda: [line])
    monkeypatch.setattr(__main__, "PAGE", tmp_path / "papers.md")
    monkeypatch.setattr("sys.argv", ["papers", "deck2018", "--write"])
    assert __main__.main() == status
    assert __main__.verdict(line) in capsys.readouterr().out
    assert "## deck2018\n\n`python" in (tmp_path / "papers.md").read_text("utf-8")


@pytest.mark.slow
def test_the_runner_of_fedprox_follows_the_engine(monkeypatch):
    monkeypatch.setattr(fedprox, "ROUNDS", 2)
    points = fedprox.computed("(1, 1)", 0.9, "FedProx, mu = 1")
    assert [round for round, _, _ in points] == [2]


@pytest.mark.slow
@pytest.mark.usefixtures("_data")
def test_the_runners_that_score_as_they_go_follow_the_engine(monkeypatch):
    monkeypatch.setattr(scaffold, "MOST", 1)
    assert len(scaffold.accuracies("scaffold", 1, 0.1)) == 1
    assert pfedme.curves("learning.algorithm_options={steps=1, inner=1}", rounds=[1]).keys() == {1}
    found = sent_bytes.curve("CHOCO-SGD, 4 bits", share=0.1)
    assert found.megabytes[0] > 0
    assert 0 < found.accuracy[0] < 1
