"""The hospital's inputs, in which every owner has a table, and the rows of all owners."""

import csv
import tomllib

import numpy as np
import pytest


def case(data_dir, name, tmp_path):
    """Return a copy of the folder of a case, beside whose tables runs keep their account; skip where there is none."""
    folder = data_dir.parent / "cases" / "hospital" / name
    if not folder.is_dir():
        pytest.skip("no folder with the hospital's cases")
    copy = tmp_path / name
    if not copy.is_dir():
        copy.mkdir()
        for path in [*folder.glob("*.csv"), *folder.glob("*.toml")]:
            (copy / path.name).write_bytes(path.read_bytes())
    return copy


def experiment_of(folder, file, *, model=None, **keys):
    """Return the settings of a case, whose test share is left out, with another model and other keys of the data."""
    settings = tomllib.loads((folder / file).read_text())
    settings["data"].pop("test")
    settings["data"] |= {"options": settings["data"]["options"] | {"path": str(folder / "{peer}.csv")}} | keys
    return settings | ({} if model is None else {"model": model})


def pooled(folder):
    """Return the columns of all owners' tables, as numbers where they are some."""
    rows = []
    for path in sorted(folder.glob("peer*.csv")):
        with path.open(newline="") as file:
            rows += list(csv.DictReader(file))
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {name: _numbers(values) for name, values in columns.items()}


def _numbers(values):
    try:
        return values.astype(float)
    except ValueError:
        return values
