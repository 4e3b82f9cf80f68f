"""A consumer of saved models that knows ``model.json`` and nothing of p2pfl, for tests."""

import json
import re

import torch
from safetensors import safe_open


class Saved:
    """A linear model from one ``NAME.safetensors``, which takes raw features as its metadata say.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path):
        with safe_open(path, "pt") as file:
            self.metadata = file.metadata()
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
        self.about = json.loads(self.metadata["p2pfl"])

    def inputs(self, rows):
        """What the model takes for raw rows: cells in the order of the columns, or arrays of numbers."""
        wanted = self.about["inputs"]
        if any(column["levels"] for column in wanted["columns"] or ()):
            rows = [
                [number for cell in zip(wanted["columns"], row, strict=True) for number in code(*cell, wanted["cells"])]
                for row in rows
            ]
        encoded = torch.tensor(rows, dtype=torch.float64).flatten(1)
        mean, deviation = (torch.tensor(wanted[name], dtype=torch.float64) for name in ("mean", "deviation"))
        return ((encoded - mean) / deviation).float().reshape(-1, *wanted["shape"])

    def outputs(self, rows):
        """What the model says: a score for each class, or a number in the unit of the target."""
        weight, bias = self.tensors["1.weight"], self.tensors["1.bias"]
        found = self.inputs(rows).flatten(1).to(weight.dtype) @ weight.T + bias
        told = self.about["outputs"]
        return found if told["classes"] else (found * told["deviation"] + told["mean"]).squeeze(1)

    def accuracy(self, rows, labels):
        """The share of rows whose class is the one that the class names say."""
        names = self.about["outputs"]["class_names"]
        likeliest = self.outputs(rows).argmax(1).tolist()
        return sum(names[found] == label for found, label in zip(likeliest, labels, strict=True)) / len(labels)

    def r2(self, rows, targets):
        """The coefficient of determination in the unit of the target."""
        targets = torch.tensor(targets, dtype=torch.float64)
        residual = (self.outputs(rows) - targets).square().sum()
        return float(1 - residual / (targets - targets.mean()).square().sum())


def code(column, cell, read):
    """The numbers of one cell of a table, after the rules of its column."""
    levels, unknown = column["levels"], column["unknown"]
    cell = cell.strip() if read["stripped"] else cell
    cell = column["missing"] if cell.lower() in read["missing"] else cell
    if levels is None:
        return [float(cell)]
    if cell not in levels:
        whole = re.sub(r"\.0*$", "", cell)  # a whole number such as 1.0 is the level 1
        cell = whole if whole in levels else levels[levels.index(unknown)]  # an error without the rule `unknown`
    return [float(cell == level) for level in levels]
