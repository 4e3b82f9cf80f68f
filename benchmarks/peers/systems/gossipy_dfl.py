"""gossipy: push-pull gossip learning on a ring, simulated.

Its release imports torchvision without declaring it, only to download images; an empty module takes its place.
"""

import sys
import types
from importlib.metadata import version

import networkx as nx
import torch
from task import BATCH, EPOCHS, RATE, ROUNDS, build, load, now, report

sys.modules["torchvision"] = types.ModuleType("torchvision")

from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork  # noqa: E402
from gossipy.data import DataDispatcher  # noqa: E402
from gossipy.data.handler import ClassificationDataHandler  # noqa: E402
from gossipy.model import TorchModel  # noqa: E402
from gossipy.model.handler import TorchModelHandler  # noqa: E402
from gossipy.node import GossipNode  # noqa: E402
from gossipy.simul import GossipSimulator  # noqa: E402


class Net(TorchModel):
    """The model of the task."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build()

    def init_weights(self) -> None:
        """Keep the initial parameters, which are those of all systems."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        return self.inner(x)


task = load()
count, delta = len(task.shards), 100
x, y = (torch.cat(each) for each in zip(*task.shards, strict=True))
handler = ClassificationDataHandler(x, y, x[:0], y[:0], test_size=0)
dispatcher = DataDispatcher(handler, n=count, eval_on_user=False, auto_assign=False)
ends = [0]
for shard in task.shards:
    ends.append(ends[-1] + len(shard[1]))
dispatcher.set_assignments([list(range(ends[i], ends[i + 1])) for i in range(count)], None)
ring = StaticP2PNetwork(count, topology=nx.to_numpy_array(nx.cycle_graph(count)))
nodes = {
    i: GossipNode(
        idx=i,
        data=dispatcher[i],
        round_len=delta,
        model_handler=TorchModelHandler(
            net=Net(),
            optimizer=torch.optim.SGD,
            optimizer_params={"lr": RATE},
            criterion=torch.nn.functional.cross_entropy,
            local_epochs=EPOCHS,
            batch_size=BATCH,
            create_model_mode=CreateModelMode.MERGE_UPDATE,
        ),
        p2p_net=ring,
        sync=True,
    )
    for i in range(count)
}
simulator = GossipSimulator(nodes, dispatcher, delta=delta, protocol=AntiEntropyProtocol.PUSH_PULL)
begun = now()
simulator.init_nodes(seed=0)
simulator.start(n_rounds=ROUNDS)
ended = now()
models = [nodes[i].model_handler.model for i in range(count)]
report(task, models, begun=begun, ended=ended, version=version("gossipy-dfl"))
