"""Tables of three hospitals, and the experiment that learns from them, for tests."""

import csv

import numpy as np

PEERS = ("peer0", "peer1", "peer2")
COLUMNS = {
    "age": "integer",
    "sex": ["f", "m"],
    "weight": {"type": "number", "missing": 80_000},
    "ward": {"levels": ["east", "north", "west", "elsewhere"], "missing": "east", "unknown": "elsewhere"},
    "outcome": ["well", "ill"],
}


def write(folder, *, rows=(60, 90, 120), target="outcome"):
    """Write ``PEER.csv`` of each hospital, with an id, missing cells and an unknown ward; return all rows."""
    rng = np.random.default_rng(5)
    written = {}
    for peer, count in zip(PEERS, rows, strict=True):
        age, weight = rng.normal(60, 12, count).round(), rng.normal(80_000, 9_000, count)
        sex, ward = rng.choice(["f", "m"], count), rng.choice(["east", "north", "west", "south"], count)
        risk = (age - 60) / 12 - (weight - 80_000) / 9_000 + 2.0 * (ward == "west") + rng.normal(0, 0.3, count)
        answer = np.where(risk > 0.5, "ill", "well") if target == "outcome" else (risk * 10).round(3)
        columns = [range(count), sex, age.astype(int), weight.round(1).astype(object), ward.astype(object), answer]
        for place in rng.choice(count, 8, replace=False):
            columns[3 + place % 2][place] = ""
        written[peer] = [
            dict(zip(["id", "sex", "age", "weight", "ward", target], row, strict=True))
            for row in zip(*columns, strict=True)
        ]
        with (folder / f"{peer}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, written[peer][0])
            writer.writeheader()
            writer.writerows(written[peer])
    return written


def experiment(folder, **changes):
    """The experiment on these tables, as a dictionary."""
    options = {"path": str(folder / "{peer}.csv"), "target": "outcome", "columns": COLUMNS}
    return {
        "name": "wards",
        "seed": 3,
        "rounds": 4,
        "topology": {"kind": "complete", "peers": 3},
        "data": {"name": "table", "options": options, "scale": True},
        "model": {"name": "linear"},
        "learning": {"device": "cpu", "weighted": False, "rate": 0.5},
        "transport": {"patience": 20.0, "gather": 30.0},
    } | changes
