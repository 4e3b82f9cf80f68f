"""The examples of the pages on tables and saved models run."""

import re
from pathlib import Path

import pytest
import torch

from p2pfl.data.tables.file_format import FileFormat
from p2pfl.experiment import read
from p2pfl.learning import TorchLearner

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


def executed(code, **names):
    exec(compile(code, "page.md", "exec"), names)  # noqa: S102 (that is what the page asks for)
    return names


def test_the_declaration_of_the_page_is_an_experiment_file(tmp_path):
    text, _ = blocks("tables.md", "toml")
    (tmp_path / "page.toml").write_text(text)
    columns = read(tmp_path / "page.toml").data.options["columns"]
    assert [*columns] == ["age", "weight", "sex", "ward", "outcome"]


def test_the_file_beside_a_table_of_the_page_is_read(tmp_path):
    _, text = blocks("tables.md", "toml")
    (tmp_path / "north.csv.toml").write_text(text)
    form = FileFormat.beside(tmp_path / "north.csv")
    assert (form.number("1,5"), form.days("31.12.2020", since="2020-12-30")) == (1.5, 1)


def test_the_python_of_the_page_on_tables_runs(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    frame = pandas.DataFrame(
        {"age": [30, 40, 50] * 4, "sex": ["f", "m", "f"] * 4, "outcome": ["well", "ill", "well"] * 4}
    )
    frame.to_csv("peer1.csv", index=False)
    [code] = blocks("tables.md", "python")
    names = executed(code, frame=frame, model=torch.nn.Linear(3, 2))
    assert isinstance(names["learner"], TorchLearner)
    assert names["data"].peers == ("peer0", "peer1")


def test_the_python_of_the_page_on_models_runs(trained, saved, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(saved.parent)
    names = executed(blocks("models.md", "python")[0], frame=pandas.read_csv(trained[0] / "peer1.csv"))
    assert names["found"].values.shape == (90, 2)
