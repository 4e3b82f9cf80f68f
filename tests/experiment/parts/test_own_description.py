"""The description of a training loop of one's own is checked while an experiment is planned, before anything trains."""

import re

import pytest

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read

MODULE = """
import torch
from p2pfl import ExternalLearner, OwnModel
from p2pfl.core.rows import Layout
from p2pfl.data import Dataset

ONE = Dataset(torch.zeros(1, 13), torch.zeros(1, dtype=torch.int64), classes=3)


def train(row, *, peer, round):
    raise AssertionError("nothing is trained while it is planned")


def make():
    layout = Layout(("1.weight", "1.bias"), ((3, 13), (3,)))
    return ExternalLearner(train, start=torch.zeros(42), samples=lambda peer: 9, layout=layout, describe=describe)


def describe():
"""


def planned(folder, monkeypatch, name, body):
    """Plan an experiment whose learner describes its model by the body of a function."""
    (folder / f"{name}.py").write_text(f"{MODULE}    {body}\n")
    monkeypatch.syspath_prepend(folder)
    table = {"topology": {"peers": 3}, "data": {"name": "wine"}, "learning": {"learner": f"{name}:make"}}
    return plan(read(table, trust_code=True))


def test_a_description_with_the_tensors_of_the_layout_is_accepted(tmp_path, monkeypatch):
    made = planned(tmp_path, monkeypatch, "described_well", 'return OwnModel("linear", ONE)').learner
    assert made.bare.own_model().name == "linear"


WRONG = {
    "nothing": ("pass", "describe of the learner returned NoneType; return a p2pfl.OwnModel"),
    "a name alone": ('return "linear"', "describe of the learner returned str; return a p2pfl.OwnModel"),
    "no name": ("return OwnModel(7, ONE)", "returned an OwnModel whose name is int; give it str"),
    "no data": ('return OwnModel("linear", None)', "returned an OwnModel whose data is NoneType; give it Dataset"),
    "options": ('return OwnModel("mlp", ONE, 64)', "returned an OwnModel whose options is int; give it Mapping"),
    "unknown": ('return OwnModel("liner", ONE)', "'liner' is unknown; use linear, mlp, cnn"),
    "an option": ('return OwnModel("mlp", ONE, {"width": 8})', "does not accept the options {'width': 8}"),
    "an exception": ("return 1 / 0", "describe raised ZeroDivisionError"),
    "another model": (
        'return OwnModel("mlp", ONE, {"hidden": [8]})',
        '"mlp" with the tensors 1.weight [8, 13], 1.bias [8], 3.weight [3, 8], 3.bias [3], but its layout has',
    ),
    "other data": (
        'return OwnModel("linear", Dataset(torch.zeros(1, 4), torch.zeros(1, dtype=torch.int64), classes=3))',
        "with the tensors 1.weight [3, 4], 1.bias [3], but its layout has the tensors 1.weight [3, 13], 1.bias [3]",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_description_is_refused_in_one_sentence_before_anything_trains(tmp_path, monkeypatch, case):
    body, sentence = WRONG[case]
    name = f"described_{case.replace(' ', '_')}"
    with pytest.raises(ExperimentError, match=re.escape(sentence)) as refused:
        planned(tmp_path, monkeypatch, name, body)
    assert str(refused.value).startswith("learning.learner: ")
    assert f"{name}:make" in str(refused.value)
