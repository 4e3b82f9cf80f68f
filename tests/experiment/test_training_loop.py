"""Keys of the experiment file for what every training loop has."""

import re
from pathlib import Path

import pytest
import torch

import p2pfl
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.experiment import plan, read


def experiment(**learning):
    return read({"rounds": 3, "topology": {"peers": 4}, "model": {"name": "linear"}, "learning": learning})


@pytest.mark.parametrize("name", ["clip", "gradient_clip", "grad_clip", "clip_grad_norm", "max_grad_norm"])
def test_names_of_other_frameworks_lead_to_the_key(name):
    with pytest.raises(ExperimentError, match=f'unknown key "learning.{name}"; did you mean "learning.max_norm"?'):
        experiment(**{name: 1.0})


def test_the_keys_reach_the_learner():
    options = {"T_max": 9}
    made = plan(
        experiment(max_norm=0.5, schedule={"name": "CosineAnnealingLR", "options": options, "by": "step", "warmup": 4})
    )
    recipe = made.learner.recipe
    assert (recipe.max_norm, recipe.warmup, recipe.schedule_by) == (0.5, 4, "step")
    assert recipe.schedule_options == options


def test_a_function_of_the_user_is_imported_and_checked_before_the_run(tmp_path, monkeypatch):
    (tmp_path / "rates_of_mine.py").write_text(
        "def warm(round, step, steps, top=2.0):\n    return top * (round + step / steps)\n"
        "def low(round):\n    return 1.0 - round\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    made = plan(experiment(schedule={"name": "rates_of_mine:warm", "by": "step", "options": {"top": 3.0}}))
    assert made.learner.recipe.paced
    with pytest.raises(InputError, match=r"rates_of_mine:low returns -1.0 in round 2, step 0; return a factor"):
        plan(experiment(schedule="rates_of_mine:low"))
    with pytest.raises(InputError, match=r'"rates_of_mine:none" cannot be imported'):
        plan(experiment(schedule="rates_of_mine:none"))
    with pytest.raises(InputError, match="does not accept its arguments"):
        plan(experiment(schedule={"name": "rates_of_mine:low", "options": {"top": 3.0}}))


@pytest.mark.parametrize(
    ("learning", "sentence"),
    [
        ({"algorithm": "scaffold", "schedule": {"warmup": 3}}, "learning.schedule: warmup does not work with scaffold"),
        (
            {"algorithm": "fedrep", "schedule": {"name": "StepLR", "options": {"step_size": 1}, "by": "step"}},
            'learning.schedule: by = "step" does not work with fedrep, which needs one learning rate in a round',
        ),
        ({"schedule": {"by": "step"}}, "learning.schedule = .* has no effect, because the schedule has no name"),
    ],
)
def test_what_has_no_effect_or_no_meaning_is_refused(learning, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        plan(experiment(**learning))


def test_a_run_in_python_takes_a_function_and_names_it_to_the_neighbours():
    data = {peer: (torch.eye(4), torch.tensor([0, 1, 0, 1])) for peer in p2pfl.topology.ring(4).peers}
    learner = p2pfl.TorchLearner(torch.nn.Linear(4, 2), data, rate=0.5, schedule=decaying, max_norm=0.1)
    made = p2pfl.compose(p2pfl.FedAvg(), learner, p2pfl.topology.ring(4))
    assert made.experiment.learning.scheduling.name.endswith(":decaying")
    assert made.experiment.learning.max_norm == 0.1
    run = p2pfl.simulate(made, baselines=False)
    assert len(run.metrics) == 40


def decaying(round):
    return 0.5**round


def test_the_schedule_of_the_page_works_as_it_is(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "experiment-file.md").read_text("utf-8")
    code, table = re.search(r"```python\n(# rates\.py\n.*?)```\n+```toml\n(.*?)```", page, re.DOTALL).groups()
    (tmp_path / "rates.py").write_text(code)
    (tmp_path / "page.toml").write_text(f'rounds = 3\n[topology]\npeers = 4\n[model]\nname = "linear"\n{table}')
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = plan(read(tmp_path / "page.toml", trust_code=True)).learner.recipe
    assert (recipe.schedule, recipe.schedule_by, recipe.warmup) == ("rates:cosine", "step", 200)
