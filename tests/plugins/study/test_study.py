"""Which runs a study has, and what it refuses."""

import pytest

from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.experiment import flat, read
from p2pfl.plugins.study.study import Study, cells, load, parse_budget, parse_combination, parse_random, parse_values
from p2pfl.plugins.study.sweep import against
from p2pfl.plugins.study.sweep_job import digest

SMALL = """
name = "small"
seed = 4
[data]
name = "wine"
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


def test_a_grid_has_all_combinations_with_all_seeds(small):
    over = {"learning.algorithm": ("fedavg", "scaffold"), "learning.rate": (0.1, 0.2, 0.4)}
    found = cells(Study(experiment=small, over=over, seeds=2))
    assert len(found) == 12
    assert [cell.experiment.seed for cell in found[:3]] == [4, 5, 4]
    assert found[-1].values == {"learning.algorithm": "scaffold", "learning.rate": "0.4"}
    assert found[-1].experiment.learning.rate == 0.4


def test_named_settings_change_several_keys_at_once(small):
    settings = {"careful": {"learning.rate": 0.01, "learning.epochs": 5}, "bold": {"learning.rate": 1.0}}
    found = cells(Study(experiment=small, settings=settings, seeds=(7,)))
    assert [(cell.values["settings"], cell.experiment.learning.epochs) for cell in found] == [
        ("careful", 5),
        ("bold", 1),
    ]


def test_more_draws_keep_the_earlier_ones_and_show_what_ran(small):
    random = {"learning.rate": parse_random("1e-3..1:log"), "learning.epochs": parse_random("1..3:integer")}
    few = cells(Study(experiment=small, random=random, draws=4, seeds=1))
    many = cells(Study(experiment=small, random=random, draws=40, seeds=1))
    assert many[:4] == few
    for cell in many:
        assert 1e-3 <= cell.experiment.learning.rate <= 1
        assert float(cell.values["learning.rate"]) == cell.experiment.learning.rate
    assert {cell.experiment.learning.epochs for cell in many} == {1, 2, 3}


@pytest.mark.parametrize(
    ("study", "reason"),
    [
        ({"over": {"learning.rte": (0.1,)}}, 'unknown key "learning.rte"'),
        ({"over": {"seed": (1, 2)}}, "name the seeds with --seeds"),
        ({"over": {"learning.rate": (1,)}, "set": {"learning.rate": 2}}, "values in two places"),
        ({"over": {"learning.rate": (0.1, 1)}, "against": {"learning.rate": 0.2}}, "which is none of 0.1, 1"),
        ({"over": {"learning.rate": (0.1, 1)}, "against": {"data.split": "iid"}}, "does not vary"),
    ],
)
def test_a_study_is_refused_before_anything_runs(study, reason, small):
    with pytest.raises(InputError, match=reason):
        cells(Study(experiment=small, **study))


def test_a_refused_setting_is_named(small):
    over = {"learning.algorithm": ("fedavg",), "learning.rate": (0.1, -1)}
    with pytest.raises(ExperimentError, match=r"1 of 2 settings .*learning.rate=-1: .* --without .*learning.rate=-1'"):
        cells(Study(experiment=small, over=over))


def test_all_refused_settings_are_listed_each_with_its_reason(small):
    over = {"learning.rate": (0.1, -1), "learning.epochs": (1, 0), "data.split": ("iid", "shards")}
    with pytest.raises(ExperimentError, match="6 of 8 settings") as refused:
        cells(Study(experiment=small, over=over))
    message = str(refused.value)
    assert "learning.rate=-1 learning.epochs=1 data.split=iid: " in message
    assert "learning.rate=0.1 learning.epochs=0 data.split=shards: " in message
    assert message.count("--without") == 6


def test_a_study_leaves_out_combinations(small, tmp_path):
    over = {"learning.algorithm": ("fedavg", "scaffold"), "data.split": ("iid", "shards")}
    without = (parse_combination("learning.algorithm=scaffold data.split=shards"),)
    found = cells(Study(experiment=small, over=over, seeds=1, without=without))
    assert [[*cell.values.values()] for cell in found] == [["fedavg", "iid"], ["fedavg", "shards"], ["scaffold", "iid"]]
    path = tmp_path / "study.toml"
    path.write_text(
        'experiment = "small.toml"\nwithout = [{ "data.split" = "iid" }]\n[over]\n"data.split" = ["iid", "shards"]\n'
    )
    assert {cell.values["data.split"] for cell in cells(load(path))} == {"shards"}


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        ({"data.split": "iid"}, "the study leaves out all of its settings"),
        ({"learning.rate": 1}, r"--without names learning.rate, which the study does not vary \(it varies: data.split"),
        ({"data.split": "shard"}, "--without names data.split=shard, which is none of iid; name one"),
    ],
)
def test_leaving_out_what_is_not_there_or_everything_is_refused(without, reason, small):
    with pytest.raises(InputError, match=reason):
        cells(Study(experiment=small, over={"data.split": ("iid",)}, without=(without,)))


def test_a_combination_without_a_value_is_refused():
    with pytest.raises(InputError, match="has no key or no value"):
        parse_combination("learning.rate")


def test_a_file_is_a_study_if_it_names_an_experiment(small, tmp_path):
    assert load(tmp_path / "small.toml") is None
    path = tmp_path / "study.toml"
    path.write_text('experiment = "small.toml"\nseeds = [1, 2]\n[over]\n"learning.rate" = [0.1, 0.2]\n')
    study = load(path)
    assert study.experiment == small
    assert len(cells(study)) == 4
    path.write_text('experiment = "small.toml"\noverr = 3\n')
    with pytest.raises(ExperimentError, match="overr"):
        load(path)


@pytest.mark.parametrize("text", ["bytes", "bytes=", "bytes=0", "bytes=6XB", "gradients=5kB", "seconds=4", "bytes=-1"])
def test_a_budget_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="write it as"):
        parse_budget(text)


RANGES = [
    ("1..0", "1..0 is no range; write two finite numbers"),
    ("0..1:log", "cannot begin at 0; write a number above 0"),
    ("-1..1:log", "cannot begin at -1"),
    ("1..inf:integer", "1..inf is no range"),
    ("nan..1", "nan..1 is no range"),
    ("0.5..3:integer", "no range of whole numbers"),
]


@pytest.mark.parametrize("text", ["1", "a..b", "1..", "1..2:exp"])
def test_text_that_is_no_range_is_refused(text):
    with pytest.raises(InputError, match=r"is not a range; write LOW\.\.HIGH"):
        parse_random(text)


@pytest.mark.parametrize(("text", "reason"), RANGES)
def test_a_range_that_is_none_is_refused_on_the_command_line_and_in_a_file(text, reason, small, tmp_path):
    with pytest.raises(InputError, match=reason):
        parse_random(text)
    span, _, scale = text.partition(":")
    low, _, high = span.partition("..")
    path = tmp_path / "study.toml"
    table = f'{{ low = {low}, high = {high}, scale = "{scale or "linear"}" }}'
    path.write_text(f'experiment = "{small}"\n[random]\n"learning.rate" = {table}\n')
    with pytest.raises(ExperimentError, match=rf"study\.toml: .*{reason}"):
        load(path)


def test_a_rounded_draw_stays_in_its_range(small):
    random = {"learning.rate": parse_random("0.123456..0.123457")}
    for cell in cells(Study(experiment=small, random=random, draws=5, seeds=1)):
        assert 0.123456 <= cell.experiment.learning.rate <= 0.123457


def test_the_reference_is_the_first_value_of_the_first_key_that_has_several():
    over = {"data.split": ("iid",), "learning.rate": (0.1, 0.2)}
    assert against(Study(experiment="small", over=over)) == {"learning.rate": "0.1"}
    settings = {"careful": {"rounds": 2}, "bold": {"rounds": 1}}
    one = {"data.split": ("iid",)}
    assert against(Study(experiment="small", over=one, settings=settings)) == {"settings": "careful"}
    assert against(Study(experiment="small", over=one)) == {}


def test_an_array_that_is_none_is_refused():
    with pytest.raises(InputError, match="array"):
        parse_values("[1, ")


def test_a_digest_changes_with_every_key_and_with_nothing_else():
    base = read({})
    usual = digest(base)
    assert digest(read({})) == usual
    for change in ("seed=1", "rounds=3", "learning.rate=0.2", "data.split=shards", "model.hidden=[8]"):
        assert digest(read({}, changes=[change])) != usual
    assert digest(base, baselines=True) != digest(base, baselines=False)
    assert len(flat(base)) > 60  # all of which count


def test_a_file_counts_by_its_content_and_not_by_its_place(tmp_path):
    def csv(folder, text):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "own.csv").write_text(text)
        options = {"path": str(tmp_path / folder / "own.csv"), "target": "y"}
        return digest(read({"data": {"name": "csv", "options": options}}))

    one = csv("a", "x,y\n1,0\n")
    assert csv("b", "x,y\n1,0\n") == one
    assert csv("b", "x,y\n1,1\n\n") != one


def test_code_of_ones_own_counts_by_its_content(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "own_algorithm_of_a_sweep.py"
    file.write_text("class Own: pass\n")
    experiment = read({"learning": {"algorithm": "own_algorithm_of_a_sweep:Own"}})
    before = digest(experiment)
    file.write_text("class Own: step = 1\n")
    assert digest(experiment) != before


def test_a_digest_covers_the_tables_of_all_peers_and_not_the_account_that_each_run_charges(tmp_path):
    for name in ("peer0", "peer1"):
        (tmp_path / f"{name}.csv").write_text("x,y\n1,0\n", "utf-8")
    account = tmp_path / "account.jsonl"
    account.write_text("", "utf-8")
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "y", "columns": {"x": "number", "y": [0, 1]}}
    privacy = {"mode": "independent", "noise": 1.0, "clip": 1.0, "budget": str(account)}
    experiment = read({"data": {"name": "table", "options": options}, "privacy": privacy})
    before = digest(experiment)
    account.write_text("{}\n", "utf-8")
    assert digest(experiment) == before
    (tmp_path / "peer1.csv").write_text("x,y\n2,0\n", "utf-8")
    assert digest(experiment) != before
