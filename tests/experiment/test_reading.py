import math
import re
import tomllib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import Experiment, check, flat, plain, read, write
from p2pfl.experiment.file.reading import PATHS, SHIPPED
from p2pfl.experiment.schema import DeviceSettings, Section, graph_files
from p2pfl.experiment.schema import TopologySettings as TopologySection

SECTIONS = {field.name: field.type for field in msgspec.structs.fields(Experiment) if isinstance(field.type, type)}
SECTIONS = {name: kind for name, kind in SECTIONS.items() if issubclass(kind, Section)}

finite = st.floats(allow_nan=False, allow_infinity=False)
options = st.dictionaries(
    st.text(min_size=1), st.one_of(st.integers(-(2**63), 2**63 - 1), finite, st.text()), max_size=3
)
names = st.text(min_size=1).filter(lambda kind: not graph_files(kind))  # files define a graph without options
experiments = st.fixed_dictionaries(
    {},
    optional={
        "name": st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True),
        "seed": st.integers(0, 2**63 - 1),
        "rounds": st.integers(1, 10**6),
        "topology": st.one_of(
            st.fixed_dictionaries({"kind": st.one_of(st.lists(st.text(), min_size=1), st.text(min_size=1))}),
            st.fixed_dictionaries({}, optional={"kind": names, "options": options}),
        ),
        "data": st.fixed_dictionaries({}, optional={"options": options, "split_options": options}),
        "model": st.fixed_dictionaries({}, optional={"hidden": st.lists(st.integers(1, 999)), "options": options}),
        "learning": st.fixed_dictionaries(
            {},
            optional={
                "rate": st.floats(0, 1e3),
                "batch": st.one_of(st.just("all"), st.integers(1, 999)),
                "metrics": st.dictionaries(st.text(min_size=1), st.text(min_size=1), max_size=2),
            },
        ),
        "privacy": st.fixed_dictionaries(
            {"mode": st.just("pairwise")}, optional={"clip": st.one_of(st.just(math.inf), st.floats(1e-9, 1e9))}
        ),
    },
)


@pytest.mark.slow
@given(experiments)
def test_what_is_written_reads_back_as_the_same(table):
    experiment = check(table)
    assert check(tomllib.loads(write(experiment))) == experiment
    assert read(plain(experiment)) == read(experiment) == experiment


COLUMNS = pytest.param("columns", marks=pytest.mark.plugin("vertical"))


@pytest.mark.parametrize("name", [COLUMNS if path.stem == "columns" else path.stem for path in SHIPPED.glob("*.toml")])
def test_shipped_experiments_read_by_name_and_round_trip(name):
    experiment = read(name)
    assert experiment.name == name
    assert check(tomllib.loads(write(experiment))) == experiment


def test_an_empty_experiment_is_all_defaults():
    assert read({}) == Experiment()


def test_the_written_file_spells_out_every_default_there_is():
    keys = {f"{name}.{key}" for name, kind in SECTIONS.items() for key in kind.__struct_fields__} | {
        "name",
        "seed",
        "rounds",
    }
    written = check(tomllib.loads(write(Experiment())))
    absent = keys - set(flat(written))
    defaults = {key: getattr(getattr(Experiment(), key.split(".")[0]), key.split(".")[1]) for key in absent}
    assert set(defaults.values()) == {None}  # TOML has no word for nothing


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_every_key_is_documented_where_it_is_defined(section):
    words = set(re.findall(r"\w+", section.__doc__))
    assert set(section.__struct_fields__) <= words


CHANGES = {
    "a number": ("learning.rate=0.5", "learning.rate", 0.5),
    "a whole number for a number": ("learning.rate=1", "learning.rate", 1.0),
    "text in quotes": ('data.name="wine"', "data.name", "wine"),
    "text without quotes": ("data.name=wine", "data.name", "wine"),
    "text with a colon": ("data.name=my.code:data", "data.name", "my.code:data"),
    "text with an equals sign": ("topology.kind=a=b", "topology.kind", "a=b"),
    "a list": ("model.hidden=[8, 4]", "model.hidden", (8, 4)),
    "a table": ("data.options={alpha=1.0}", "data.options", {"alpha": 1.0}),
    "a key of a table": ("data.options.alpha=1.0", "data.options", {"alpha": 1.0}),
    "true": ("learning.weighted=false", "learning.weighted", False),
    "infinity": ("privacy.clip=inf", "privacy.clip", math.inf),
    "endless patience": ("transport.patience=inf", "transport.patience", math.inf),
    "a top key": ("rounds=3", "rounds", 3),
    "spaces around the key": (" rounds =3", "rounds", 3),
}


@pytest.mark.parametrize(("change", "key", "value"), CHANGES.values(), ids=CHANGES)
def test_set_takes(change, key, value):
    assert flat(read({}, changes=[change]))[key] == value


def test_of_two_changes_of_a_key_the_last_counts_and_the_source_is_left_alone():
    table = {"topology": {"peers": 5}}
    assert read(table, changes=["topology.peers=6", "topology.peers=7"]).topology.peers == 7
    assert table == {"topology": {"peers": 5}}


WRONG = {
    "a section by its nearest name": ({"topolgy": {}}, 'unknown key "topolgy"; did you mean "topology"?'),
    "a key by its nearest name": (
        {"topology": {"peer": 3}},
        'unknown key "topology.peer"; did you mean "topology.peers"?',
    ),
    "the section that has the key": ({"rate": 0.1}, 'unknown key "rate"; did you mean "learning.rate"?'),
    "a key of a table in place of a value": (
        {"learning": {"schedule": {"bi": "step"}}},
        'unknown key "learning.schedule.bi"; did you mean "learning.schedule.by"?',
    ),
    "a key that moved": ({"topology": {"rewire": 0.2}}, '"topology.rewire"; it is topology.options.rewire now'),
    "slow peers": ({"simulation": {"slow": 0.2}}, '"simulation.slow"; it is simulation.devices.stragglers now'),
    "a quorum": ({"transport": {"quorum": 0.5}}, '"transport.quorum"; it is transport.gather.quorum now'),
    "quality of service": ({"transport": {"qos": 0}}, '"transport.qos"; it is transport.mqtt.qos now'),
    "a key that merged": ({"topology": {"file": "a.json"}}, '"topology.file"; it is topology.kind now'),
    "what there is if nothing is near": ({"zzz": 1}, "the known keys are name, seed, rounds"),
    "a choice by its nearest name": (
        {"data": {"split": "dirichlt"}},
        '"power_law" or "shards"; did you mean "dirichlet"?',
    ),
    "all choices": ({"transport": {"mqtt": {"version": 3}}}, "transport.mqtt.version is 3; set it to 4 or 5"),
    "a type": ({"rounds": 1.5}, "rounds is 1.5; set it to a whole number >= 1"),
    "a range": ({"data": {"test": 1}}, "data.test is 1; set it to a number >= 0 and < 1"),
    "one of two types": ({"learning": {"batch": "some"}}, 'batch is "some"; set it to a whole number >= 1 or "all"'),
    "an item of a list": (
        {"model": {"hidden": [3, 0]}},
        "model.hidden is [3, 0]; set it to a list in which each item is a whole number >= 1",
    ),
    "an item of a table": (
        {"learning": {"metrics": {"f1": 3}}},
        'learning.metrics is {"f1": 3}; set it to a table in which each value is text in quotes',
    ),
    "yes or no": ({"learning": {"weighted": 1}}, "learning.weighted is 1; set it to true or false"),
    "a number that is none": ({"learning": {"rate": math.nan}}, "rate is NaN; set it to a finite number >= 0"),
    "an endless number": ({"learning": {"rate": math.inf}}, "learning.rate is Infinity; set it to a finite number"),
    "a seed beyond 64 bits": ({"seed": 2**63}, "; set it to a whole number >= 0 and <= 9223372036854775807"),
    "options of no schedule": (
        {"learning": {"schedule": {"options": {"gamma": 0.5}}}},
        " has no effect, because the schedule has no name; leave it out",
    ),
    "a share that D-PSGD has no use for": (
        {"learning": {"algorithm": "dpsgd", "fraction": 0.5}},
        "learning.fraction = 0.5 has no effect, because all peers take part",
    ),
    "weights that D-PSGD has no use for": (
        {"learning": {"algorithm": "dpsgd", "weighted": False}},
        "learning.weighted = false has no effect, because all peers take part",
    ),
    "epochs of D-PSGD": ({"learning": {"algorithm": "dpsgd", "epochs": 2}}, "dpsgd makes learning.steps steps per"),
    "epochs of FedSGD": ({"learning": {"algorithm": "fedsgd", "epochs": 2}}, "fedsgd makes one step on all data"),
    "a batch of FedSGD": ({"learning": {"algorithm": "fedsgd", "batch": 8}}, "fedsgd makes one step on all data"),
    "steps of FedSGD": ({"learning": {"algorithm": "fedsgd", "steps": 8}}, "fedsgd makes one step on all data"),
    "epochs beside steps": ({"learning": {"epochs": 2, "steps": 8}}, "learning.steps replaces it"),
    "an optimiser of pFedMe": (
        {"learning": {"algorithm": "pfedme", "optimizer": "adam"}},
        'learning.optimizer = "adam" has no effect, because pfedme takes gradient steps of its own',
    ),
    "epochs of Per-FedAvg": ({"learning": {"algorithm": "per_fedavg", "epochs": 3}}, "per_fedavg takes gradient steps"),
    "stragglers of FedRep": ({"learning": {"algorithm": "fedrep", "stragglers": 0.5}}, "fedrep takes gradient steps"),
    "exchanges of RelaySGD": (
        {"learning": {"algorithm": "relay_sgd"}, "gossip": {"steps": 3}},
        "gossip.steps = 3 has no effect, because relay_sgd makes one gossip step per round",
    ),
    "acceleration of RelaySGD": (
        {"learning": {"algorithm": "relay_sgd"}, "gossip": {"acceleration": "chebyshev"}},
        "relay_sgd makes one gossip step per round, without acceleration",
    ),
    "a tolerance of D-PSGD": (
        {"learning": {"algorithm": "dpsgd"}, "gossip": {"tolerance": 0.1}},
        "dpsgd makes gossip.steps gossip steps per round, 1 by default",
    ),
    "a tolerance beside steps": ({"gossip": {"steps": 3, "tolerance": 0.1}}, "gossip.steps replaces it"),
    "stragglers of one epoch": (
        {"learning": {"stragglers": 0.5}},
        "learning.stragglers = 0.5 has no effect, because no peer can do less than one epoch",
    ),
    "stragglers among secret batches": (
        {"learning": {"stragglers": 0.5, "epochs": 3, "example_noise": 1.0}},
        "with learning.example_noise each peer makes all its steps",
    ),
    "widths of a model of one's own": ({"model": {"name": "my:Net", "hidden": [8]}}, "takes its widths from model.opt"),
    "a name that no topic can have": (
        {"name": "a/b"},
        'name is "a/b"; set it to text that matches ^[A-Za-z0-9_-]{1,40}\\Z',
    ),
    "a mask that calibration chooses": (
        {"privacy": {"mode": "pairwise", "epsilon": 8.0, "mask": 0.0}},
        "privacy.mask = 0.0 has no effect, because privacy.epsilon without privacy.noise chooses both",
    ),
    "an account without a mode": ({"privacy": {"budget": "b.jsonl"}}, '"b.jsonl" has no effect, because privacy.mode'),
    "an account of masks alone": (
        {"privacy": {"mode": "pairwise", "clip": 1.0, "budget": "b.jsonl"}},
        'privacy.budget = "b.jsonl" has no effect, because updates have a cost to add up only with privacy.epsilon',
    ),
    "an account of noise without a clip": (
        {"privacy": {"mode": "independent", "noise": 1.0, "budget": "b.jsonl"}},
        'privacy.budget = "b.jsonl" has no effect',
    ),
    "an account without a name": (
        {"privacy": {"mode": "pairwise", "epsilon": 8.0, "budget": ""}},
        'privacy.budget is ""; set it to text in quotes that is not empty',
    ),
    "a section that is none": ({"topology": "ring"}, 'topology is "ring"; set it to a section with keys of its own'),
}


@pytest.mark.parametrize(("table", "said"), WRONG.values(), ids=WRONG)
def test_an_error_names(table, said):
    with pytest.raises(ExperimentError) as caught:
        read(table)
    assert str(caught.value).startswith("the experiment: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_says_whether_the_file_or_the_command_line_is_wrong(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("rounds = 3\n")
    with pytest.raises(ExperimentError, match=r"^--set: seed is -1; set it to"):
        read(file, changes=["seed=-1"])
    file.write_text("seed = -1\n")
    with pytest.raises(ExperimentError, match=r"mine\.toml: seed is -1; set it to"):
        read(file, changes=["rounds=3"])


def test_a_change_of_the_algorithm_drops_what_was_meant_for_another_but_not_what_is_asked_for_in_one_breath():
    table = {"learning": {"epochs": 3, "fraction": 0.5, "batch": 8}}
    changed = read(table, changes=["learning.algorithm=dpsgd"])
    assert (changed.learning.epochs, changed.learning.fraction, changed.learning.batch) == (1, 1.0, 8)
    assert read(plain(changed)) == changed
    with pytest.raises(ExperimentError, match=r"^--set: learning\.epochs = 3 has no effect"):
        read(table, changes=["learning.epochs=3", "learning.algorithm=dpsgd"])
    with pytest.raises(ExperimentError, match=r"^--set: learning\.schedule"):
        read({}, changes=["learning.schedule.options.gamma=0.5"])


def test_stragglers_have_an_effect_on_who_takes_steps_of_his_own_where_they_are_left_out():
    learning = {"algorithm": "pfedme", "stragglers": {"share": 0.5, "drop": True}}
    assert read({"learning": learning}).learning.dropped == 0.5


def test_a_tolerance_has_no_effect_on_the_one_model_of_all_peers_which_is_an_exact_mean():
    table = {"learning": {"algorithm": "dpsgd", "consensus": True}, "gossip": {"tolerance": 0.1}}
    with pytest.raises(ExperimentError, match=r"gossip\.tolerance = 0\.1 has no effect"):
        read(table)


def test_paths_are_found_beside_the_file_or_where_the_command_runs(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "there" / "graph.json").touch()
    (tmp_path / "here" / "start.safetensors").touch()
    file = tmp_path / "there" / "mine.toml"
    file.write_text('[topology]\nkind = "graph.json"\n[data]\nname = "csv"\noptions = { path = "none.csv" }\n')
    monkeypatch.chdir(tmp_path / "here")
    experiment = read(file, changes=["model.pretrained=start.safetensors"])
    assert experiment.topology.kind == str(tmp_path / "there" / "graph.json")
    assert experiment.model.pretrained == str(tmp_path / "here" / "start.safetensors")
    assert experiment.data.options["path"] == "none.csv"  # whoever opens it will say that it is missing


def test_a_budget_that_is_still_to_be_made_is_the_same_from_wherever_a_run_starts(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    file = tmp_path / "mine.toml"
    file.write_text(
        '[privacy]\nmode = "pairwise"\nepsilon = 8.0\nbudget = "cells.budget.jsonl"\n[trust]\nkeys = "keys"\n'
    )
    for folder in (tmp_path, tmp_path / "here"):
        monkeypatch.chdir(folder)
        for experiment in (read(file), read(file, changes=["rounds=3"])):
            assert experiment.privacy.budget == str(tmp_path / "cells.budget.jsonl")
            assert experiment.trust.keys == str(tmp_path / "keys")
    said = read(file, changes=["privacy.budget=other.jsonl"])
    assert said.privacy.budget == str(tmp_path / "here" / "other.jsonl")  # of the command line, so where that is


def test_a_change_that_hides_nothing_does_not_forget_the_account(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[privacy]\nmode = "pairwise"\nepsilon = 8.0\nbudget = "cells.budget.jsonl"\n')
    with pytest.raises(
        ExperimentError,
        match=r'^--set: privacy\.budget = .* has no effect, because privacy\.mode is "none"; leave it out',
    ):
        read(file, changes=["privacy.mode=none"])
    with pytest.raises(ExperimentError, match=r'^--set: privacy\.budget is ""; set it to .* not empty'):
        read(file, changes=['privacy.budget=""'])
    given = read(file, changes=["privacy.noise=1", "privacy.mask=20"])
    assert given.privacy.mask == 20
    assert read(given, changes=["privacy.noise=0"]).privacy.mask is None  # calibrated again


def test_every_key_that_holds_a_path_exists():
    known = {f"{name}.{key}" for name, kind in SECTIONS.items() for key in kind.__struct_fields__}
    known |= {f"simulation.devices.{key}" for key in DeviceSettings.__struct_fields__}
    assert {path for path in PATHS if path != "data.options.path"} <= known


def test_an_experiment_cannot_be_changed():
    with pytest.raises(AttributeError):
        read({}).topology.peers = 3
    assert read({}).topology == TopologySection()
