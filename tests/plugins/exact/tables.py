"""Data and models for tests of exact models."""

import gzip

import numpy as np
import torch

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description, Field
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.simulation import simulate


def shared_out(features, targets, *, classes, peers, seed=0, validation=0.0, dtype=torch.float32):
    """Return the federation of peers of very different size that hold all samples; all of them are also the test part.

    With more than four peers one of them has no sample.
    """
    rng = np.random.default_rng(seed)
    count = len(targets)
    held = int(count * validation)
    order = rng.permutation(count)
    names = topology.ring(peers).peers
    shares = rng.dirichlet(np.full(peers, 0.5))
    if peers > 4:
        shares[2] = 0.0
    owner = rng.choice(peers, size=count, p=shares / shares.sum())
    parts = {"train": order[held:], "validation": order[:held]}
    found = {
        part: {name: np.sort(where[owner[where] == number]) for number, name in enumerate(names)}
        for part, where in parts.items()
    }
    kind = dtype if classes is None else torch.int64
    raw = torch.as_tensor(np.asarray(features), dtype=dtype)
    lacking = Description(columns=tuple(Field(f"x{number}", missing=np.nan) for number in range(raw.shape[1])))
    description = lacking if raw.isnan().any() else Description()
    dataset = Dataset(raw, torch.as_tensor(np.asarray(targets)).to(kind), classes, description=description)
    return Federation(dataset, found["train"], found["validation"], dict.fromkeys(names, np.arange(count)))


def trained(model, federation, *, rounds, peer="all"):
    """Return the learner of the pooled data and its model after some rounds, as tensors."""
    learner = ExactLearner(model, federation.pooled(peer))
    rows = learner.start([peer])
    for round in range(rounds):
        rows = learner.fit(rows, peers=[peer], round=round).rows
    return learner, learner.tensors(rows[0])


def masked_as_pooled(model, federation, graph, *, rounds):
    """Check that peers under masks end with the model of their pooled data, bit for bit, and return its tensors."""
    _, pooled = trained(model, federation, rounds=rounds)
    privacy = Pairwise(mask_graph="complete")
    run = simulate(Exact(), ExactLearner(model, federation), graph, rounds=rounds, privacy=privacy, baselines=False)
    assert {*run.models} == {*graph.peers}
    for peer, tensors in run.models.items():
        for name, value in pooled.items():
            assert np.array_equal(tensors[name].numpy(), value), (peer, name)
    return pooled


def played(learner, row, peer):
    """Return the sizes of the totals of a round that a peer plays alone, and its result."""
    sizes = []

    def counted(asking):
        total = None
        while True:
            try:
                question = next(asking) if total is None else asking.send(total)
            except StopIteration as stop:
                return stop.value
            sizes.append(question.size)
            total = question.answer(peer)

    return sizes, counted(learner.asking(row, round=0))


def adult(folder):
    """Return Adult's features, in which a category is the number of its level, and whether a person earns much."""
    lines = (folder / "adult" / "adult.data").read_text().strip().splitlines()
    head, *rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
    table = np.array(rows, dtype=object)
    columns = []
    for name, column in zip(head[:-1], table[:, :-1].T, strict=True):
        del name
        try:
            columns.append(column.astype(np.float64))
        except ValueError:
            columns.append(np.unique(column.astype(str), return_inverse=True)[1].astype(np.float64))
    return np.stack(columns, axis=1), (table[:, -1].astype(str) == np.unique(table[:, -1].astype(str))[1]).astype(int)


ADULT = {
    "age": [17, 90],
    "fnlwgt": [0, 1_500_000],
    "education_num": [0.5, 16.5],
    "capital_gain": [0, 100_000, "log"],
    "capital_loss": [0, 5_000, "log"],
    "hr_per_week": [0, 100],
}
"""Widely known bounds of age, weight, years of education, capital gain and loss, and hours a week."""


def adult_columns(folder):
    """Return Adult's features with one for each level, as a table gives them, targets, and columns."""
    features, targets = adult(folder)
    names = (folder / "adult" / "adult.data").read_text().split("\n", 1)[0].strip().split(",")[:-1]
    columns, fields = [], []
    for name, column in zip(names, features.T, strict=True):
        count = int(column.max()) + 1
        hot = name not in ADULT
        columns.append(np.eye(count)[column.astype(int)] if hot else column[:, None])
        fields.append(Field(name, tuple(map(str, range(count)))) if hot else Field(name))
    return np.concatenate(columns, axis=1).astype(np.float32), targets, tuple(fields)


def a9a(folder, part):
    """Return features ``[n, 123]`` and classes of a file of a9a."""
    rows, targets = [], []
    with gzip.open(folder / "a9a" / f"a9a_horizontal_{part}.gz", "rt") as file:
        for line in file:
            label, *pairs = line.split()
            targets.append(int(float(label) > 0))
            row = np.zeros(123, np.float32)
            for pair in pairs:
                number, _, value = pair.partition(":")
                row[int(number) - 1] = float(value)
            rows.append(row)
    return np.stack(rows), np.array(targets)
