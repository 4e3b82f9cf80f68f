"""A site has only the table of its own peer, and reviews an experiment with it."""

import json

import pytest

pytestmark = pytest.mark.plugin("exact", "audit", "study", "evidence")

WARD = """
name = "ward"
[topology]
kind = "complete"
peers = ["north", "south", "east"]
[data]
name = "table"
[data.options]
path = "{peer}.csv"
target = "low"
columns = { age = "number", smoke = [0, 1], low = [0, 1] }
[model]
name = "glm"
options = { family = "binomial" }
[privacy]
mode = "pairwise"
"""
NAMED = "name the peer whose table is here with --name"
COMMANDS = {
    ("explain",): NAMED,
    ("privacy",): NAMED,
    ("audit",): NAMED,
    ("describe",): NAMED,
    ("components",): NAMED,
    ("survival", "--horizon", "9"): NAMED,
    ("simulate",): NAMED,
    ("run",): "start the peer whose table is here with p2pfl peer --name",
    ("value",): "let whoever may hold all tables run it, because no peer alone can value the others",
}


@pytest.fixture
def ward(place):
    """The site north with its table and the experiment of all."""
    (place / "ward.toml").write_text(WARD)
    rows = (f"{18 + row % 23},{int(row % 3 == 0)},{int(row % 7 < 3)}" for row in range(60))
    (place / "north.csv").write_text("\n".join(["age,smoke,low", *rows]))
    return place


@pytest.mark.parametrize("command", COMMANDS)
def test_an_error_about_the_table_of_another_site_says_what_to_do(p2pfl, ward, command):
    said = p2pfl(*command, "ward.toml")
    assert said.status == 2
    assert said.err == f'p2pfl: no table of "east" at {ward / "east.csv"}; correct `path`, or {COMMANDS[command]}\n'


@pytest.mark.usefixtures("ward")
def test_a_run_is_forgotten_by_peers_that_play_it_again(p2pfl, place):
    for peer in ("south", "east"):
        (place / f"{peer}.csv").write_bytes((place / "north.csv").read_bytes())
    assert p2pfl("simulate", "ward.toml", "--no-baselines").status == 0
    (place / "east.csv").unlink()
    said = p2pfl("forget", next((place / "runs").iterdir()), "--peer", "south", "--unaccounted")
    assert said.status == 2
    assert "or play the run again with p2pfl peer, and name its directory with --replayed" in said.err


@pytest.mark.usefixtures("ward")
def test_one_table_alone_is_simulated_and_stays_here(p2pfl, place):
    said = p2pfl("simulate", "ward.toml", "--name", "north", "--no-baselines")
    assert said.status == 0, said.err
    assert "these are the data of north alone, which stay on this machine" in said.err
    assert "regression of n = 60, 0 held out" in said.err
    (run,) = (place / "runs").iterdir()
    assert [path.name for path in (run / "peers").glob("*.safetensors")] == ["north.safetensors"]


@pytest.mark.slow
@pytest.mark.usefixtures("ward")
def test_settings_are_compared_on_one_table(p2pfl):
    said = p2pfl(
        "sweep",
        "ward.toml",
        "--name",
        "north",
        "--seeds",
        1,
        "--over",
        "model.options.ridge=1,2",
        "--set",
        "data.test=0.2",
        "--json",
    )
    assert said.status == 0, said.err
    assert len(json.loads(said.out)["settings"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("least", [5, 1])
def test_the_audit_attacks_the_rows_of_one_table(p2pfl, ward, least):
    text = WARD.replace("smoke = [0, 1]", "smoke = [0, 1, 2]").replace("low = [0, 1]", 'low = "number"')
    (ward / "ward.toml").write_text(text.replace("binomial", "gaussian"))
    (ward / "north.csv").write_text((ward / "north.csv").read_text() + "\n60,2,0")  # the only 2
    said = p2pfl("audit", "ward.toml", "--name", "north", "--trials", 1000, "--set", f"model.options.least={least}")
    assert "attacked are the rows of north alone, dealt out among all peers; nothing leaves" in said.err
    assert ("nobody is alone in a cell" in said.err.partition("broken: ")[2]) == (least == 1), said.err
    assert said.status == (least == 1)


@pytest.mark.usefixtures("ward")
@pytest.mark.parametrize("command", ["explain", "privacy", "describe", "components"])
def test_one_table_suffices_with_the_name_of_its_peer(p2pfl, command):
    said = p2pfl(command, "ward.toml", "--name", "north", "--json")
    assert said.status == 0, said.err
    assert json.loads(said.out)


@pytest.mark.usefixtures("ward")
def test_statistics_of_one_table_are_those_of_its_rows(p2pfl):
    said = p2pfl("describe", "ward.toml", "--name", "north", "--json")
    results = json.loads(said.out)
    smoke = next(column for column in results["columns"] if column["name"] == "smoke")
    assert results["samples"] == 60
    assert smoke["levels"] == {"0": 40, "1": 20}
    assert "these are the data of north alone, which stay on this machine" in said.err


@pytest.mark.usefixtures("ward")
def test_the_ledger_lists_all_rows_that_a_statistic_of_one_table_counts(p2pfl):
    assert p2pfl("describe", "ward.toml", "--name", "north", "--set", "data.test=0.2").status == 0
    (run,) = json.loads(p2pfl("privacy", "north.csv", "--json").out)["runs"]
    assert run["samples"] == 60


@pytest.mark.usefixtures("ward")
@pytest.mark.parametrize("command", ["explain", "privacy", "describe", "audit", "simulate", "sweep"])
def test_a_name_that_no_peer_has_is_refused(p2pfl, command):
    said = p2pfl(command, "ward.toml", "--name", "nord")
    assert said.status == 2
    assert 'has no peer "nord"; choose one of east, north, south' in said.err


@pytest.mark.parametrize("command", ["describe", "audit", "simulate", "sweep"])
def test_a_table_of_all_peers_has_no_single_owner(p2pfl, command):
    said = p2pfl(command, "small.toml", "--name", "peer0")
    assert said.status == 2
    assert "is one table of all peers, so --name has no effect; leave it out" in said.err


@pytest.mark.usefixtures("ward")
@pytest.mark.parametrize("command", [("describe", "--by", "smoke"), ("components",), ("survival", "--horizon", "9")])
def test_the_plan_of_a_statistic_is_shown_and_nothing_is_counted(p2pfl, ward, command):
    if command[0] == "survival":
        (ward / "ward.toml").write_text(WARD.replace('target = "low"', 'target = "age"\nevent = "low"'))
    before = {path.name for path in ward.iterdir()}
    said = p2pfl(command[0], "ward.toml", *command[1:], "--plan", "--name", "north", "--html", "plan.html")
    assert said.status == 0, said.err
    assert "every peer learns the exact totals" in " ".join(said.out.split())
    assert "signature" in (ward / "plan.html").read_text()
    assert {path.name for path in ward.iterdir()} == before | {"plan.html"}  # no ledger


@pytest.mark.usefixtures("ward")
def test_the_plan_states_options_of_the_command_and_imports_no_code(p2pfl, ward):
    said = p2pfl("describe", "ward.toml", "--by", "smoke", "--plan", "--name", "north", "--json")
    plan = json.loads(said.out)
    assert plan["model"]["name"] == "description"
    assert "also by group" in plan["privacy"]
    (ward / "own.py").write_text("raise SystemExit(9)")
    said = p2pfl("describe", "ward.toml", "--plan", "--name", "north", "--set", "data.split=own:split")
    assert said.status == 2
    assert "own:split" in said.err


@pytest.mark.usefixtures("ward")
def test_files_of_results_have_no_part_in_a_plan(p2pfl):
    said = p2pfl("describe", "ward.toml", "--plan", "--name", "north", "--csv", "plan.csv")
    assert said.status == 2
    assert "--plan counts nothing, so --csv has no effect; leave it out, or take --html" in said.err


@pytest.mark.usefixtures("ward")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            'model.options={formula="low ~ age + (1 | site)"}',
            "random effects such as (1 | site) follow from no totals that peers could add up; add the site as a column",
        ),
        (
            'data.options.columns.age={type="number", missing="mice"}',
            "missing cells by 'mice', but no multiple imputation, and no statistic, fills cells here; write a number",
        ),
        ("model.name=glmm", "model.name 'glmm' is unknown; use linear, mlp, cnn, boosting, "),
    ],
)
def test_random_intercepts_and_multiple_imputation_are_refused_in_a_sentence(p2pfl, change, sentence):
    said = p2pfl("explain", "ward.toml", "--name", "north", "--set", change)
    assert said.status == 2
    assert sentence in said.err
