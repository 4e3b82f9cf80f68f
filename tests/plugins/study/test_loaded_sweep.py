"""A sweep in Python: tidy frames of its directory."""

import sys

import pytest

import p2pfl
from p2pfl.core.errors import InputError
from p2pfl.plugins.study import sweep as sweep_module
from p2pfl.plugins.study.study import Study
from p2pfl.plugins.study.sweep import attempt, sweep
from wine_files import wine_file


def here(jobs, function, **_):
    """Call a function for each job in this process."""
    return ((job, attempt(job, function)) for job in jobs)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_module, "in_processes", here)
    (tmp_path / "small.toml").write_text(wine_file("small"))
    over = {"learning.rate": (0.1, 1e38), "data.split": ("iid", "shards")}
    sweep(Study(experiment=str(tmp_path / "small.toml"), over=over, seeds=2), tmp_path / "out", processes=1)
    return tmp_path / "out"


@pytest.mark.slow
def test_frames_have_settings_as_columns_with_numbers_as_numbers(folder):
    pd = pytest.importorskip("pandas")
    loaded = p2pfl.Sweep.load(folder)
    history = loaded.history
    assert [*history.columns[:3]] == ["learning.rate", "data.split", "seed"]
    assert len(history) == 2 * 2 * 2 * 3  # splits, seeds, rounds and peers of the rate that did not fail
    assert history["learning.rate"].unique().tolist() == [0.1]
    run = p2pfl.Run.load(folder / loaded.outcomes[1].folder)
    mine = history[(history["data.split"] == "iid") & (history["seed"] == 1)].reset_index(drop=True)
    assert mine["accuracy"].tolist() == run.history["accuracy"].tolist()
    assert {*run.history.columns} <= {*history.columns}
    summary = loaded.summary
    assert isinstance(summary, pd.DataFrame)
    assert len(summary) == 8
    assert summary["learning.rate"].tolist() == [0.1] * 4 + [1e38] * 4
    assert summary["accuracy"].isna().sum() == 4
    assert summary["failure"].str.contains("diverged").sum() == 4
    assert summary.loc[1, "accuracy"] == run.summary["together"]
    assert "learning.rate" in loaded.comparison.keys
    assert "accuracy" in repr(loaded)


@pytest.mark.slow
def test_without_pandas_the_outcomes_remain(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    loaded = p2pfl.Sweep.load(folder)
    with pytest.raises(InputError, match=r"sweep.history needs pandas.*or use sweep.runs"):
        _ = loaded.history
    with pytest.raises(InputError, match=r"sweep.summary needs pandas.*or use sweep.outcomes"):
        _ = loaded.summary
    assert len(loaded.runs) == 4


def test_a_folder_without_a_sweep_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not the directory of a sweep"):
        p2pfl.Sweep.load(tmp_path)
