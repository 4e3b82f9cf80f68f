""":class:`TrainerLearner`: trainers of Hugging Face as the learners of peers."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import ModelError
from p2pfl.core.imports import extra_library, kind_of
from p2pfl.core.rows import Rows
from p2pfl.data.dataset import IGNORED
from p2pfl.plugins.language import planting, token_scores
from p2pfl.plugins.language.adapters import Way
from p2pfl.plugins.language.module_learner import ModuleLearner, Trained, seeded_globals
from p2pfl.plugins.language.optimiser_memory import PeerMemory

PREFERRED = "rewards/accuracies"
"""Score of TRL that preference tuning is judged by: the share of pairs that a model orders as people do."""


class TrainerLearner(ModuleLearner):
    """Learner whose peers train with a ``Trainer`` of transformers, or one of TRL such as ``SFTTrainer``.

    The trainers stay as they are: a call of ``train`` is what a peer does in a round, so ``max_steps`` or
    ``num_train_epochs`` is the work of a round. Batches, gradient accumulation, checkpointing of activations, packing
    and the optimiser are the trainer's. What a trainer would begin again at each call goes on: the learning rate is
    that of one schedule, with its warm-up, over all rounds, and an algorithm that keeps the state of optimisers, such
    as D-PSGD, gives it back in the next round. The seed of a call follows from the seed of the run, the peer and the
    round.

    Scores are those of ``eval_dataset``: loss and perplexity by token for a model that predicts tokens, and what
    ``evaluate`` of the trainer returns for others. Labels of -100 do not count.

    Parameters
    ----------
    trainers
        Trainer of each peer of this process.
    rounds
        Rounds of the run, over which the learning rate is scheduled.
    seed
        Seed of new adapters, batches and dropout; all peers have the same.
    adapters, rank
        As in :class:`p2pfl.plugins.language.module_learner.ModuleLearner`, as is the attribute ``factor_errors``.

    Raises
    ------
    ModelError
        The trainers do not fit together, or a trainer does what cannot go on from round to round.
    """

    whole: ClassVar[frozenset[str]] = frozenset({"loss", "perplexity"})

    def __init__(
        self,
        trainers: Mapping[str, Any],
        *,
        rounds: int,
        seed: int = 0,
        adapters: Way = "factors",
        rank: int | None = None,
    ) -> None:
        self.transformers = extra_library("transformers", extra="language", key="TrainerLearner", refused=ModelError)
        self.trainers = dict(trainers)
        for peer, trainer in self.trainers.items():
            if not isinstance(trainer, self.transformers.Trainer):
                raise ModelError(f"the trainer of {peer} is {kind_of(trainer)}; give a Trainer of transformers or TRL")
            if not _has_samples(trainer.train_dataset):
                raise ModelError(f"the trainer of {peer} has no training samples; give it a train_dataset with some")
            for printing in (self.transformers.PrinterCallback, self.transformers.ProgressCallback):
                trainer.remove_callback(printing)  # standard output is for results
            if trainer.model_init is not None or trainer.lr_scheduler is not None:
                raise ModelError(
                    f"the trainer of {peer} has a model_init or a schedule of its own, which would begin again in each "
                    "round; give the model, and name the schedule in its arguments"
                )
            stopping = self.transformers.EarlyStoppingCallback
            if any(isinstance(each, stopping) for each in trainer.callback_handler.callbacks):
                raise ModelError(
                    f"the trainer of {peer} has an EarlyStoppingCallback, which would end the training of a round at "
                    "any step; remove it, and set learning.patience to stop all peers together"
                )
        check_evaluation(self.trainers)
        check_preferences(self.trainers)
        self.own_optimisers = {peer: trainer.optimizer for peer, trainer in self.trainers.items()}
        modules = {peer: trainer.model for peer, trainer in self.trainers.items()}
        super().__init__(modules, rounds=rounds, seed=seed, adapters=adapters, rank=rank)
        self.labelled: dict[str, bool] = {}

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples, or packed sequences, of each peer, ``[R]`` int64."""
        counts = []
        for peer in peers:
            try:
                counts.append(len(self.trainers[peer].train_dataset))
            except TypeError:
                raise ModelError(
                    f"the training data of {peer} have no length, and averages weigh by it; give a data set with one"
                ) from None
        return torch.tensor(counts, dtype=torch.int64)  # [R]

    def run_trainer(self, memory: PeerMemory, *, peer: str, round: int, seed: int) -> Trained:
        """Train the model of a peer for a round, by an optimiser that goes on from ``memory``."""
        trainer = self.trainers[peer]
        try:
            optimiser = self._resumed(peer, memory, round=round, seed=seed)
            result = trainer.train()
            after = memory.read(optimiser, self.models[peer].parameters)
            optimiser.state.clear()  # accelerate would keep it until this trainer trains again
        finally:
            trainer.optimizer, trainer.lr_scheduler = self.own_optimisers[peer], None
        return Trained(float(result.training_loss), int(result.global_step), after)

    def _resumed(self, peer: str, memory: PeerMemory, *, round: int, seed: int) -> torch.optim.Optimizer:
        """Give a trainer an optimiser and a schedule that go on where the round begins, and return the optimiser."""
        trainer, model = self.trainers[peer], self.models[peer]
        trainer.args.seed = seed
        if trainer.accelerator.dataloader_config.data_seed is not None:  # the order of samples would repeat itself
            trainer.accelerator.dataloader_config.data_seed = seed
        trainer.optimizer = self.own_optimisers[peer]
        if trainer.optimizer is not None:
            trainer.optimizer.state.clear()
        optimiser: torch.optim.Optimizer = trainer.create_optimizer()
        memory.write(optimiser, model.parameters)
        each = steps_in_round(trainer)
        whole = self.rounds * each
        arguments = trainer.args
        schedule = self.transformers.get_scheduler(
            arguments.lr_scheduler_type,
            optimizer=optimiser,
            num_warmup_steps=arguments.get_warmup_steps(whole),
            num_training_steps=whole,
            scheduler_specific_kwargs=arguments.lr_scheduler_kwargs,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the optimiser has taken no step yet
            for _ in range(round * each):
                schedule.step()
        trainer.lr_scheduler = schedule
        return optimiser

    def scores(self, row: torch.Tensor, peer: str) -> dict[str, float]:
        """Return the scores of a model ``[P]`` on the evaluation data of a peer."""
        trainer = self.trainers[peer]
        if trainer.eval_dataset is None:
            return {}
        if self._labels_tokens(peer):
            return token_scores.scores(*self._total_losses(row, peer))
        with self.alone, seeded_globals(self.seed):
            self.fill(row, peer)
            scores = trainer.evaluate()
        kept = {name.removeprefix("eval_"): float(value) for name, value in scores.items() if _is_score(name, value)}
        first = {name: kept.pop(name) for name in ("loss", PREFERRED) if name in kept}
        return first | kept

    def _labels_tokens(self, peer: str) -> bool:
        """Return whether the model of a peer predicts tokens, and its evaluation data are sequences of them."""
        if peer not in self.labelled:
            self.labelled[peer] = token_scores.labels_tokens(self.trainers[peer])
        return self.labelled[peer]

    def _total_losses(self, row: torch.Tensor, peer: str) -> tuple[float, int]:
        with self.alone, seeded_globals(self.seed):
            self.fill(row, peer)
            loss, count = token_scores.total_losses(self.trainers[peer])
        if not count:
            raise ModelError(
                f"no token of the eval_dataset of {peer} counts, as all of its labels after the first are {IGNORED}; "
                "give it samples whose answers are not cut off"
            )
        return loss, count

    def tallies(self, rows: Rows, *, peers: Sequence[str]) -> torch.Tensor:
        """Return the losses of all tokens of each peer, in units of a total, and their number, ``[R, 2]`` int64.

        There are none, ``[R, 0]``, for a model that predicts no tokens.
        """
        if not all(self._labels_tokens(peer) for peer in peers):
            return torch.zeros(len(rows), 0, dtype=torch.int64)
        totals = [self._total_losses(row, peer) for row, peer in zip(rows, peers, strict=True)]
        return torch.tensor([(round(loss / token_scores.FRACTION), count) for loss, count in totals])  # [R, 2]

    def tallied(self, row: torch.Tensor, total: Ints, *, copies: int) -> dict[str, float]:
        """Return loss and perplexity of a token of all peers, which follow from the sum of their :meth:`tallies`."""
        del row, copies
        return token_scores.scores(float(np.int64(total[0])) * token_scores.FRACTION, int(total[1]))

    def text_size(self, peer: str) -> tuple[int, int]:
        """Return the number of tokens of the first sample of a peer, and the size of the vocabulary, for audits."""
        trainer = self.trainers[peer]
        return planting.text_length(trainer, peer), int(trainer.model.config.vocab_size)

    def with_texts(
        self, texts: torch.Tensor, places: npt.NDArray[np.int64], there: npt.NDArray[np.bool_], *, peer: str
    ) -> TrainerLearner:
        """Return a learner that trains on texts ``[m, T]`` in place of some samples of a peer, where they are there."""
        chosen = dict(zip(places[there].tolist(), texts[torch.from_numpy(there)], strict=True))
        other = copy.copy(self)
        other.trainers = self.trainers | {peer: planting.planted(self.trainers[peer], chosen)}
        return other

    def text_losses(self, row: torch.Tensor, texts: torch.Tensor, *, peer: str) -> torch.Tensor:
        """Return the losses of texts ``[m, T]`` by a model ``[P]``, ``[m]`` float64."""
        with self.alone, seeded_globals(self.seed):
            self.fill(row.to(self.dtype), peer)
            return planting.text_losses(self.trainers[peer].model, texts)


def check_evaluation(trainers: Mapping[str, Any]) -> None:
    """Raise :class:`ModelError` unless all trainers have one set of evaluation data each, or none has."""
    without = [peer for peer, trainer in trainers.items() if trainer.eval_dataset is None]
    for peer, trainer in trainers.items():
        if isinstance(trainer.eval_dataset, Mapping):
            raise ModelError(
                f"the eval_dataset of {peer} is several sets by name, but scores are those of one; give it one of them"
            )
    if 0 < len(without) < len(trainers):
        raise ModelError(
            f"{without[0]} has no eval_dataset, but others have; give one to all peers of this process, or to none"
        )


def check_preferences(trainers: Mapping[str, Any]) -> None:
    """Raise :class:`ModelError` unless all trainers of preferences weigh the reference alike, by a positive beta."""
    betas = {
        peer: float(trainer.args.beta)
        for peer, trainer in trainers.items()
        if any(kind.__name__ == "DPOConfig" for kind in type(trainer.args).__mro__)
    }
    first = next(iter(betas), "")
    for peer, beta in betas.items():
        if not (beta > 0 and math.isfinite(beta)):
            raise ModelError(
                f"beta of {peer} is {beta:g}, and a model is kept near the reference by a positive number; set it "
                "above 0, such as 0.1"
            )
        if beta != betas[first]:
            raise ModelError(
                f"beta is {betas[first]:g} at {first} and {beta:g} at {peer}, which are different losses; give all "
                "peers the same"
            )


def steps_in_round(trainer: Any) -> int:
    """Return how many steps of the optimiser a call of ``train`` takes."""
    arguments = trainer.args
    if arguments.max_steps > 0:
        return int(arguments.max_steps)
    each = math.ceil(len(trainer.get_train_dataloader()) / int(arguments.gradient_accumulation_steps))
    return math.ceil(float(arguments.num_train_epochs) * max(1, each))


def _has_samples(data: Any) -> bool:
    """Return whether data are given, and are not known to be empty."""
    try:
        return data is not None and len(data) > 0
    except TypeError:  # a stream, which ``samples`` names
        return True


def _is_score(name: str, value: object) -> bool:
    speed = name.endswith(("_runtime", "_per_second")) or name == "epoch"
    return isinstance(value, int | float) and not speed
