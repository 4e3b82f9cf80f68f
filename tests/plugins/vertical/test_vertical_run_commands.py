"""Commands before and after a vertical run: who learns what, values, coefficients, exports, cards."""

import json

import pytest
import torch

from p2pfl import simulate
from p2pfl.cli import main
from p2pfl.results.models import Predictor
from vertical_experiments import LINEAR, changed

pytestmark = pytest.mark.slow

DIABETES = ["--set", "data.name=diabetes", "--set", 'model.options={family = "gaussian"}']


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return simulate(LINEAR, folder=tmp_path_factory.mktemp("runs") / "run")


def printed(capsys, *words):
    assert main([*map(str, words)]) == 0
    captured = capsys.readouterr()
    return captured.out or captured.err


@pytest.mark.parametrize("command", ["privacy", "explain"])
def test_the_table_of_who_learns_what_is_printed_before_a_run(capsys, command):
    learned = json.loads(printed(capsys, command, "columns", "--json"))["learned"]
    assert "once exactly and 7 times under noise" in learned["bob, the label holder"]
    assert "shows cleo that person's row, exactly" in learned["a party that enters the indicator of one person"]
    assert "MB to fit, 8 steps" in learned["bytes"]


def test_the_value_of_columns_is_their_share_of_r2(capsys, run):
    values = json.loads(printed(capsys, "value", "columns", *DIABETES, "--json"))
    shares = {each["peer"]: each["value"] for each in values["values"]}
    assert shares == {peer: pytest.approx(float(run.models[peer]["value"][0])) for peer in ("ada", "bob", "eve")}
    assert values["exact"]
    assert sum(shares.values()) == pytest.approx(values["everybody"])


def test_a_model_without_r2_has_no_value_of_columns(capsys):
    assert main(["value", "columns"]) == 2
    assert 'set model.name to "glm" and model.options.family to "gaussian"' in capsys.readouterr().err


def test_the_files_of_parties_are_printed_and_exported_by_themselves(capsys, run, tmp_path):
    peers = run.folder / "peers"
    names = [
        each["name"]
        for each in json.loads(printed(capsys, "coefficients", peers / "bob.safetensors", "--json"))["coefficients"]
    ]
    assert names == ["age", "sex", "bmi", "bp", "(intercept)"]
    printed(capsys, "export", peers / "ada.safetensors", "--to", "torch", "--out", tmp_path / "ada.pt2")
    assert (tmp_path / "ada.pt2").stat().st_size > 1000
    assert main(["coefficients", str(peers / "cleo.safetensors")]) == 2
    assert "does not describe its inputs, as that of a helper" in capsys.readouterr().err


def test_a_part_predicts_nothing_by_itself(capsys, run, tmp_path):
    (tmp_path / "rows.csv").write_text("s1,s2,s3\n1,2,3\n")
    assert main(["predict", str(run.folder / "peers" / "ada.safetensors"), str(tmp_path / "rows.csv")]) == 2
    assert "is a part of a model of several peers and predicts nothing by itself" in capsys.readouterr().err


def test_a_folder_is_no_model(capsys, run):
    assert main(["coefficients", str(run.folder)]) == 2
    assert f"is a folder; name a model in it, such as {run.folder}/peers/NAME.safetensors" in capsys.readouterr().err


def test_scores_are_those_of_the_label_holder(capsys, run, tmp_path):
    assert main(["report", str(run.folder), "--html", str(tmp_path / "run.html")]) == 0
    printed = capsys.readouterr().out
    peers = ("ada", "bob", "cleo", "eve", "mean")
    assert [line.split()[0] for line in printed.splitlines() if line.startswith(peers)] == ["bob"]
    page = (tmp_path / "run.html").read_text()
    assert f"Together {run.summary['together']:.3f}, alone {run.summary['alone']:.3f} (r2, of bob)" in page
    assert "over 1 peer<" in page
    assert "Curves" not in page  # of a single round


def test_the_end_of_a_run_says_whose_coefficients_a_file_has(capsys, run):
    main(["report", str(run.folder)])
    assert "ada.safetensors prints the coefficients of ada" in capsys.readouterr().out.replace("\n", " ")


SPLIT = changed(
    topology={"peers": ["ada", "bob", "cleo"]},
    data={"name": "breast_cancer"},
    model={"name": "split_network", "options": {"labels": "shown", "width": 3}},
)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return simulate(SPLIT, folder=tmp_path_factory.mktemp("networks") / "run", baselines=False)


@pytest.mark.parametrize(("peer", "outputs"), [("ada", 3), ("bob", 2)])
def test_an_exported_part_of_a_network_takes_any_rows_and_returns_embeddings_or_classes(
    capsys, network, tmp_path, peer, outputs
):
    part = network.folder / "peers" / f"{peer}.safetensors"
    printed(capsys, "export", part, "--to", "torch", "--out", tmp_path / "part.pt2")
    rows = torch.randn(5, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    wanted = Predictor.load(part).module(rows).detach()
    assert wanted.shape == (5, outputs)
    assert torch.equal(torch.export.load(tmp_path / "part.pt2").module()(rows), wanted)
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    printed(capsys, "export", part, "--to", "onnx", "--out", tmp_path / "part.onnx")
    [returned] = runtime.InferenceSession(tmp_path / "part.onnx").run(None, {"columns": rows.numpy()})
    assert returned == pytest.approx(wanted.numpy(), abs=1e-12)


def test_watch_shows_the_score_of_the_label_holder_of_a_network_and_no_other(capsys, network):
    assert main(["watch", str(network.folder), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in lines[1:]] == ["ada: finished", "bob: finished", "cleo: finished"]
    assert ["auc" in line for line in lines[1:]] == [False, True, False]


def test_the_card_of_a_run_names_no_column(capsys, run):
    card = printed(capsys, "card", run.folder)
    assert "Columns of several parties, each of which keeps the part of the model for its own" in card
    assert "bmi" not in card
    assert "a prediction takes\n  the columns of all parties" in card
    assert "| mean |" not in card
    assert "glm, which predicts a number" in card


def test_the_card_of_a_logistic_regression_predicts_a_class(capsys, tmp_path):
    options = {"family": "binomial", "ridge": 3.0, "predictor_noise": False}
    experiment = changed(data={"name": "breast_cancer"}, model={"options": options})
    logistic = simulate(experiment, folder=tmp_path / "run", baselines=False)
    assert "glm, which predicts a class" in printed(capsys, "card", logistic.folder)


def test_a_run_repeats_to_the_bit(capsys, run, tmp_path):
    assert "the run repeats to the bit" in printed(capsys, "repeat", run.folder, "--runs", tmp_path)


def test_several_workers_are_refused(capsys, tmp_path):
    assert main(["simulate", "columns", "--workers", "2", "--runs", str(tmp_path)]) == 2
    assert 'several workers do not work with data.split = "columns"' in capsys.readouterr().err


def test_a_party_with_one_column_is_refused_unless_it_agrees():
    single = changed(topology={"peers": ["ada", "bob", "cleo", "dan", "eve", "fay", "gus", "hal", "ida", "kim"]})
    with pytest.raises(
        Exception,
        match=r"ada has fewer than 2 encoded columns.* or set model.options.alone_column = true if ada agrees",
    ):
        simulate(single)
