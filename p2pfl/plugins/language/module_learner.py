"""Base of learners whose peers train torch modules with a trainer of their own."""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from p2pfl.core.draws import draw
from p2pfl.core.errors import LearningError, ModelError, P2PFLError, RunError
from p2pfl.core.imports import describe_error
from p2pfl.core.process import SEEDING, one_at_a_time
from p2pfl.core.rows import Rows
from p2pfl.core.traits import LearnerTraits
from p2pfl.data import Federation
from p2pfl.learning.learner import Correction, Fitted, Memory, Report, SequentialLearner
from p2pfl.learning.modules.trained_part import digest
from p2pfl.plugins.language.adapters import AdapterRows, Way, common_start, naive_error
from p2pfl.plugins.language.optimiser_memory import PeerMemory

MAX_SEED = 2**31
"""Seeds of trainers are smaller."""


class Trained(NamedTuple):
    """Result of a round of a trainer.

    Attributes
    ----------
    loss
        Mean loss of training.
    steps
        Steps of the optimiser.
    memory
        State of the optimiser.
    """

    loss: float
    steps: int
    memory: dict[str, torch.Tensor]


@dataclass(frozen=True)
class TrainedModule:
    """Trained part of the module of a peer.

    Parameters
    ----------
    parameters
        Trained parameters by name.
    scales
        Factor s of each layer with adapters by the name of its A.
    """

    parameters: Mapping[str, nn.Parameter]
    scales: Mapping[str, float]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the trained parameters."""
        return {name: tuple(value.shape) for name, value in self.parameters.items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the present values."""
        return {name: value.detach() for name, value in self.parameters.items()}

    def fill(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Give the parameters these values."""
        with torch.no_grad():
            for name, value in tensors.items():
                self.parameters[name].copy_(value)


class ModuleLearner(SequentialLearner):
    """Learner whose peers train torch modules with a trainer of their own, which knows optimiser and data.

    A row contains the parameters that train, in single precision. All others are a constant base. The module of several
    peers may be the same object, since its trained values are those of the peer whose turn it is. The state of the
    optimiser is the memory of a row, and a subclass gives it back to a new optimiser.

    Parameters
    ----------
    modules
        Module of each peer of this process.
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
    home
        Device of the modules when the learner is made. A simulation keeps rows and states of optimisers there.
    factor_errors
        By round, the relative error of averaging the factors that the peers of this process trained
        (:func:`p2pfl.plugins.language.adapters.naive_error`); nothing for a single peer.

    Raises
    ------
    ModelError
        The modules do not fit together, or train what cannot be averaged.
    """

    traits: ClassVar[LearnerTraits] = LearnerTraits()
    gradients_missing = "a trainer does not show them; use FedAvg, or a torch model"

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        *,
        rounds: int,
        seed: int = 0,
        adapters: Way = "factors",
        rank: int | None = None,
    ) -> None:
        if not modules:
            raise ModelError("there is no trainer; give one for each peer of this process")
        self.modules, self.rounds, self.seed = dict(modules), rounds, seed
        self.alone = one_at_a_time()  # peers may share a module, and all share the global generators
        self.models = {peer: trained_module(module, peer) for peer, module in self.modules.items()}
        self.home = next(iter(next(iter(self.models.values())).parameters.values())).device
        self.adapters = AdapterRows(self._common_start(rank), adapters)
        self.layout = self.adapters.layout
        self.base = self._base()
        self.factor_errors: dict[int, float] = {}

    def _common_start(self, rank: int | None) -> dict[str, torch.Tensor]:
        starts = {
            peer: common_start(
                {name: value.cpu() for name, value in model.tensors().items()}, rank=rank, seed=self.seed
            )
            for peer, model in self.models.items()
        }
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
                    "seed torch before you make each"
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
        models = {id(module): (peer, module) for peer, module in self.modules.items()}
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

    def on(self, federation: Federation) -> ModuleLearner:
        """Raise :class:`ModelError`, as only the trainers know their data.

        Raises
        ------
        ModelError
            Always.
        """
        del federation
        raise ModelError("data.scale needs a torch model, but trainers have data of their own; leave it out")

    def start(self, peers: Sequence[str]) -> Rows:
        """Return the common initial parameters for every peer, ``[R, P]``.

        Raises
        ------
        ModelError
            A peer has no trainer here.
        """
        if lacking := [peer for peer in peers if peer not in self.modules]:
            here = ", ".join([*self.modules][:4])
            raise ModelError(
                f"there is no trainer for {lacking[0]}, only for {here}; name both alike, "
                "for instance by topology.named([*trainers])"
            )
        scales = next(iter(self.models.values())).scales
        return self.adapters.initial(scales).expand(len(peers), -1).clone()  # [R, P]

    def train(self, row: torch.Tensor, *, peer: str, round: int) -> tuple[torch.Tensor, float]:
        """Return the row ``[P]`` of a peer after a round with a new optimiser, and its loss."""
        trained, result = self._train(row, PeerMemory({}, self.adapters), peer=peer, round=round)
        return trained, result.loss

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
        RunError
            A trainer, or code of the user in it, failed.
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
                trained[number], result = self._train(rows[number], own, peer=peer, round=round)
                loss[number], steps[number] = result.loss, result.steps
                for name, value in result.memory.items():
                    if name not in kept:
                        there = value.device if value.device.type == "cpu" else rows.device
                        kept[name] = torch.zeros(len(rows), *value.shape, dtype=value.dtype, device=there)
                    kept[name][number] = value
        if awake.sum() > 1 and self.adapters.way in ("factors", "alternate") and self.adapters.pairs:
            self.factor_errors[round] = naive_error(trained[awake.to(trained.device)], self.layout)
        return Fitted(trained, kept, Report(loss, steps))

    def _train(self, row: torch.Tensor, memory: PeerMemory, *, peer: str, round: int) -> tuple[torch.Tensor, Trained]:
        """Return the row ``[P]`` of a peer after a round, and what its trainer returned."""
        if round >= self.rounds:
            raise ModelError(
                f"the learning rate is scheduled over {self.rounds} rounds and the run has more, in which nothing "
                f"would train; give {type(self).__name__} the rounds of the run"
            )
        model, moving = self.models[peer], self.adapters.moving(round)
        seed = int(draw(self.seed, "trainer", peer, round).integers(MAX_SEED))
        with self.alone, seeded_globals(seed):
            self.fill(row, peer)
            for name, parameter in model.parameters.items():
                parameter.requires_grad_(name in moving)
            try:
                result = self.run_trainer(memory, peer=peer, round=round, seed=seed)
            except P2PFLError:
                raise
            except Exception as error:
                reason = describe_error(error, module="")
                raise RunError(f"the training of {peer} failed in round {round}: {reason}; fix it") from error
            finally:
                for parameter in model.parameters.values():
                    parameter.requires_grad_(True)
                    parameter.grad = None
            trained = self.adapters.row(model.tensors(), before=row, scales=model.scales)
        if not torch.isfinite(trained).all() or not math.isfinite(result.loss):
            raise LearningError(
                f"the trainer of {peer} returns numbers that are not finite in round {round}; lower its learning rate"
            )
        return trained, result

    @abstractmethod
    def run_trainer(self, memory: PeerMemory, *, peer: str, round: int, seed: int) -> Trained:
        """Train the module of a peer for a round, by an optimiser that goes on from ``memory``."""

    @abstractmethod
    def scores(self, row: torch.Tensor, peer: str) -> dict[str, float]:
        """Return the scores of a model ``[P]`` on the evaluation data of a peer."""

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return scores by name, each ``[R]`` float64; trainers evaluate the ``test`` part alone."""
        if part != "test":
            return {}
        each = [self.scores(row, peer) for row, peer in zip(rows, peers, strict=True)]
        names = [name for name in (each[0] if each else ()) if all(name in scores for scores in each)]
        return {name: torch.tensor([scores[name] for scores in each], dtype=torch.float64) for name in names}

    def fill(self, row: torch.Tensor, peer: str) -> None:
        """Give the module of a peer the values of a row ``[P]``."""
        model = self.models[peer]
        model.fill(self.adapters.tensors(row, shapes=model.shapes, scales=model.scales))

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


def trained_module(module: nn.Module, peer: str) -> TrainedModule:
    """Return the trained part of the module of a peer.

    Raises
    ------
    ModelError
        It trains nothing, or something that a row does not contain.
    """
    parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
    if not parameters:
        raise ModelError(f"the model of {peer} trains nothing; add adapters by peft.get_peft_model")
    for name, value in parameters.items():
        if value.dtype != torch.float32:
            raise ModelError(
                f"{name} of {peer} trains as {value.dtype}, in which small steps are lost; let only the base be so, "
                "or load the model with dtype=torch.float32"
            )
    scales: dict[str, float] = {}
    for path, layer in module.named_modules():
        if isinstance(layer, _NormBase) and layer.track_running_stats:
            raise ModelError(
                f"{path} of {peer} keeps running statistics, which no row contains; replace it by a GroupNorm, or set "
                "its track_running_stats to False"
            )
        for adapter, scale in getattr(layer, "scaling", {}).items() if hasattr(layer, "lora_A") else ():
            scales[f"{path}.lora_A.{adapter}.weight"] = float(scale)
    return TrainedModule(parameters, {name: scale for name, scale in scales.items() if name in parameters})


def _constants(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters that no peer trains, without TRL's copy of the first adapters, of the peer's rank.

    Layers in 4 bits keep the scales of their weights beside them: in no parameter, but in the state of the model.
    """
    still = {name: value.detach() for name, value in model.named_parameters() if not value.requires_grad}
    known = {name for name, _ in (*model.named_parameters(remove_duplicate=False), *model.named_buffers())}
    still |= {name: value for name, value in model.state_dict().items() if name not in known and torch.is_tensor(value)}
    return {name: value for name, value in still.items() if not ("lora_" in name and "ref" in name.split("."))}


def _same_tensors(some: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> bool:
    return some.keys() == others.keys() and all(
        value.dtype == others[name].dtype and torch.equal(value, others[name].to(value.device))
        for name, value in some.items()
    )


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
