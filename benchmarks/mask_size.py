"""What a mask hides from a neighbour, and what one peer's death costs while its masks are not cancelled.

    python -m benchmarks.mask_size [--seeds 3]

The deviation of a mask is a multiple k of u, the root mean square of an update that public numbers allow
(:func:`p2pfl.privacy.mask_size.update_size`). A curious neighbour knows the mask that it shares with the peer and
subtracts it; the peer has one more honest mask partner, which is the least that a ring offers. The row "default" is
what ``privacy.mask`` is where an experiment leaves it out. The columns are:

cosine
    Cosine between the peer's update and what the neighbour reads, mean over peers and rounds. 1 is the exact update.
labels
    Correlation between the class frequencies of a peer's training data and the update of the output biases that the
    neighbour reads in the first round, mean over peers. The biases of the output layer follow the frequencies of the
    classes, so this is the simplest property of private data that an update shows.
died, after 5
    Accuracy of the survivors, minus the same without masks, after the round in which one peer dies between masking
    and sending, and five rounds later.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
import torch

import p2pfl
from p2pfl.experiment.parts.learner_parts import expected_update

MULTIPLES = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, None)
SWARMS = (("ring", 3), ("small_world", 8), ("ring", 16))
DEATH = 12
"""The round in which a peer dies: training is well under way, and the models still improve."""


def table(kind: str, peers: int, *, seed: int):
    """The experiment of one row."""
    return p2pfl.read(
        {
            "seed": seed,
            "rounds": DEATH + 6,
            "topology": {"kind": kind, "peers": peers, "degree": 4},
            "data": {"name": "digits", "split": "dirichlet", "split_options": {"alpha": 0.3}},
            "learning": {"rate": 0.2, "epochs": 5},
            "privacy": {"mode": "pairwise"},
        }
    )


def mixed(released: torch.Tensor, plan, here: np.ndarray) -> torch.Tensor:
    """Gossip among the peers that are here, whose missing neighbours' weight stays with them."""
    weights = plan.weights[0].matrix.toarray() * here[:, None] * here[None, :]
    np.fill_diagonal(weights, np.diag(weights) + 1 - weights.sum(axis=1))
    for _ in range(plan.gossip.steps):
        released = torch.from_numpy(weights).to(released) @ released
    return released


def curves(plan, *, deviation: float, seed: int) -> tuple[list[float], list[torch.Tensor]]:
    """Accuracy of the survivors after each round, and the updates of each round."""
    learner, peers = plan.learner, plan.topology.peers
    rows, generator = learner.start(peers), torch.Generator().manual_seed(seed)
    here = np.ones(len(peers), bool)
    accuracies, updates = [], []
    for round in range(plan.experiment.rounds):
        fitted = learner.fit(rows, peers=peers, round=round).rows
        updates.append(fitted - rows)
        if round == DEATH:  # the last peer has masked with its partners, and sends nothing
            here[-1] = False
            for a, b in plan.protection.graph.edges:
                noise = deviation * torch.randn(fitted.shape[1], generator=generator)
                fitted[peers.index(a)] += noise
                fitted[peers.index(b)] -= noise
        rows = mixed(fitted, plan, here)
        scores = learner.evaluate(rows, peers=peers)["accuracy"][torch.from_numpy(here)]
        accuracies.append(float(scores.mean()))
    return accuracies, updates


def read(updates: list[torch.Tensor], plan, *, deviation: float, seed: int) -> tuple[float, float]:
    """What a neighbour reads under one remaining mask: cosine, and the correlation with class frequencies."""
    generator, peers = torch.Generator().manual_seed(seed + 1), plan.topology.peers
    seen = [each + deviation * torch.randn(each.shape, generator=generator) for each in updates]
    cosines = [float(torch.cosine_similarity(a, b, dim=1).mean()) for a, b in zip(seen, updates, strict=True)]
    classes = plan.federation.dataset.classes
    found = []
    for row, peer in zip(seen[0][:, -classes:], peers, strict=True):
        labels = plan.federation.dataset.targets[plan.federation.train[peer]]
        frequencies = np.bincount(labels.numpy(), minlength=classes)
        found.append(float(np.corrcoef(frequencies, row.numpy())[0, 1]))
    return statistics.mean(cosines), statistics.mean(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    print("| peers | k | deviation | cosine | labels | died | after 5 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind, peers in SWARMS:
        plans = [p2pfl.plan(table(kind, peers, seed=seed)) for seed in seeds]
        plain = [curves(plan, deviation=0.0, seed=seed)[0] for plan, seed in zip(plans, seeds, strict=True)]
        for multiple in MULTIPLES:
            cells = []
            for plan, seed, base in zip(plans, seeds, plain, strict=True):
                samples = plan.federation.samples(plan.topology.peers).double().mean()
                update = expected_update(
                    plan.experiment, plan.asked.algorithm, plan.learner, mean_samples=float(samples)
                )
                deviation = plan.protection.settings.mask if multiple is None else multiple * update
                accuracy, updates = curves(plan, deviation=deviation, seed=seed)
                cosine, labels = read(updates, plan, deviation=deviation, seed=seed)
                died, after = accuracy[DEATH] - base[DEATH], accuracy[-1] - base[-1]
                cells.append((deviation / update, deviation, cosine, labels, died, after))
            k, *medians = [statistics.median(column) for column in zip(*cells, strict=True)]
            name = f"default, {k:.1f}" if multiple is None else f"{k:.0f}"
            print(f"| {peers} | {name} | " + " | ".join(f"{value:.3f}" for value in medians) + " |", flush=True)


if __name__ == "__main__":
    main()
