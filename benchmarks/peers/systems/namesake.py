"""The p2pfl of the package index: averages of all peers on a ring, in memory, with the settings of its own examples."""

import sys
from importlib.metadata import version

import lightning
import torch
from datasets import Dataset, DatasetDict
from p2pfl.communication.protocols.protobuff.memory import MemoryCommunicationProtocol
from p2pfl.learning.dataset.p2pfl_dataset import P2PFLDataset
from p2pfl.learning.frameworks.pytorch.lightning_model import LightningModel
from p2pfl.node import Node
from p2pfl.utils.topologies import TopologyFactory, TopologyType
from p2pfl.utils.utils import set_standalone_settings, wait_convergence, wait_to_finish
from task import BATCH, EPOCHS, RATE, ROUNDS, build, load, now, report

LIMIT = 280


class Net(lightning.LightningModule):
    """The model of the task."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        return self.inner(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=RATE)

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
        """Return the loss of a batch."""
        del number
        return torch.nn.functional.cross_entropy(self(batch["x"]), batch["y"])

    def test_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
        """Return the loss of a batch."""
        loss = self.training_step(batch, number)
        self.log("test_loss", loss)
        return loss


def main() -> None:
    """Start the nodes, connect them to a ring, and learn."""
    set_standalone_settings()
    task = load()
    x, y = task.test
    tests = Dataset.from_dict({"x": x[:1].numpy(), "y": y[:1].numpy()})  # it evaluates in each round
    nodes = []
    for index, shard in enumerate(task.shards):
        rows = Dataset.from_dict({"x": shard[0].numpy(), "y": shard[1].numpy()})
        data = P2PFLDataset(DatasetDict({"train": rows, "test": tests}), batch_size=BATCH)
        nodes.append(Node(LightningModel(Net()), data, protocol=MemoryCommunicationProtocol(), addr=f"node-{index}"))
        nodes[-1].start()
    TopologyFactory.connect_nodes(TopologyFactory.generate_matrix(TopologyType.RING, len(nodes)), nodes)
    wait_convergence(nodes, len(nodes) - 1, only_direct=False, wait=60)
    begun = now()
    nodes[0].set_start_learning(rounds=ROUNDS, epochs=EPOCHS)
    wait_to_finish(nodes, timeout=LIMIT)
    ended = now()
    models = [node.learner.get_model().get_model().inner for node in nodes]
    report(task, models, begun=begun, ended=ended, version=version("p2pfl"))
    for node in nodes:
        node.stop()
    sys.exit(0)


if __name__ == "__main__":
    main()
