"""Learners of a user's own: the loop of scikit-learn, and one like that of Hugging Face."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

import p2pfl
from composed import CLASSES, FEATURES, TABLE, Linear


@dataclass
class Sklearn:
    """A user's own learner in scikit-learn: one row is the coefficients and intercepts of an SGDClassifier."""

    federation: p2pfl.data.Federation
    epochs: int = 1
    models: dict = field(default_factory=dict)

    def model(self, row, peer):
        from sklearn.linear_model import SGDClassifier  # noqa: PLC0415 (an extra)

        _, y = self.part(peer, "train")
        found = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, random_state=3, shuffle=False)
        found.partial_fit(np.zeros((1, FEATURES)), y[:1], classes=np.arange(CLASSES))
        numbers = row.double().numpy().reshape(CLASSES, FEATURES + 1)
        found.coef_, found.intercept_ = numbers[:, :-1].copy(), numbers[:, -1].copy()
        return found

    def part(self, peer, part):
        where, data = getattr(self.federation, part)[peer], self.federation.dataset
        return data.features[where].double().numpy(), data.targets[where].numpy()

    def train(self, row, *, peer, round):
        del round
        found, (x, y) = self.model(row, peer), self.part(peer, "train")
        for _ in range(self.epochs):
            found.partial_fit(x, y)
        return torch.from_numpy(np.column_stack([found.coef_, found.intercept_])).flatten().to(row.dtype)

    def score(self, row, peer):
        return {"accuracy": self.model(row, peer).score(*self.part(peer, "test"))}


def sklearn_learner(federation, epochs=1):
    """Return the learner that ``learning.learner`` names."""
    pytest.importorskip("sklearn")
    loop = Sklearn(federation, epochs)
    sizes = {peer: len(federation.train[peer]) for peer in federation.peers}
    start = torch.zeros(CLASSES * (FEATURES + 1), dtype=torch.float64)
    return p2pfl.ExternalLearner(loop.train, start=start, samples=sizes, evaluate=loop.score)


def loop_with_data(peers):
    """Return a learner that reads its data itself."""
    return p2pfl.ExternalLearner(lambda row, **_: row, start=torch.zeros(3), samples=dict.fromkeys(peers, 5))


class Trainer:
    """A training loop like that of Hugging Face: it has the model, the data and the arguments, and ``train()``."""

    def __init__(self, *, model, args, train_dataset):
        self.model, self.args, self.data = model, args, train_dataset

    def train(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args["learning_rate"])
        for _ in range(self.args["num_train_epochs"]):
            for batch in torch.utils.data.DataLoader(self.data, batch_size=8, shuffle=False):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1]).backward()
                optimizer.step()


def trainer_learner(federation, model, rate, epochs, weight="none"):
    """Return the learner that ``learning.learner`` names; ``weight`` is an option of its own."""
    del weight
    layout = p2pfl.TorchLearner(model, federation, rate=rate).layout
    data = federation.dataset

    def loaded(row):
        torch.nn.utils.vector_to_parameters(row.clone(), model.parameters())
        return model

    def train(row, *, peer, round):
        del round
        own = federation.train[peer]
        args = {"learning_rate": rate, "num_train_epochs": epochs}
        dataset = torch.utils.data.TensorDataset(data.features[own], data.targets[own])
        Trainer(model=loaded(row), args=args, train_dataset=dataset).train()
        return torch.nn.utils.parameters_to_vector(model.parameters()).detach()

    def score(row, peer):
        held = federation.test[peer]
        right = loaded(row)(data.features[held]).argmax(1) == data.targets[held]
        return {"accuracy": float(right.double().mean())}

    sizes = {peer: len(federation.train[peer]) for peer in federation.peers}
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    return p2pfl.ExternalLearner(train, start=start, samples=sizes, evaluate=score, layout=layout)


def made(kind, federation):
    model = Linear()
    return sklearn_learner(federation, 2) if kind == "sklearn" else trainer_learner(federation, model, 0.01, 2)


OWN = {
    "sklearn": {"learner": f"{__name__}:sklearn_learner", "epochs": 2},
    "trainer": {"learner": f"{__name__}:trainer_learner", "epochs": 2, "rate": 0.01},
}
KINDS = pytest.mark.parametrize("kind", OWN)


def own_table(kind):
    table = TABLE | {"learning": OWN[kind]}
    return table if kind == "trainer" else {key: value for key, value in table.items() if key != "model"}
