"""Tables of parties that hold different columns of the same people."""

import csv

import numpy as np


def write_clinic(folder):
    """Write the tables of two parties with 280 people, and of 20 new ones, and return a logistic regression on them."""
    rng = np.random.default_rng(3)
    ada, bob = rng.normal(size=(300, 2)), rng.normal(size=(300, 2))
    ill = rng.random(300) < 1 / (1 + np.exp(-(ada @ [1.0, -1.0] + bob @ [0.5, 0.0])))
    tables = {"ada": (("crp", "iron"), ada), "bob": (("age", "days"), bob)}
    for place, people in (("", range(280)), ("new", range(280, 300))):
        (folder / place).mkdir(exist_ok=True)
        for name, (heads, values) in tables.items():
            with (folder / place / f"{name}.csv").open("w", newline="") as file:
                own = ["yes" if ill[who] else "no" for who in people] if name == "bob" else [""] * len(people)
                rows = [
                    [f"p{who}", *values[who], *filter(None, [label])]
                    for who, label in zip(people, own, strict=True)
                    if (name, who) != ("ada", 299)
                ]
                csv.writer(file).writerows([["id", *heads, *["ill"] * (name == "bob")], *rows])
    (folder / "ada.columns.toml").write_text('columns = { crp = "number", iron = "number" }')
    (folder / "bob.columns.toml").write_text(
        'target = "ill"\ncolumns = { age = "number", days = "number", ill = ["no", "yes"] }'
    )
    options = {"path": str(folder / "{peer}.csv"), "label": "bob", "helper": "cleo", "keys": [["id:text"]]}
    return {
        "name": "clinic",
        "rounds": 1,
        "topology": {"kind": "complete", "peers": ["ada", "bob", "cleo"]},
        "data": {"name": "vertical", "test": 0.2, "options": options},
        "model": {"name": "glm", "options": {"family": "binomial"}},
        "privacy": {"mode": "pairwise"},
    }
