"""The four hospitals of the authors' stored fit of distributed component-wise boosting."""

import hashlib

import numpy as np
import torch

from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description, Field

NAMES = ("age", "sex", "cp", "trestbps", "restecg", "thalach", "exang", "oldpeak")
LEVELS = ("sex", "cp", "restecg", "exang")
SITES = ("cleveland", "hungarian", "switzerland", "va")

FIRST = "71e720a343123e7e80e660ea6c5ff750e8305250d2226dafeac7f389b9fe14d9"
"""SHA-256 of the first 1,000 choices of the stored fit, one a line."""

ALL = "b98b10d5d00297f33a38904f6c0d077b415a1037526d11a25cd837655e5b0be0"
"""Of all 100,000."""

RISKS = {0: 0.6034198857, 1: 0.602114547, 69: 0.549035653, 200: 0.517460761, 1000: 0.485581789, 10_000: 0.452292597}
"""Training risks after some steps of the stored fit, as it prints them."""

LAST = 0.4245125238
"""After all steps."""


def hospitals(folder):
    """Return the federation, and the options of the fit; oldpeak is in tenths, which are whole numbers."""
    tables = []
    for site in SITES:
        lines = (folder / "heart" / f"processed.{site}.data").read_text().strip().splitlines()
        head = [cell.strip() for cell in lines[0].split(",")]
        rows = np.array([[float(cell.replace("?", "nan")) for cell in line.split(",")] for line in lines[1:]])
        table = rows[:, [head.index(name) for name in (*NAMES, "num")]]
        tables.append(table[~np.isnan(table).any(1) & (table[:, NAMES.index("trestbps")] != 0)])
    whole = np.concatenate(tables)
    whole[:, NAMES.index("oldpeak")] = np.rint(10 * whole[:, NAMES.index("oldpeak")])
    columns, fields, ranges = [], [], {}
    for name, values in zip(NAMES, whole.T, strict=False):
        if name in LEVELS:
            levels = np.unique(values)
            fields.append(Field(name, tuple(f"{level:g}" for level in levels)))
            columns += [values == level for level in levels]
        else:
            fields.append(Field(name))
            columns.append(values)
            ranges[name] = (float(values.min()), float(values.max()))
    ends = np.cumsum([0, *map(len, tables)])
    own = {f"peer{number}": np.arange(*ends[number : number + 2]) for number in range(4)}
    features = torch.as_tensor(np.column_stack(columns), dtype=torch.float32)
    dataset = Dataset(
        features, torch.as_tensor(whole[:, -1] == 1).long(), 2, description=Description(columns=(*fields,))
    )
    federation = Federation(dataset, own, {name: np.empty(0, int) for name in own}, own)
    options = {"features": features.shape[1], "classes": 2, "fields": tuple(fields), "ranges": ranges}
    return federation, options | {"df": 2.2, "site_df": 3.0, "knots": 10}


def chosen(model, choices):
    """Return the names of choices, as the authors have them."""
    kinds = {"spline": "spline", "onehot": "onehot"}
    names = [f"{each.column}-{kinds[each.kind]}-{who}" for who in ("shared", "site") for each in model.learners]
    return [names[int(choice)] for choice in choices]


def hashed(names):
    """Return the SHA-256 of some choices."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()
