"""What outputs publish together: every count is a sum over people, and an attacker solves the linear system of all.

A count of few people follows if the row of these people is a combination of the rows of published counts.
"""

import json
import tomllib

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import tomli_w

from p2pfl.cli import main
from plugins.exact.hospital_cases import case

pytestmark = pytest.mark.slow

LEAST = 5
BINS = 20
LAST = 700
"""Last time of the clinic's people."""


def clinic(folder):
    """Write the tables of four owners, in which few people have two columns' values together, and an experiment."""
    rng = np.random.default_rng(5)
    n = 320
    ward = rng.choice(["a", "b", "c", "d"], n, p=[0.4, 0.32, 0.22, 0.06])
    fever = (rng.random(n) < np.where(ward == "d", 0.1, 0.4)).astype(int)
    frame = pd.DataFrame({"ward": ward, "fever": fever, "age": rng.integers(20, 90, n)})
    frame["smoker"] = np.where((ward == "c") & (rng.random(n) < 0.95), "no", rng.choice(["no", "yes"], n))
    frame["drug"] = rng.choice(["old", "new"], n)
    days = np.ceil(rng.exponential(np.where(frame["drug"] == "new", 200, 140))).astype(int)
    frame["days"] = np.minimum(days, rng.integers(300, 500, n))
    frame["died"] = ((rng.random(n) < 0.7) & (frame["days"] == days)).astype(int)
    frame.loc[[3, 7, 12], ["days", "died"]] = [[600, 1], [640, 1], [700, 1]]
    for number in range(4):
        frame[number::4].to_csv(folder / f"peer{number}.csv", index=False)
    columns = {"ward": ["a", "b", "c", "d"], "smoker": ["no", "yes"], "drug": ["old", "new"]}
    columns |= dict.fromkeys(("fever", "age", "days", "died"), "integer")
    options = {"path": str(folder / "{peer}.csv"), "target": "days", "event": "died", "columns": columns}
    experiment = {"topology": {"kind": "complete", "peers": 4}, "data": {"name": "table", "options": options}}
    (folder / "clinic.toml").write_text(tomli_w.dumps(experiment))
    return folder / "clinic.toml", frame.assign(event=frame["died"])


def births(data_dir, folder):
    """Return the experiment on births of the hospital's cases, and its people.

    Without the weight of which ``low`` is a part: what a column and one that cuts it show together is not hidden.
    """
    copy = case(data_dir, "suppression-withdrawal", folder)
    frame = pd.concat([pd.read_csv(path) for path in sorted(copy.glob("peer*.csv"))], ignore_index=True)
    path = copy / "d.toml"
    settings = tomllib.loads(path.read_text().replace("{peer}", f"{copy}/{{peer}}"))
    for name in ("bwt", "stamp"):
        settings["data"]["options"]["columns"].pop(name)
    path.write_text(tomli_w.dumps(settings))
    return path, frame


def lung(data_dir, folder):
    """Return an experiment on times of patients with lung cancer, and its people."""
    copy = case(data_dir, "cox-rows", folder)
    frame = pd.concat([pd.read_csv(path) for path in sorted(copy.glob("peer*.csv"))], ignore_index=True)
    columns = {"time": "integer", "status": [1, 2], "age": "integer", "sex": [1, 2], "ph.ecog": [0, 1, 2, 3]}
    options = {"path": str(copy / "{peer}.csv"), "target": "time", "event": "status", "columns": columns}
    experiment = {"topology": {"kind": "complete", "peers": 4}, "data": {"name": "table", "options": options}}
    (copy / "lung.toml").write_text(tomli_w.dumps(experiment))
    return copy / "lung.toml", frame.assign(event=frame["status"] - 1)


def output(capsys, *command):
    assert main([*map(str, command), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def members(frame, name, level):
    """Return who has a level, which may be several that are one."""
    if level == "yes" and name == "event":
        return frame["event"].to_numpy() == 1
    return frame[name].astype(str).isin(level.split("+")).to_numpy()


def indicators(frame, results):
    """Return the people of each column of zeros and ones of a description by its name there."""
    sets = {}
    for column in results["columns"]:
        if column["kind"] == "levels":
            for level in column["levels"]:
                sets[f"{column['name']}: {level.split('+')[0]}"] = members(frame, column["name"], level)
        elif set(frame[column["name"]].unique()) == {0, 1}:
            sets[column["name"]] = frame[column["name"]].to_numpy() == 1
    return sets


def of_description(frame, results):
    """Yield people and number of each count that a description publishes, also as a correlation."""
    everyone = np.ones(len(frame), bool)
    yield everyone, results["samples"]
    for column in results["columns"]:
        if column["kind"] == "levels":
            yield from ((members(frame, column["name"], level), n) for level, n in column["levels"].items())
            continue
        values = frame[column["name"]].to_numpy()
        yield ~np.isnan(values), column["count"]
        edges, counts = column["edges"], column["counts"]
        if edges[0] < edges[-1]:
            inner = edges[1:-1] if len(counts) == BINS else edges[1:]  # bins of whole numbers beyond are not stated
            place = np.searchsorted(inner, values, side="right")
            yield from ((place == number, count) for number, count in enumerate(counts))
    sets = indicators(frame, results)
    places = {name: place for place, name in enumerate(results["names"])}
    for one in sets:
        for two in sets:
            r = results["correlations"][places[one]][places[two]] if one in places and two in places else None
            if one < two and r is not None and 0 < sets[one].mean() < 1 and 0 < sets[two].mean() < 1:
                p, q = sets[one].mean(), sets[two].mean()
                together = len(frame) * (r * np.sqrt(p * (1 - p) * q * (1 - q)) + p * q)
                yield sets[one] & sets[two], round(together)
    yield from of_groups(frame, results)


def of_groups(frame, results):
    """Yield people and number of each count of Table 1."""
    groups = results.get("groups")
    for number, name in enumerate(groups["names"] if groups else ()):
        group = members(frame, groups["by"], name)
        yield group, groups["samples"][number]
        for column in groups["columns"]:
            for level, counts in column.get("levels", {}).items():
                yield group & members(frame, column["name"], level), counts[number]
            if column["kind"] == "number":
                yield group & frame[column["name"]].notna().to_numpy(), column["counts"][number]
                if set(frame[column["name"]].unique()) == {0, 1} and column["means"][number] is not None:
                    ones = column["means"][number] * column["counts"][number]
                    yield group & (frame[column["name"]] == 1).to_numpy(), round(ones)


def of_curves(frame, results, *, time):
    """Yield people and number of each count of survival curves."""
    values, event = frame[time].to_numpy(), frame["event"].to_numpy() == 1
    for curve in results["groups"]:
        group = (
            np.ones(len(frame), bool) if results["group"] is None else members(frame, results["group"], curve["name"])
        )
        yield group, curve["samples"]
        yield group & event & (values <= results["horizon"]), curve["events"]
        for end, risk, died in zip(curve["times"], curve["at_risk"], curve["died"], strict=True):
            left = np.sort(values[group])[-risk]
            yield group & (values >= left), risk
            yield group & event & (values >= left) & (values <= end), died
        for risk in curve["remaining"]:
            if risk:
                yield group & (values >= np.sort(values[group])[-risk]), risk


def shown(published):
    """Return the sets of few people whose number follows from the published counts, each with its people."""
    stated = {people.tobytes(): people for people, count in published if count is not None}
    rows = np.stack([*stated.values()]).astype(float)  # [counts, n]
    _, values, basis = np.linalg.svd(rows, full_matrices=False)
    basis = basis[values > 1e-9 * values[0]]
    small = set()
    for one in rows:
        for each in (rows * one, rows * (1 - one)):  # people of two counts together, and of one of them alone
            size = each.sum(axis=1)
            few = each[(size > 0) & (size < LEAST)]
            rest = few - few @ basis.T @ basis
            small |= {tuple(np.flatnonzero(people)) for people in few[np.abs(rest).max(axis=1, initial=0) < 1e-6]}
    return small


def check_read(published):
    """Return the counts after each was compared with the people that it counts."""
    published = [*published]
    assert len(published) > 20
    for people, count in published:
        assert count is None or people.sum() == count
    return published


def survive(capsys, path, *options, horizon):
    results = output(capsys, "survival", path, "--horizon", horizon, *options)
    return results | {"horizon": horizon}


def test_no_small_count_follows_from_a_description(tmp_path, capsys):
    path, frame = clinic(tmp_path)
    published = check_read(of_description(frame, output(capsys, "describe", path)))
    assert not shown(published)


def test_without_the_check_small_counts_follow(tmp_path, capsys):
    path, frame = clinic(tmp_path)
    published = check_read(of_description(frame, output(capsys, "describe", path, "--least", 1)))
    assert shown(published)


@pytest.mark.parametrize("by", ["drug", "smoker"])
def test_no_small_count_follows_from_table_1_with_the_description(tmp_path, capsys, by):
    path, frame = clinic(tmp_path)
    published = [*of_description(frame, output(capsys, "describe", path, "--by", by))]
    published += of_description(frame, output(capsys, "describe", path))
    assert not shown(check_read(published))


@pytest.mark.parametrize("group", ["drug", None])
def test_no_small_count_follows_from_numbers_at_risk_with_table_1(tmp_path, capsys, group):
    path, frame = clinic(tmp_path)
    published = [*of_description(frame, output(capsys, "describe", path, "--by", "drug"))]
    grouped = [] if group is None else ["--group", group]
    curves = survive(capsys, path, *grouped, "--width", "auto", horizon=LAST)
    published += of_curves(frame, curves, time="days")
    assert not shown(check_read(published))


def test_a_horizon_after_which_few_people_have_the_event_is_refused(tmp_path, capsys):
    """They are the events of Table 1 that the curves lack."""
    path, frame = clinic(tmp_path)
    assert (frame["event"] & (frame["days"] > 512)).sum() == 3
    assert main(["survival", str(path), "--horizon", "512", "--width", "auto"]) == 2
    assert "fewer than 5 people have the event after the horizon 512" in capsys.readouterr().err
    published = [*of_description(frame, output(capsys, "describe", path))]
    published += of_curves(frame, survive(capsys, path, "--width", "auto", "--least", 1, horizon=512), time="days")
    late = np.flatnonzero(frame["event"] & (frame["days"] > 512))
    assert tuple(late) in shown(check_read(published))


def test_no_small_count_follows_from_births(data_dir, tmp_path, capsys):
    path, frame = births(data_dir, tmp_path)
    published = [*of_description(frame, output(capsys, "describe", path, "--by", "low"))]
    published += of_description(frame, output(capsys, "describe", path))
    published += of_description(frame, output(capsys, "describe", path, "--by", "smoke"))
    assert not shown(check_read(published))


def test_no_small_count_follows_from_curves_of_lung_cancer(data_dir, tmp_path, capsys):
    path, frame = lung(data_dir, tmp_path)
    published = [*of_description(frame, output(capsys, "describe", path, "--by", "sex"))]
    published += of_curves(frame, survive(capsys, path, "--group", "sex", "--width", "auto", horizon=1024), time="time")
    published += of_curves(frame, survive(capsys, path, "--width", "auto", horizon=1024), time="time")
    assert not shown(check_read(published))


def test_events_of_table_1_are_compared_with_people_without_them(tmp_path, capsys):
    path, frame = clinic(tmp_path)
    results = output(capsys, "describe", path, "--by", "drug")
    found = next(each for each in results["groups"]["columns"] if each["name"] == "event")
    oracle = scipy.stats.chi2_contingency(pd.crosstab(frame["drug"], frame["died"]), correction=False)
    assert [found["statistic"], found["p"]] == pytest.approx([oracle.statistic, oracle.pvalue], rel=1e-9)
    share = frame.groupby("drug")["died"].mean()
    spread = np.sqrt((share * (1 - share)).mean())
    assert found["smd"] == pytest.approx(abs(share["old"] - share["new"]) / spread, rel=1e-9)
