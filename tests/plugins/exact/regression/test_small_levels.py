"""Levels, codes and classes of few people: a regression refuses or merges them before a total shows one person."""

import asyncio
from contextlib import suppress

import numpy as np
import pytest
import torch

from p2pfl import live, read, simulate, topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError, ModelError, RunError
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description, Field
from p2pfl.learning import ExactLearner
from p2pfl.learning.additive import answer_questions
from p2pfl.plugins.exact import GLM, Lasso
from p2pfl.privacy.keys import SeededSource
from plugins.exact.hospital_cases import case

FIELDS = (Field("icd", ("A", "B", "C", "D")), Field("age"), Field("sex"))
COUNTS = {"A": 60, "B": 50, "C": 2, "D": 8}
PEERS = topology.complete(4).peers


def federation(counts=COUNTS, *, classes=None, sex=(1, 2), seed=0):
    """Return four hospitals with people of some levels, in turn."""
    rng = np.random.default_rng(seed)
    levels = np.repeat(np.arange(4), [counts[level] for level in "ABCD"])
    count = len(levels)
    columns = [np.eye(4)[levels], rng.uniform(20, 90, (count, 1)), rng.choice(sex, (count, 1))]
    features = np.concatenate(columns, axis=1)
    if classes is None:
        targets = torch.from_numpy(features @ [1, 2, 4, 3, 0.1, -1] + rng.normal(size=count)).float()
    else:
        targets = torch.arange(count) % classes
    dataset = Dataset(torch.from_numpy(features).float(), targets, classes, description=Description(columns=FIELDS))
    own = {peer: np.arange(number, count, 4) for number, peer in enumerate(PEERS)}
    nothing = dict.fromkeys(PEERS, np.arange(0))
    return Federation(dataset, own, nothing, dict.fromkeys(PEERS, np.arange(count)))


def run(model, data, **options):
    """Return the tensors after a run between the peers of some data."""
    ended = simulate(Exact(), ExactLearner(model, data), topology.complete(4), rounds=60, baselines=False, **options)
    return {name: value.numpy() for name, value in ended.models["peer0"].items()}


def model(kind=GLM, **options):
    given = {"features": 6, "classes": None, "fields": FIELDS} | options
    return kind(**given)


def test_a_level_of_two_people_ends_a_regression_by_its_name_and_without_its_count():
    with pytest.raises(DataError) as error:
        run(model(), federation())
    assert "fewer than 5 people share a value of icd=C" in str(error.value)
    assert 'merge = "rare"' in str(error.value)
    assert not {"2", "3", "1"} & {*str(error.value)}
    run(model(least=1), federation())


def crossed(*, exposed):
    """Return hospitals with two levels, a code, and their interaction; ``exposed`` people have B without the code."""
    rng = np.random.default_rng(0)
    level, code = np.repeat([0, 1], 60), np.tile([0, 1], 60)
    code[60:] = np.arange(60) >= exposed
    features = np.column_stack([level == 1, level == 0, code, (level == 1) * code, rng.uniform(20, 90, 120)])
    fields = (Field("race", ("B", "A")), Field("smoke"), Field("race=B:smoke"), Field("age"))
    dataset = Dataset(
        torch.from_numpy(features).double(),
        torch.from_numpy(rng.normal(size=120)),
        None,
        description=Description(columns=fields),
    )
    own = {peer: np.arange(number, 120, 4) for number, peer in enumerate(PEERS)}
    nothing = dict.fromkeys(PEERS, np.arange(0))
    return GLM(features=5, classes=None, fields=fields), Federation(dataset, own, nothing, nothing)


@pytest.mark.parametrize("exposed", [1, 4])
def test_an_interaction_is_refused_where_few_people_have_one_of_its_parts_without_the_other(exposed):
    """The total of the part less that of the interaction is the row of such a person."""
    with pytest.raises(DataError, match=r"share a value of race:smoke, alone .*; merge levels"):
        run(*crossed(exposed=exposed))


@pytest.mark.parametrize("exposed", [0, 6])
def test_an_interaction_is_accepted_where_nobody_or_many_have_one_of_its_parts_without_the_other(exposed):
    run(*crossed(exposed=exposed))


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_a_target_that_few_people_have_is_refused_since_its_products_with_features_are_their_rows(family):
    data = federation({"A": 60, "B": 60, "C": 40, "D": 40})
    data.dataset.targets[:] = 0
    data.dataset.targets[7] = 3
    with pytest.raises(DataError, match="fewer than 5 people have a target other than 0"):
        run(model(family=family), data)


def test_a_refusal_names_no_option_that_would_not_help():
    data = federation({"A": 60, "B": 60, "C": 40, "D": 40}, sex=(1,))
    data.dataset.features[:3, 5] = 2
    for options in ({}, {"merge": "rare"}):
        with pytest.raises(DataError, match="share a value of sex") as error:
            run(model(**options), data)
        assert "model.options.merge" not in str(error.value)


@pytest.mark.parametrize("codes", [(0, 1), (1, 2), (-1, 1), (0, 5), (1, 9)])
def test_a_number_of_two_codes_singles_out_those_with_either_code(codes):
    counts = {"A": 60, "B": 60, "C": 40, "D": 40}
    for few, many in (codes, codes[::-1]):
        data = federation(counts, sex=(many,))
        data.dataset.features[:3, 5] = few
        with pytest.raises(DataError, match="share a value of sex"):
            run(model(), data)


def test_a_number_of_many_values_singles_out_nobody_by_one_of_them():
    data = federation({"A": 60, "B": 60, "C": 40, "D": 40}, sex=(1, 2, 3))
    data.dataset.features[:1, 5] = 9.0
    run(model(), data)


def test_a_class_that_few_people_have_with_a_level_is_a_small_cell():
    data = federation({"A": 60, "B": 60, "C": 40, "D": 8}, classes=2)
    with pytest.raises(DataError, match="icd=D, alone or with one outcome"):
        run(model(classes=2), data)


def test_a_level_in_the_validation_part_alone_is_small_for_the_path_of_a_lasso():
    data = federation({"A": 60, "B": 60, "C": 40, "D": 40})
    last = len(data.dataset) - 1
    held = {peer: own[own == last] for peer, own in data.train.items()}
    data = Federation(data.dataset, {peer: own[own != last] for peer, own in data.train.items()}, held, data.test)
    run(model(), data)
    with pytest.raises(DataError, match="share a value of icd=D"):
        run(model(Lasso, lambdas=3), data)


@pytest.mark.parametrize("kind", [GLM, Lasso])
def test_a_rare_level_is_merged_with_the_next_until_none_is_small(kind):
    counts = {"A": 60, "B": 50, "C": 2, "D": 1}
    data = federation(counts)
    found = run(model(kind, merge="rare"), data)
    assert found["levels"].tolist() == [0, 1, 1, 1, 4, 5]  # C and D are three together, so B joins them
    assert len({*found["weight"][0, 1:4].tolist()}) == 1
    pooled = federation(counts)
    pooled.dataset.features[:, 1] = pooled.dataset.features[:, 1:4].sum(dim=1)
    pooled.dataset.features[:, 2:4] = 0
    expected = run(model(kind, least=1), pooled)
    assert np.array_equal(found["weight"][0, [0, 1, 4, 5]], expected["weight"][0, [0, 1, 4, 5]])
    learner = ExactLearner(model(kind, merge="rare"), data)
    row = learner._row({name: torch.from_numpy(value) for name, value in found.items()})
    outputs, _ = learner.outputs(row, peer="peer0", part="test")
    module = learner.model.module()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in found.items()})
    torch.testing.assert_close(module(data.dataset.features), outputs, rtol=1e-9, atol=1e-9)
    names = [each.name for each in learner.explained(row).regression.coefficients]
    assert names[:4] == ["icd: A", "icd: B+C+D", "icd: C", "icd: D"]


def test_small_levels_of_a_column_become_one_if_they_are_enough_together():
    found = run(model(merge="rare"), federation({"A": 60, "B": 3, "C": 50, "D": 4}))
    assert found["levels"].tolist() == [0, 1, 2, 1, 4, 5]


def test_a_merge_of_an_unknown_name_is_refused():
    with pytest.raises(ModelError, match=r'merge is "all"; set it to "rare"'):
        model(merge="all")


def test_hidden_and_open_checks_merge_the_same_levels():
    data = federation({"A": 60, "B": 3, "C": 50, "D": 4})
    ended = asyncio.run(
        live(Exact(), ExactLearner(model(merge="rare"), data), topology.complete(4), rounds=60, baselines=False)
    )
    expected = run(model(merge="rare"), data)
    for tensors in ended.models.values():
        for name, value in expected.items():
            assert np.array_equal(tensors[name].numpy(), value, equal_nan=True), name


def test_a_site_may_want_more_people_in_a_cell_than_the_model():
    learner = ExactLearner(model(), federation({"A": 60, "B": 60, "C": 40, "D": 40}))
    simulate(Exact(), learner, topology.complete(4), rounds=60, baselines=False)
    row = learner.start(["peer0"])[0]
    stricter = learner.checking_cells(SeededSource(0), peers=(), least=50)
    with pytest.raises(DataError, match="fewer than 50 people share a value of icd=C and icd=D"):
        answer_questions(stricter.asking(row, round=0), lambda question: sum(map(question.answer, PEERS)))


@pytest.fixture
def hospitals(data_dir, tmp_path, monkeypatch):
    """Run in the folder of four hospitals' tables, one of which has one person with the level E84."""
    monkeypatch.chdir(case(data_dir, "glm-one-level", tmp_path))


def birthwt(**options):
    columns = {"bwt": "number", "age": "number", "lwt": "number", "smoke": "number", "ftv": "number"}
    table = {"path": "{peer}.csv", "target": "bwt", "columns": columns | {"icd": ["E84", "other"]}}
    return read(
        {
            "rounds": 9,
            "topology": {"kind": "complete", "peers": 4},
            "data": {"name": "table", "test": 1e-9, "options": table},
            "model": {"name": "glm", "options": options},
            "privacy": {"mode": "pairwise"},
        }
    )


def alone_in_levels(monkeypatch, start):
    """Return the weights at birth of people that a peer reads from the totals of a regression, as alone in a level."""
    derived, read_off = GLM._derived, []

    def spy(self, kind, beta, tensors, own):
        found = yield from derived(self, kind, beta, tensors, own)
        counts = np.diag(found["information"])  # of zeros and ones, the sum of squares is the number of ones
        alone = np.flatnonzero(np.abs(counts - 1) < 1e-9)
        read_off.extend((found["score"][alone] + beta[-1] + beta[alone]).round(3).tolist())
        return found

    monkeypatch.setattr(GLM, "_derived", spy)
    with suppress(DataError, RunError):
        start()
    return {*read_off}


def simulated(made):
    simulate(made, baselines=False)


def lived(made):
    asyncio.run(live(made, baselines=False))


@pytest.mark.slow
@pytest.mark.usefixtures("hospitals")
@pytest.mark.parametrize("carried", [simulated, lived])
def test_nobody_is_alone_in_a_level_of_birthwt_unless_the_check_is_off(monkeypatch, carried):
    assert alone_in_levels(monkeypatch, lambda: carried(birthwt())) == set()
    assert alone_in_levels(monkeypatch, lambda: carried(birthwt(merge="rare"))) == set()
    assert 3416.0 in alone_in_levels(monkeypatch, lambda: carried(birthwt(least=1)))


@pytest.mark.parametrize("carried", [simulated, lived])
def test_the_policy_of_a_site_may_want_more_people_than_the_author_of_an_experiment(tmp_path, carried):
    rng = np.random.default_rng(0)
    for number, peer in enumerate(PEERS):
        rows = [f"{rng.normal():.3f},{rng.normal():.3f},{'b' if place % 10 == 0 else 'a'}" for place in range(50)]
        (tmp_path / peer).mkdir()
        (tmp_path / peer / "table.csv").write_text("y,x,ward\n" + "\n".join(rows) + "\n")
        if number == 2:
            (tmp_path / peer / "policy.toml").write_text("least = 25")
    columns = {"y": "number", "x": "number", "ward": ["a", "b"]}
    options = {"path": str(tmp_path / "{peer}" / "table.csv"), "target": "y", "columns": columns}
    table = {
        "rounds": 9,
        "topology": {"kind": "complete", "peers": 4},
        "data": {"name": "table", "options": options},
        "model": {"name": "glm"},
        "privacy": {"mode": "pairwise"},
    }
    with pytest.raises((DataError, RunError), match="fewer than 25 people share a value of ward=b"):
        carried(read(table))
    (tmp_path / PEERS[2] / "policy.toml").write_text("least = 20")
    carried(read(table))


def cleveland(folder):
    """Return the patients of one hospital of the UCI heart data, in turn at four peers; four have restecg = 1."""
    lines = (folder / "heart" / "processed.cleveland.data").read_text().strip().splitlines()
    head = [cell.strip() for cell in lines[0].split(",")]
    rows = np.array([[float(cell.replace("?", "nan")) for cell in line.split(",")] for line in lines[1:]])
    age, sex, restecg, sick = rows[:, [head.index(name) for name in ("age", "sex", "restecg", "num")]].T
    features = np.column_stack([age, sex, np.eye(3)[restecg.astype(int)]])
    fields = (Field("age"), Field("sex"), Field("restecg", ("0", "1", "2")))
    targets = torch.from_numpy((sick > 0).astype(np.int64))
    dataset = Dataset(torch.from_numpy(features), targets, 2, description=Description(columns=fields))
    own = {peer: np.arange(number, len(rows), 4) for number, peer in enumerate(PEERS)}
    nothing = dict.fromkeys(PEERS, np.arange(0))
    return Federation(dataset, own, nothing, dict.fromkeys(PEERS, np.arange(len(rows)))), fields


@pytest.mark.parametrize(("options", "expected"), [({"least": 1}, 1), ({}, 0), ({"merge": "rare"}, 0)])
def test_a_patient_of_the_heart_data_who_is_alone_with_a_level_in_a_class_shows_only_without_the_check(
    data_dir, monkeypatch, options, expected
):
    data, fields = cleveland(data_dir)
    derived, alone = GLM._derived, []

    def spy(self, kind, beta, tensors, own):
        found = yield from derived(self, kind, beta, tensors, own)
        if not beta[:-1].any():  # the first total, whose weights and means are all the same
            mean = 1 / (1 + np.exp(-beta[-1]))
            people = np.diag(found["information"])[2:5] / (mean * (1 - mean))
            sick = found["score"][2:5] + people * mean
            alone.append(int((np.abs(np.concatenate([sick, people - sick]) - 1) < 1e-6).sum()))
        return found

    monkeypatch.setattr(GLM, "_derived", spy)
    with suppress(DataError):
        run(GLM(features=5, classes=2, fields=fields, **options), data)
    assert sum(alone) == expected
    assert bool(alone) == (options != {})
