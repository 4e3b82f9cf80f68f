""":class:`TrainerLearner`: trainers of Hugging Face as the learners of peers."""

from __future__ import annotations

import copy
import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.imports import extra_library
from p2pfl.core.process import SEEDING, one_at_a_time
from p2pfl.core.rows import Rows
from p2pfl.core.traits import LearnerTraits
from p2pfl.data import Federation
from p2pfl.learning.learner import Correction, Fitted, Memory, Report, SequentialLearner
from p2pfl.learning.modules.trained_part import digest
from p2pfl.plugins.language import planting, token_scores
from p2pfl.plugins.language.adapters import AdapterRows, Way, common_start, naive_error
from p2pfl.plugins.language.optimiser_memory import PeerMemory

PREFERRED = "rewards/accuracies"
"""Score of TRL that preference tuning is judged by: the share of pairs that a model orders as people do."""

MAX_SEED = 2**31
"""Seeds of trainers are smaller."""


@dataclass(frozen=True)
class _Model:
    """Trained part of the model of a trainer."""

    parameters: Mapping[str, nn.Parameter]
    scales: Mapping[str, float]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(value.shape) for name, value in self.parameters.items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the present values on the CPU."""
        return {name: value.detach().cpu() for name, value in self.parameters.items()}

    def fill(self, tensors: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, value in tensors.items():
                self.parameters[name].copy_(value)


class TrainerLearner(SequentialLearner):
    """Learner whose peers train with a ``Trainer`` of transformers, or one of TRL such as ``SFTTrainer``.

    The trainers stay as they are: a call of ``train`` is what a peer does in a round, so ``max_steps`` or
    ``num_train_epochs`` is the work of a round. Batches, gradient accumulation, checkpointing of activations, packing
    and the optimiser are the trainer's. What a trainer would begin again at each call goes on: the state of the
    optimiser is kept from round to round, and the learning rate is that of one schedule, with its warm-up, over all
    rounds. The seed of a call follows from the seed of the run, the peer and the round.

    A row contains the parameters that train, in single precision. All others are a constant base, which all trainers of
    a process may share: several trainers may have the same model, since its trained values are those of the peer whose
    turn it is.

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
    adapters
        Numbers of LoRA adapters that peers average, see :class:`p2pfl.plugins.language.adapters.AdapterRows`.
    rank
        Largest rank of the adapters of all peers, if they differ.

    Attributes
    ----------
    factor_errors
        By round, the relative error of averaging the factors that the peers of this process trained
        (:func:`p2pfl.plugins.language.adapters.naive_error`); nothing for a single peer.

    Raises
    ------
    ModelError
        The trainers do not fit together, or a trainer does what cannot go on from round to round.
    """

    traits: ClassVar[LearnerTraits] = LearnerTraits()
    gradients_missing = "a trainer does not show them; use FedAvg, or a torch model"
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
        if not trainers:
            raise ModelError("there is no trainer; give one for each peer of this process")
        self.trainers, self.rounds, self.seed = dict(trainers), rounds, seed
        for trainer in self.trainers.values():
            for printing in (self.transformers.PrinterCallback, self.transformers.ProgressCallback):
                trainer.remove_callback(printing)  # standard output is for results
        check_evaluation(self.trainers)
        self.alone = one_at_a_time()  # trainers may share a model, and all share the global generators
        self.models = {peer: _trained_model(trainer, peer) for peer, trainer in self.trainers.items()}
        self.own_optimisers = {peer: trainer.optimizer for peer, trainer in self.trainers.items()}
        first = self._common_start(rank)
        self.adapters = AdapterRows(first, adapters)
        self.layout = self.adapters.layout
        self.base = self._base()
        self.factor_errors: dict[int, float] = {}
        self.labelled: dict[str, bool] = {}

    def _common_start(self, rank: int | None) -> dict[str, torch.Tensor]:
        starts = {peer: common_start(model.tensors(), rank=rank, seed=self.seed) for peer, model in self.models.items()}
        first_peer, first = next(iter(starts.items()))
        for peer, start in starts.items():
            shapes = {name: value.shape for name, value in start.items()}
            if shapes != {name: value.shape for name, value in first.items()}:
                raise ModelError(
                    f"the trainers of {first_peer} and {peer} train other tensors; give both the same model, and "
                    "set rank if the ranks of their adapters differ"
                )
            if any(not torch.equal(value, first[name]) for name, value in start.items()):
                raise ModelError(
                    f"the models of {first_peer} and {peer} start from other values; load both from the same file, or "
                    "call transformers.set_seed before you make each"
                )
        return first

    def _base(self) -> str:
        """Return a digest of what all peers share and no row contains, which neighbours compare."""
        constants = self._shared_constants()
        scales: Mapping[str, float] = {}
        if self.adapters.way != "product":  # whose rows contain the scales
            scales = next(iter(self.models.values())).scales
            for peer, model in self.models.items():
                if model.scales != scales:
                    raise ModelError(
                        f"the adapters of {peer} have another lora_alpha / r than others; choose lora_alpha so that "
                        'it is the same at all peers, or set adapters = "product"'
                    )
            constants |= {a: self.adapters.start[a] for a, _ in self.adapters.pairs}
        numbers = {"rounds": self.rounds, **{f"scale of {name}": value for name, value in scales.items()}}
        return digest({**constants, **{name: torch.tensor(value) for name, value in numbers.items()}})

    def _shared_constants(self) -> dict[str, torch.Tensor]:
        """Return the constants of the model, which are those of the models of all trainers here."""
        models = {id(trainer.model): (peer, trainer.model) for peer, trainer in self.trainers.items()}
        (first_peer, first), *others = [(peer, _constants(model)) for peer, model in models.values()]
        for peer, constants in others:
            if not _same_tensors(constants, first):
                raise ModelError(
                    f"the bases of the models of {first_peer} and {peer} differ; load both from the same file"
                )
        return first

    @property
    def dtype(self) -> torch.dtype:
        """Number type of rows."""
        return torch.float32

    def on(self, federation: Federation) -> TrainerLearner:
        """Raise :class:`ModelError`, as only the trainers know their data.

        Raises
        ------
        ModelError
            Always.
        """
        del federation
        raise ModelError("data.scale needs a torch model, but trainers have data of their own; leave it out")

    def start(self, peers: Sequence[str]) -> Rows:
        """Return the common initial parameters for every peer, ``[R, P]``."""
        scales = next(iter(self.models.values())).scales
        return self.adapters.initial(scales).expand(len(peers), -1).clone()  # [R, P]

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

    def train(self, row: torch.Tensor, *, peer: str, round: int) -> tuple[torch.Tensor, float]:
        """Return the row ``[P]`` of a peer after a round with a new optimiser, and its loss."""
        trained, loss, _, _ = self._train(row, PeerMemory({}, self.adapters), peer=peer, round=round)
        return trained, loss

    def fit(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        memory: Memory | None = None,
        active: torch.Tensor | None = None,
        correction: Correction | None = None,
    ) -> Fitted:
        """Train each active row by its trainer, whose optimiser goes on from ``memory``.

        Raises
        ------
        ModelError
            The algorithm corrects gradients, or the round is beyond ``rounds``.
        LearningError
            A trained row is not finite.
        """
        if correction is not None:
            raise ModelError(f"this algorithm corrects gradients, but {self.gradients_missing}")
        awake = torch.ones(len(rows), dtype=torch.bool) if active is None else active.cpu()  # [R]
        trained = rows.clone()  # [R, P]
        kept = {name: value.clone() for name, value in (memory or {}).items()}
        loss = torch.zeros(len(rows), dtype=torch.float64)  # [R]
        steps = torch.zeros(len(rows), dtype=torch.int64)  # [R]
        for number, peer in enumerate(peers):
            if awake[number]:
                own = PeerMemory({name: value[number] for name, value in kept.items()}, self.adapters)
                trained[number], loss[number], steps[number], after = self._train(
                    rows[number].cpu(), own, peer=peer, round=round
                )
                for name, value in after.items():
                    kept.setdefault(name, value.new_zeros(len(rows), *value.shape))[number] = value
        if awake.sum() > 1 and self.adapters.way in ("factors", "alternate") and self.adapters.pairs:
            self.factor_errors[round] = naive_error(trained[awake.to(trained.device)], self.layout)
        return Fitted(trained, kept, Report(loss, steps))

    def _train(
        self, row: torch.Tensor, memory: PeerMemory, *, peer: str, round: int
    ) -> tuple[torch.Tensor, float, int, dict[str, torch.Tensor]]:
        """Return the row ``[P]`` of a peer after a round, its loss and steps, and the memory of its optimiser."""
        if round >= self.rounds:
            raise ModelError(
                f"the learning rate is scheduled over {self.rounds} rounds and the run has more, in which nothing "
                "would train; give TrainerLearner the rounds of the run"
            )
        trainer, model = self.trainers[peer], self.models[peer]
        seed = int(draw(self.seed, "trainer", peer, round).integers(MAX_SEED))
        moving = self.adapters.moving(round)
        with self.alone, seeded_globals(seed):
            model.fill(self.adapters.tensors(row, shapes=model.shapes, scales=model.scales))
            for name, parameter in model.parameters.items():
                parameter.requires_grad_(name in moving)
            try:
                optimiser = self._resumed(peer, memory, round=round, seed=seed)
                result = trainer.train()
                after = memory.read(optimiser, model.parameters)
            finally:
                for parameter in model.parameters.values():
                    parameter.requires_grad_(True)
                    parameter.grad = None
                trainer.optimizer, trainer.lr_scheduler = self.own_optimisers[peer], None
            trained = self.adapters.row(model.tensors(), before=row, scales=model.scales)
        if not torch.isfinite(trained).all() or not math.isfinite(result.training_loss):
            raise LearningError(
                f"the trainer of {peer} returns numbers that are not finite in round {round}; lower its learning rate"
            )
        return trained, float(result.training_loss), int(result.global_step), after

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

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return scores by name, each ``[R]`` float64; trainers evaluate the ``test`` part alone."""
        if part != "test":
            return {}
        each = [self._scores(row.cpu(), peer) for row, peer in zip(rows, peers, strict=True)]
        names = [name for name in (each[0] if each else ()) if all(name in scores for scores in each)]
        return {name: torch.tensor([scores[name] for scores in each], dtype=torch.float64) for name in names}

    def _scores(self, row: torch.Tensor, peer: str) -> dict[str, float]:
        trainer = self.trainers[peer]
        if trainer.eval_dataset is None:
            return {}
        if self._labels_tokens(peer):
            return token_scores.scores(*self._total_losses(row, peer))
        with self.alone, seeded_globals(self.seed):
            self._fill(row, peer)
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
            self._fill(row, peer)
            return token_scores.total_losses(self.trainers[peer])

    def _fill(self, row: torch.Tensor, peer: str) -> None:
        model = self.models[peer]
        model.fill(self.adapters.tensors(row, shapes=model.shapes, scales=model.scales))

    def tallies(self, rows: Rows, *, peers: Sequence[str]) -> torch.Tensor:
        """Return the losses of all tokens of each peer, in units of a total, and their number, ``[R, 2]`` int64.

        There are none, ``[R, 0]``, for a model that predicts no tokens.
        """
        if not all(self._labels_tokens(peer) for peer in peers):
            return torch.zeros(len(rows), 0, dtype=torch.int64)
        totals = [self._total_losses(row.cpu(), peer) for row, peer in zip(rows, peers, strict=True)]
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
            self._fill(row.to(self.dtype), peer)
            return planting.text_losses(self.trainers[peer].model, texts)

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the trained tensors of one row ``[P]`` under the names of the model, in the rank of the row."""
        scales = next(iter(self.models.values())).scales
        shapes = {name: tuple(value.shape) for name, value in self.adapters.start.items()}
        tensors = self.adapters.tensors(row.detach().cpu(), shapes=shapes, scales=scales)
        return {name: value.clone() for name, value in tensors.items()}

    def kept(self, row: torch.Tensor, *, peer: str) -> dict[str, torch.Tensor]:
        """Return the tensors of the model of a peer, in its rank and with its scales, as it is evaluated."""
        model = self.models[peer]
        tensors = self.adapters.tensors(row.detach().cpu(), shapes=model.shapes, scales=model.scales)
        return {name: value.clone() for name, value in tensors.items()}


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


def steps_in_round(trainer: Any) -> int:
    """Return how many steps of the optimiser a call of ``train`` takes."""
    arguments = trainer.args
    if arguments.max_steps > 0:
        return int(arguments.max_steps)
    each = math.ceil(len(trainer.get_train_dataloader()) / int(arguments.gradient_accumulation_steps))
    return math.ceil(float(arguments.num_train_epochs) * max(1, each))


def _trained_model(trainer: Any, peer: str) -> _Model:
    parameters = {name: value for name, value in trainer.model.named_parameters() if value.requires_grad}
    if not parameters:
        raise ModelError(f"the model of {peer} trains nothing; add adapters by peft.get_peft_model")
    for name, value in parameters.items():
        if value.dtype != torch.float32:
            raise ModelError(
                f"{name} of {peer} trains as {value.dtype}, in which small steps are lost; let only the base be so, "
                "or load the model with dtype=torch.float32"
            )
    if trainer.model_init is not None or trainer.lr_scheduler is not None:
        raise ModelError(
            f"the trainer of {peer} has a model_init or a schedule of its own, which would begin again in each round; "
            "give the model, and name the schedule in its arguments"
        )
    scales: dict[str, float] = {}
    for path, layer in trainer.model.named_modules():
        for adapter, scale in getattr(layer, "scaling", {}).items() if hasattr(layer, "lora_A") else ():
            scales[f"{path}.lora_A.{adapter}.weight"] = float(scale)
    return _Model(parameters, {name: scale for name, scale in scales.items() if name in parameters})


def _constants(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters that no peer trains, without TRL's copy of the first adapters, of the peer's rank."""
    still = {name: value.detach() for name, value in model.named_parameters() if not value.requires_grad}
    return {name: value for name, value in still.items() if not ("lora_" in name and "ref" in name.split("."))}


def _same_tensors(some: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> bool:
    return some.keys() == others.keys() and all(
        value.dtype == others[name].dtype and torch.equal(value, others[name].to(value.device))
        for name, value in some.items()
    )


def _is_score(name: str, value: object) -> bool:
    speed = name.endswith(("_runtime", "_per_second")) or name == "epoch"
    return isinstance(value, int | float) and not speed


@contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Let the global generators of Python, numpy and torch start from a seed, and restore them afterwards.

    Examples
    --------
    >>> with seeded_globals(7):
    ...     once = torch.rand(1)
    >>> with seeded_globals(7):
    ...     bool(torch.rand(1) == once)
    True
    """
    with SEEDING, torch.random.fork_rng():
        python, array = random.getstate(), np.random.get_state()  # noqa: NPY002 -- the global ones are meant
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)  # noqa: NPY002
