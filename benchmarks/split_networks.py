"""Split networks: halves of pictures at two parties, and what gradients tell of labels.

    python -m benchmarks.split_networks [--data DIR] [--images 20000] [--epochs 5] [--credit]

MNIST: BOB has the left halves and the classes, ADA the right halves. `alone` is a network of BOB's halves, `together`
the split network, `pooled` one network of whole pictures, and `without ada` the split network with zeros for ADA's
part; one line without and one with party-wise dropout (`absent = 0.25`). Bytes are those of the embeddings and
gradients that both send, before seals. Seconds are processor time of the split network, all peers in one thread.

Credit (default of credit cards, as FATE splits it; 20,000 rows to train, 10,000 to test): the AUC of the split network,
and that of ADA's guesses of labels from the sums of its gradients after 1, 2, 5 and 10 epochs, with and without
randomised response. ADA knows 400 labels.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch

from p2pfl.data.data_description import Description
from p2pfl.data.loader import source_of
from p2pfl.data.parties import Parties, Party
from p2pfl.learning.additive import add_up, answer_questions
from p2pfl.learning.steps.optimisers import Recipe
from p2pfl.plugins.audit.label_attacks import play_leaks
from p2pfl.plugins.vertical.party_network import SplitSteps
from p2pfl.plugins.vertical.split_learner import SplitLearner
from p2pfl.plugins.vertical.split_network import SplitNetwork
from p2pfl.privacy.keys import SeededSource

PEERS = ("ada", "bob", "cleo")
SEED = 3


def parties(ada, bob, target, classes):
    """Return two parties that have the same rows in the same order."""
    keys = (tuple(map(str, range(len(target)))),)
    own = {"ada": Party(ada, keys), "bob": Party(bob, keys, Description(classes=classes), target)}
    return Parties(("ada", "bob"), "bob", "cleo", ("row:exact",), own, 50)


def halves(folder, images):
    """Return the left and right halves of the first pictures and of the 10,000 official test pictures."""
    source = source_of("mnist", folder, {})
    chosen = np.r_[:images, 60_000:70_000]
    pictures = source.encode(chosen, chosen)[0].reshape(len(chosen), 28, 28)
    left, right = (half.reshape(len(chosen), -1).astype(np.float64) for half in np.split(pictures, 2, axis=2))
    return parties(right, left, source.targets[chosen].astype(np.int64), tuple("0123456789"))


def credit(folder):
    """Return the tables of default of credit cards, as FATE splits them."""
    tables = {
        peer: np.loadtxt(folder / "vertical" / "default_credit_hetero" / f"{peer}.csv", delimiter=",", skiprows=1)
        for peer in ("ada", "bob")
    }
    ada, bob = (table[np.argsort(table[:, 0])] for table in tables.values())
    return parties(ada[:, 1:], bob[:, 2:], bob[:, 1].astype(np.int64), ("no", "yes"))


def learner(held, model, *, test, rounds, rate, batch):
    """Return the learner of both parties."""
    steps = SplitSteps(Recipe("adam", rate), batch=batch, seed=SEED, absent=model.absent)
    made = SplitLearner(held, model, peers=PEERS, run="benchmark", seed=SEED, test=test, steps=steps, rounds=rounds)
    return made.drawing(SeededSource(SEED))


def play(learning, *, rounds):
    """Return the models of all peers after some rounds, and the bytes that parties have sent to each other."""
    rows, sent = learning.start(PEERS), 0

    def total(question):
        nonlocal sent
        if question.to is not None:
            sent += 8 * question.size * len(question.to.among or PEERS)
        return add_up(question, PEERS)

    for round in range(rounds):
        step = answer_questions(learning.asking_from(rows, peers=PEERS, round=round), total)
        rows = torch.stack([step.own(peer) for peer in PEERS])
    return dict(zip(PEERS, rows, strict=True)), sent


def compare_halves(folder, *, images, epochs):
    """Print the accuracy on halves of pictures."""
    held = halves(folder, images)
    print(f"MNIST halves, {images:,} pictures, {epochs} epochs: accuracy on 10,000 others")
    for absent in (0.0, 0.25):
        began = time.process_time()
        model = SplitNetwork(labels="shown", width=64, hidden=(128,), standardise=False, absent=absent)
        learning = learner(held, model, test=10_000 / (images + 10_000), rounds=epochs, rate=1e-3, batch=64)
        models, sent = play(learning, rounds=epochs)
        taken = time.process_time() - began
        together = learning.evaluate(models["bob"][None], peers=["bob"])["accuracy"][0]
        line = f"absent = {absent:4}: together {together:.4f}"
        line += f", without ada {learning.scores_without_others(models)['accuracy']:.4f}"
        if not absent:
            compared = learning.baselines(models)
            line += f", alone {compared.alone['bob']['accuracy']:.4f}, pooled {compared.pooled['accuracy']:.4f}"
        print(f"{line} ({taken:.0f} s, {sent / 1e6:.0f} MB)", flush=True)


def compare_labels(folder):
    """Print what gradients tell of labels of credit, and what protection costs."""
    held, epochs = credit(folder), 10
    print("credit, 20,000 rows, 10 epochs: AUC of the network, and of ada's guesses after 1, 2, 5 and 10 epochs")
    for epsilon in (None, 1.0, 2.0):
        labels = {"labels": "shown"} if epsilon is None else {"label_epsilon": epsilon}
        learning = learner(held, SplitNetwork(**labels), test=1 / 3, rounds=epochs, rate=1e-3, batch=512)
        played = play_leaks(learning, "ada", rounds=epochs)
        scores = learning.evaluate(played.rows[1:2], peers=["bob"])
        leaks = ", ".join(f"{played.aucs[epoch - 1][0]:.3f}" for epoch in (1, 2, 5, 10))
        print(f"epsilon = {epsilon}: {scores['auc'][0]:.4f}; {leaks}", flush=True)


def main(arguments):
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("P2PFL_DATA", "data")))
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--credit", action="store_true", help="what gradients tell of labels, in place of pictures")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if given.credit:
        compare_labels(given.data)
    else:
        compare_halves(given.data, images=given.images, epochs=given.epochs)


if __name__ == "__main__":
    main(sys.argv[1:])
