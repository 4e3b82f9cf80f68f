"""Experiments of peers that hold different columns of the same people."""

LINEAR = {
    "name": "columns",
    "seed": 7,
    "rounds": 1,
    "topology": {"kind": "complete", "peers": ["ada", "bob", "cleo", "eve"]},
    "data": {
        "name": "diabetes",
        "split": "columns",
        "split_options": {"label": "bob", "helper": "cleo"},
        "test": 0.3,
    },
    "model": {"name": "glm", "options": {"family": "gaussian"}},
    "privacy": {"mode": "pairwise"},
}


def changed(**sections):
    """Return the linear experiment with other keys in some sections."""
    return LINEAR | {name: {**LINEAR.get(name, {}), **value} for name, value in sections.items()}


PARTIES = ("ada", "bob", "eve")
