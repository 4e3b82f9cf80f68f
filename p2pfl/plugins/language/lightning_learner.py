""":class:`LightningLearner`: trainers and modules of Lightning as the learners of peers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from p2pfl.core.errors import ModelError
from p2pfl.plugins.language.adapters import Way
from p2pfl.plugins.language.module_learner import ModuleLearner, Trained, seeded_globals
from p2pfl.plugins.language.optimiser_memory import PeerMemory


class LightningLearner(ModuleLearner):
    """Learner whose peers train a ``LightningModule`` with a ``Trainer`` of Lightning.

    Trainer, module and data stay as they are: a call of ``fit`` is what a peer does in a round, so ``max_epochs``, with
    ``limit_train_batches``, is the work of a round. What Lightning would begin again at each call goes on: schedules of
    the learning rate, the numbers of epochs and steps, and the state of the optimiser where the algorithm keeps it, as
    D-PSGD does. Inside of the module, ``trainer.max_epochs`` and ``estimated_stepping_batches`` are those of all rounds
    when the optimiser is made.

    Scores are what ``validation_step`` logs, without the prefix ``val_``, and the loss first.

    Parameters
    ----------
    fits
        Arguments of ``Trainer.fit`` of each peer of this process: the trainer, the module and a
        ``LightningDataModule``. Peers may have the same module.
    rounds
        Rounds of the run, over which the learning rate is scheduled.
    seed
        Seed of batches and dropout; all peers have the same.
    adapters, rank
        As in :class:`p2pfl.plugins.language.module_learner.ModuleLearner`, as is the attribute ``factor_errors``.

    Raises
    ------
    ModelError
        The modules do not fit together, or a trainer does what cannot go on from round to round.
    """

    def __init__(
        self,
        fits: Mapping[str, tuple[Any, Any, Any]],
        *,
        rounds: int,
        seed: int = 0,
        adapters: Way = "factors",
        rank: int | None = None,
    ) -> None:
        self.trainers = {peer: trainer for peer, (trainer, _, _) in fits.items()}
        self.data = {peer: data for peer, (_, _, data) in fits.items()}
        modules = {peer: module for peer, (_, module, _) in fits.items()}
        for peer, trainer in self.trainers.items():
            check_trainer(trainer, modules[peer], peer)
            printing = trainer.progress_bar_callback
            trainer.callbacks = [each for each in trainer.callbacks if each is not printing]  # results go there
        self.epochs = {peer: int(trainer.max_epochs) for peer, trainer in self.trainers.items()}
        super().__init__(modules, rounds=rounds, seed=seed, adapters=adapters, rank=rank)

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples of each peer, ``[R]`` int64."""
        counts = []
        for peer in peers:
            data = self.data[peer]
            with self.alone, seeded_globals(self.seed):
                data.prepare_data()
                data.setup("fit")
                loader = data.train_dataloader()
            try:
                counts.append(len(loader.dataset))
            except (AttributeError, TypeError):
                raise ModelError(
                    f"train_dataloader of {peer} has no dataset with a length, and averages weigh by it; let it be one "
                    "DataLoader of such a data set"
                ) from None
        return torch.tensor(counts, dtype=torch.int64)  # [R]

    def run_trainer(self, memory: PeerMemory, *, peer: str, round: int, seed: int) -> Trained:
        """Fit the module of a peer for a round, by an optimiser that goes on from ``memory``."""
        del seed  # the global generators start from it
        trainer, module, epochs = self.trainers[peer], self.modules[peer], self.epochs[peer]
        losses: list[float] = []
        steps = 0

        def resume() -> None:
            nonlocal steps
            if len(trainer.optimizers) != 1:
                raise ModelError(
                    f"configure_optimizers of {peer} returns {len(trainer.optimizers)} optimisers; return one"
                )
            memory.write(trainer.optimizers[0], self.models[peer].parameters)
            steps = int(trainer.estimated_stepping_batches) // self.rounds
            number_steps(trainer, round * steps)
            trainer.fit_loop.max_epochs = (round + 1) * epochs
            for config in trainer.lr_scheduler_configs:
                advance(config, trainer, epochs=round * epochs, peer=peer)

        def note(outputs: Any) -> None:
            if outputs is not None and outputs.get("loss") is not None:
                losses.append(float(outputs["loss"]))

        loop = trainer.fit_loop
        loop.max_epochs = self.rounds * epochs
        loop.epoch_progress.reset()
        loop.epoch_progress.increment_by(round * epochs)
        with hooked(module, resume=resume, note=note):
            trainer.fit(module, datamodule=self.data[peer])
        after = memory.read(trainer.optimizers[0], self.models[peer].parameters)
        return Trained(sum(losses) / max(1, len(losses)), steps, after)

    def scores(self, row: torch.Tensor, peer: str) -> dict[str, float]:
        """Return what the module of a peer logs for a model ``[P]`` in validation."""
        with self.alone, seeded_globals(self.seed):
            self.fill(row, peer)
            trainer = self.trainers[peer]
            logged = trainer.validate(self.modules[peer], datamodule=self.data[peer], verbose=False)
        kept = {name.removeprefix("val_"): float(value) for each in logged for name, value in each.items()}
        first = {name: kept.pop(name) for name in ("loss",) if name in kept}
        return first | kept


def check_trainer(trainer: Any, module: Any, peer: str) -> None:
    """Raise :class:`ModelError` for what cannot go on from round to round."""
    if trainer.max_steps != -1 or trainer.max_epochs is None or trainer.max_epochs < 1:
        raise ModelError(
            f"the trainer of {peer} has max_steps or no max_epochs, but a round is a number of epochs; set max_epochs, "
            "and limit_train_batches for a part of one"
        )
    if not module.automatic_optimization:
        raise ModelError(
            f"the module of {peer} optimises by hand, so that no round goes on from another; set automatic_optimization"
        )
    if trainer.early_stopping_callbacks:
        raise ModelError(f"EarlyStopping of {peer} would end rounds of one peer early; leave it out")
    if trainer.world_size > 1:
        raise ModelError(f"the trainer of {peer} uses {trainer.world_size} devices; set devices=1")


def number_steps(trainer: Any, steps: int) -> None:
    """Let a trainer count its steps on from a number."""
    loop = trainer.fit_loop.epoch_loop
    loop.automatic_optimization.optim_progress.reset()
    loop.automatic_optimization.optim_progress.optimizer.step.increment_by(steps)
    loop._batches_that_stepped = steps  # noqa: SLF001 -- the x-axis of loggers, which has no other name


def advance(config: Any, trainer: Any, *, epochs: int, peer: str) -> None:
    """Move a new schedule on by the epochs of all rounds before."""
    if config.reduce_on_plateau:
        raise ModelError(
            f"the module of {peer} reduces its rate on a plateau, which is not known in the next round; use a schedule "
            "by steps or epochs"
        )
    batches, together = int(trainer.num_training_batches), int(trainer.accumulate_grad_batches)
    if config.interval == "epoch":
        count = epochs // config.frequency
    else:
        stepped = [number for number in range(1, batches + 1) if number % together == 0 or number == batches]
        count = epochs * sum(number % config.frequency == 0 for number in stepped)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the optimiser has taken no step yet
        for _ in range(count):
            config.scheduler.step()


@contextmanager
def hooked(module: Any, *, resume: Any, note: Any) -> Iterator[None]:
    """Call ``resume`` before a module trains, and ``note`` with what each of its steps returns.

    Hooks of the module itself, unlike callbacks, are the same for both packages of Lightning.
    """
    starts, ends = module.on_train_start, module.on_train_batch_end

    def on_train_start() -> None:
        resume()
        starts()

    def on_train_batch_end(outputs: Any, batch: Any, batch_idx: int) -> None:
        note(outputs)
        ends(outputs, batch, batch_idx)

    module.on_train_start, module.on_train_batch_end = on_train_start, on_train_batch_end
    try:
        yield
    finally:
        del module.on_train_start, module.on_train_batch_end
