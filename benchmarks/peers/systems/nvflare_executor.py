"""The executor of the clients of nvflare, which its simulator imports in their processes."""

import os
import time

import torch
from nvflare.app_opt.p2p.executors.distributed_gradient_descent import DGDExecutor
from task import BATCH, build, load
from torch.utils.data import DataLoader, TensorDataset


class DigitsExecutor(DGDExecutor):
    """Gradient descent of one client on its shard."""

    def __init__(self) -> None:
        super().__init__(build(), torch.nn.CrossEntropyLoss())
        self.model, self.shards = build(), load(os.environ["P2PFL_TASK"]).shards

    def run_algorithm(self, fl_ctx, shareable, abort_signal) -> None:
        """Run all iterations, and note when they began and ended."""
        begun = time.time()
        super().run_algorithm(fl_ctx, shareable, abort_signal)
        found = {"begun": begun, "ended": time.time(), "model": self.model.state_dict()}
        torch.save(found, f"{os.environ['P2PFL_FOUND']}/{self.client_name}.pt")

    def _pre_algorithm_run(self, fl_ctx, shareable, abort_signal) -> None:
        shard = TensorDataset(*self.shards[self.id - 1])
        self.train_dataloader = DataLoader(shard, batch_size=BATCH, shuffle=True)
        self.test_dataloader = DataLoader(shard, batch_size=BATCH)
        super()._pre_algorithm_run(fl_ctx, shareable, abort_signal)
