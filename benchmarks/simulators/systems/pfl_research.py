"""pfl: federated averaging in the simulator of pfl-research, one process."""

from importlib.metadata import version

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from task import BATCH, CLIENTS, COHORT, EVERY, RATE, ROUNDS, SAMPLES, accuracy, build, load, now, report

(x, y), test = load()


class Logistic(torch.nn.Module):
    """The model, with the loss and the scores that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = build()

    def loss(self, features: torch.Tensor, classes: torch.Tensor, *, eval: bool = False) -> torch.Tensor:
        """Return the mean loss of a batch."""
        self.eval() if eval else self.train()
        return torch.nn.functional.cross_entropy(self.linear(features), classes)

    @torch.no_grad()
    def metrics(self, features: torch.Tensor, classes: torch.Tensor) -> dict[str, Weighted]:
        """Return the accuracy of a batch."""
        right = int((self.linear(features).argmax(1) == classes).sum())
        return {"accuracy": Weighted(right, len(classes))}


def client(number: int) -> Dataset:
    """Return the data of one client."""
    own = slice(SAMPLES * number, SAMPLES * (number + 1))
    return Dataset(raw_data=[x[own], y[own]], user_id=str(number))


torch.manual_seed(0)
np.random.seed(0)  # noqa: NPY002 (its samplers use this generator)
begun = now()
logistic = Logistic()
model = PyTorchModel(
    model=logistic,
    local_optimizer_create=torch.optim.SGD,
    central_optimizer=torch.optim.SGD(logistic.parameters(), lr=1.0),
)
clients = FederatedDataset(client, get_user_sampler("random", list(range(CLIENTS))))
evaluated = NNEvalHyperParams(local_batch_size=1000)
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=ROUNDS, evaluation_frequency=EVERY, train_cohort_size=COHORT, val_cohort_size=0
    ),
    backend=SimulatedBackend(training_data=clients, val_data=None),
    model=model,
    model_train_params=NNTrainHyperParams(local_learning_rate=RATE, local_num_epochs=1, local_batch_size=BATCH),
    model_eval_params=evaluated,
    callbacks=[CentralEvaluationCallback(Dataset(raw_data=list(test)), evaluated, frequency=EVERY)],
)
ended = now()
report(accuracy(logistic.linear, test), begun=begun, ended=ended, version=version("pfl"))
