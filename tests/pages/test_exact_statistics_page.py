"""The table of exact statistics in docs/protection.md is the list in the code, and the list covers what files hold."""

import json
import re
from pathlib import Path

from p2pfl.experiment import plan, read
from p2pfl.results.exact_statistics import EXACT_STATISTICS
from p2pfl.results.models.model_description import describe_model

PAGE = (Path(__file__).parents[2] / "docs" / "protection.md").read_text("utf-8")
TABLE = PAGE.partition("## Exact statistics, and who may see them")[2].partition("\n## ")[0]
PUBLIC = {
    *("version", "model", "constants", "task", "loss", "data", "formula"),
    *("inputs.raw", "inputs.shape", "inputs.cells", "inputs.whole", "inputs.declared"),
    *("inputs.columns.name", "inputs.columns.integer", "inputs.columns.range", "inputs.columns.outside_missing"),
    *("inputs.columns.codes", "inputs.columns.since", "inputs.columns.drop"),
    *("outputs.classes", "outputs.class_names", "outputs.target"),
}
"""Keys of ``model.json`` without numbers from the data: declaration, model and classes, which a card prints."""


def test_the_page_has_the_list_of_the_code():
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", TABLE, re.MULTILINE)[2:]
    assert rows == [(each.what, ", ".join(each.files), each.card) for each in EXACT_STATISTICS]


def test_every_key_of_a_description_is_public_or_an_exact_statistic(tmp_path):
    (tmp_path / "cells.csv").write_text("\n".join(["a,b,y", *(f"{n},{'xy'[n % 2]},{n / 7}" for n in range(30))]))
    options = {"path": str(tmp_path / "cells.csv"), "target": "y"}
    table = {"topology": {"peers": 3}, "data": {"name": "csv", "options": options}, "model": {"name": "linear"}}
    about = json.loads(json.dumps(describe_model(plan(read(table)))))
    keys = {key for key in about if key not in {"inputs", "outputs"}}
    keys |= {f"outputs.{key}" for key in about["outputs"]}
    keys |= {f"inputs.{key}" for key in about["inputs"] if key != "columns"}
    keys |= {f"inputs.columns.{key}" for column in about["inputs"]["columns"] for key in column}
    assert keys == PUBLIC | {key for each in EXACT_STATISTICS for key in each.keys}
