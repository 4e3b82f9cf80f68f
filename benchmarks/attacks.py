"""Accuracy of honest peers under each attack with each rule, 20 % of the peers lying, on handwritten digits.

    python -m benchmarks.attacks [--seeds 3] [--write]

Twenty peers on a random regular graph of degree 10, one exchange a round; who lies, the graph, the split and the start
follow from the seed. Every rule tolerates four, which are all the attackers.
With --write the tables go into docs/notes/attacks.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
from pathlib import Path

from p2pfl.simulation import simulate

PAGE = Path(__file__).parent.parent / "docs" / "notes" / "attacks.md"
SPLITS = {
    "All peers' data alike (IID)": {"split": "iid"},
    "Peers' data differ (Dirichlet, alpha 0.5)": {"split": "dirichlet", "split_options": {"alpha": 0.5}},
}
ATTACKS = {
    "no attackers": {},
    "sign flip, c = 4": {"name": "sign_flip", "scale": 4.0},
    "scaled, c = 30": {"name": "scaled", "scale": 30.0},
    "random, c = 1": {"name": "random"},
    "label flip": {"name": "label_flip"},
    "a little is enough, c = 1.5": {"name": "alie", "scale": 1.5},
    "inner product, c = 0.1": {"name": "ipm"},
    "inner product, c = 4": {"name": "ipm", "scale": 4.0},
    "dissensus, c = 1": {"name": "dissensus"},
}
RULES = {
    "plain average": {},
    "Clipped-Gossip": {"rule": "clipped_gossip", "options": {"attackers": 4}},
    "self-centred clipping, radius 0.5": {"rule": "self_centred_clipping", "options": {"attackers": 4, "radius": 0.5}},
    "trimmed mean": {"rule": "trimmed_mean", "options": {"attackers": 4}},
    "median": {"rule": "median", "options": {"attackers": 4}},
    "Krum": {"rule": "krum", "options": {"attackers": 4}},
    "multi-Krum": {"rule": "multi_krum", "options": {"attackers": 4}},
    "NNM, trimmed mean": {"rule": "trimmed_mean", "options": {"attackers": 4, "nearest": True}},
}


def accuracy(split, attack, rule, *, seed: int) -> float:
    """Mean accuracy of the honest peers after the last round."""
    table = {
        "seed": seed,
        "rounds": 30,
        "topology": {"kind": "random_regular", "peers": 20, "degree": 10},
        "data": {"name": "digits", **split},
        "model": {"name": "mlp", "hidden": [32]},
        "learning": {"weighted": False, "device": "cpu", "epochs": 3},
        "gossip": {"steps": 1},
        "robustness": rule,
        "attack": attack and {**attack, "peers": 0.2},
    }
    return float(simulate(table, baselines=False).summary["together"])


def rows(split, *, seeds: int):
    """One line of the table after the other: medians over the seeds."""
    yield "| | " + " | ".join(RULES) + " |"
    yield "| --- |" + " --- |" * len(RULES)
    for name, attack in ATTACKS.items():
        found = [
            statistics.median(accuracy(split, attack, rule, seed=seed) for seed in range(seeds))
            for rule in RULES.values()
        ]
        yield f"| {name} | " + " | ".join(f"{value:.3f}" for value in found) + " |"


def written(page: str, tables: str) -> str:
    """The page with other tables."""
    return re.sub(r"(?<=<!-- tables -->\n).*(?=<!-- end -->)", lambda _: tables, page, flags=re.DOTALL)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="medians are over this many")
    parser.add_argument("--write", action="store_true", help="also into docs/notes/attacks.md")
    options = parser.parse_args()
    tables = []
    for title, split in SPLITS.items():
        tables += [f"\n### {title}\n"]
        print(tables[-1], flush=True)
        for line in rows(split, seeds=options.seeds):
            print(line, flush=True)
            tables.append(line)
    if options.write:
        PAGE.write_text(written(PAGE.read_text("utf-8"), "\n".join(tables) + "\n\n"), "utf-8")


if __name__ == "__main__":
    main()
