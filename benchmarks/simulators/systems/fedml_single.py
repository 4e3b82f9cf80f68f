"""FedML: federated averaging in its simulator of one process, without reports to the servers of its vendor."""

from importlib.metadata import version
from types import SimpleNamespace
from unittest.mock import Mock

import torch
from fedml.simulation.sp.fedavg import fedavg_api
from task import TASK, accuracy, build, client, now, report, sizes, test
from torch.utils.data import DataLoader, TensorDataset


class Loaders:
    """Loaders of the samples of clients, which are made where they train."""

    def __getitem__(self, number: int) -> DataLoader:
        return DataLoader(TensorDataset(*client(number)), batch_size=TASK.batch, shuffle=True)


class Scored(fedavg_api.FedAvgAPI):
    """Federated averaging that scores the common model on the test set, as the task asks for, and no clients."""

    score = 0.0

    def _local_test_on_all_clients(self, round_idx: int) -> None:
        if (round_idx + 1) % TASK.every == 0 or round_idx + 1 == TASK.rounds:
            self.score = accuracy(self.model)


fedavg_api.mlops = Mock()
test()
client(0)
begun = now()
arguments = SimpleNamespace(
    dataset="cifar10",  # of whose kind the trainer is: pictures of classes
    client_num_in_total=TASK.clients,
    client_num_per_round=TASK.cohort,
    comm_round=TASK.rounds,
    frequency_of_the_test=1,
    epochs=1,
    batch_size=TASK.batch,
    client_optimizer="sgd",
    learning_rate=TASK.rate,
    enable_wandb=False,
)
nothing = dict.fromkeys(range(TASK.clients))
data = [sum(sizes()), TASK.tested, None, None, dict(enumerate(sizes())), Loaders(), nothing, TASK.classes]
api = Scored(arguments, torch.device("cpu"), data, build())
api.train()
report(api.score, begun=begun, ended=now(), version=version("fedml"))
