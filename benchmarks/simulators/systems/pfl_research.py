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
from task import TASK, accuracy, build, now, report, test
from task import client as samples

test()
samples(0)


class Scored(torch.nn.Module):
    """The model, with the loss and the scores that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build()

    def loss(self, features: torch.Tensor, classes: torch.Tensor, *, eval: bool = False) -> torch.Tensor:
        """Return the mean loss of a batch."""
        self.eval() if eval else self.train()
        return torch.nn.functional.cross_entropy(self.inner(features), classes)

    @torch.no_grad()
    def metrics(self, features: torch.Tensor, classes: torch.Tensor) -> dict[str, Weighted]:
        """Return the accuracy of a batch."""
        self.eval()
        right = int((self.inner(features).argmax(1) == classes).sum())
        return {"accuracy": Weighted(right, len(classes))}


def client(number: int) -> Dataset:
    """Return the data of one client."""
    return Dataset(raw_data=[*samples(number)], user_id=str(number))


torch.manual_seed(0)
np.random.seed(0)  # noqa: NPY002 (its samplers use this generator)
begun = now()
scored = Scored()
model = PyTorchModel(
    model=scored,
    local_optimizer_create=torch.optim.SGD,
    central_optimizer=torch.optim.SGD(scored.parameters(), lr=1.0),
)
clients = FederatedDataset(client, get_user_sampler("random", list(range(TASK.clients))))
evaluated = NNEvalHyperParams(local_batch_size=1000)
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=TASK.rounds,
        evaluation_frequency=TASK.every,
        train_cohort_size=TASK.cohort,
        val_cohort_size=0,
    ),
    backend=SimulatedBackend(training_data=clients, val_data=None),
    model=model,
    model_train_params=NNTrainHyperParams(
        local_learning_rate=TASK.rate, local_num_epochs=1, local_batch_size=TASK.batch
    ),
    model_eval_params=evaluated,
    callbacks=[CentralEvaluationCallback(Dataset(raw_data=[*test()]), evaluated, frequency=TASK.every)],
)
ended = now()
report(accuracy(scored.inner), begun=begun, ended=ended, version=version("pfl"))
