""":class:`TorchLearner`, which trains and evaluates many torch models at once."""

import contextlib
import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import nn

from p2pfl.core.process import one_at_a_time
from p2pfl.core.rows import Rows
from p2pfl.core.traits import LearnerTraits
from p2pfl.data import Federation
from p2pfl.learning import checks
from p2pfl.learning.checks import check_inputs
from p2pfl.learning.data_checks import check_outputs, inputs
from p2pfl.learning.engine_proof import SLOWER_SENTENCE, EngineProof, FastEngine, Result, repeatable
from p2pfl.learning.engine_trial import Tolerance, Trial, engines
from p2pfl.learning.learner import Correction
from p2pfl.learning.losses import PerSample
from p2pfl.learning.models import model_file_of, names_models, weights
from p2pfl.learning.modules.hidden_state import ModelState
from p2pfl.learning.modules.norms import Norm
from p2pfl.learning.modules.trained_part import divide_model
from p2pfl.learning.set_scores import SetScore
from p2pfl.learning.step_learner import StepLearner
from p2pfl.learning.steps import training
from p2pfl.learning.steps.augmentation import Augment, make_augmentation
from p2pfl.learning.steps.autograd import PlainEngine
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.optimisers import Factor
from p2pfl.learning.steps.perceptrons import Perceptrons
from p2pfl.learning.steps.torch_func import StackedEngine

TRIED_SAMPLES = 3
"""Number of samples on which model, loss and metrics are tried before anything starts."""


class TorchLearner(StepLearner):
    r"""Local training of torch models by mini-batch gradient descent.

    Each active row k takes its steps :math:`x_k \leftarrow x_k - \eta_t\, u(\nabla F_k(x_k; \xi))`, with
    :math:`u` the optimiser, :math:`F_k` the mean loss over the batch :math:`\xi` of peer k, drawn by the
    key ``(seed, peer, round)``. A row holds the trained parameters, and the running statistics of layers that stay with
    each peer; frozen parameters and other buffers are shared constants.

    Perceptrons train by numpy, whose calls take less time. Other models train by plain autograd if one fills a block;
    smaller ones at once: sequences of linear and convolutional layers by batched products, any other module by
    ``vmap``, or row by row if it cannot be traced. Results differ by rounding. Before the first step of a peer, losses
    and gradients of its batch are compared with those of the module itself.

    Several threads may use one learner, and copies of it, at once. They share a model that holds one row at a
    time, so one trains or evaluates after another.

    Parameters
    ----------
    model
        Any module; its values are the initial parameters. It is copied.
    federation
        Samples of each peer: the result of :func:`p2pfl.data.federate` or :func:`p2pfl.data.gather`; or by peer the
        arrays ``(features, targets)`` or a map-style Dataset of torch, a fifth of which is held out as the test part.
        Features that are whole numbers stay so if the model takes them, and become fractions otherwise.
    seed
        Seed of batches, dropout and the test part; that of the run if ``None``.
    optimizer, rate, options, schedule, schedule_options, schedule_by, warmup, max_norm
        See :class:`p2pfl.learning.steps.optimisers.Recipe`.
    batch
        Samples per step; ``"all"`` or ``None`` for all samples of a peer.
    epochs
        Passes over a peer's samples in a round.
    steps
        Steps in a round, instead of epochs.
    stragglers
        Share of the peers that do only a part of these in a round, see :mod:`p2pfl.learning.steps.training`.
    loss
        Function ``loss(outputs, targets) -> [B]`` with one number per sample, or a name that ``learning.loss`` takes;
        cross-entropy for classes, also at each place, and squared error for numbers if ``None``.
    augment
        Function ``augment(features, *, generator)`` that changes the features of each training batch at random, see
        :class:`p2pfl.learning.steps.augmentation.Augmentation`; it has no part in evaluation.
    metrics
        Scores by name: functions like ``loss``, names that ``learning.metrics`` takes, functions with the attribute
        ``whole`` that return one number for all outputs and targets, or scores of
        :mod:`p2pfl.learning.set_scores`.
        By default accuracy or :math:`R^2`; the mean intersection over union as well for a class at each place; the area
        under the ROC curve and F1 for labels.
    pretrained
        State dict, or path of a safetensors file, loaded into the model first. Tensors that it lacks keep their values.
        A path with ``{peer}`` is that of the model with which each peer begins.
    frozen
        Globs or prefixes of parameters that do not train.
    norm
        Treatment of batch normalisation, see :func:`p2pfl.learning.modules.norms.replace_norms`.
    device
        ``auto``, ``cpu``, ``cuda`` or ``mps``. Results return to the device of the arguments.
    dtype
        Number type of the parameters: float32 or float64.
    precision
        ``mixed`` runs the model in bfloat16 where that is safe.

    Raises
    ------
    ModelError
        The model does not fit the data, has batch normalisation without ``norm``, keeps state between calls, draws
        random numbers without a key, or has hooks or wrappers that a copy of it would lose.

    Examples
    --------
    >>> x, y = torch.eye(4), torch.tensor([0, 1, 0, 1])
    >>> learner = TorchLearner(nn.Linear(4, 2), {"ada": (x, y), "bob": (x, 1 - y)}, rate=0.5)
    >>> rows = learner.start(["ada", "bob"])
    >>> learner.fit(rows, peers=["ada", "bob"], round=0).rows.shape
    torch.Size([2, 10])
    """

    engine: PlainEngine | Kernels | StackedEngine
    perceptrons: Perceptrons | None
    traits: ClassVar[LearnerTraits] = LearnerTraits(gradients=True, known_steps=True, any_data=True, torch_model=True)

    def __init__(
        self,
        model: nn.Module,
        federation: Federation | Mapping[str, Any],
        *,
        seed: int | None = None,
        optimizer: str | type[torch.optim.Optimizer] = "sgd",
        rate: float = 0.1,
        options: Mapping[str, object] | None = None,
        schedule: str | Factor | None = None,
        schedule_options: Mapping[str, object] | None = None,
        schedule_by: Literal["round", "step"] = "round",
        warmup: int = 0,
        max_norm: float | None = None,
        batch: int | Literal["all"] | None = 32,
        epochs: int = 1,
        steps: int | None = None,
        stragglers: float = 0.0,
        loss: PerSample | str | None = None,
        augment: Augment | None = None,
        metrics: Mapping[str, PerSample | SetScore | str] | None = None,
        pretrained: Mapping[str, torch.Tensor] | str | Path | None = None,
        frozen: Sequence[str] = (),
        norm: Norm | None = None,
        device: str | torch.device = "auto",
        dtype: torch.dtype = torch.float32,
        precision: Literal["full", "mixed"] = "full",
    ) -> None:
        checks.check_module(model)
        place = checks.find_device(device)
        checks.check_precision(precision, device=place, dtype=dtype)
        super().__init__(
            federation,
            seed=seed,
            optimizer=optimizer,
            rate=rate,
            options=options,
            schedule=schedule,
            schedule_options=schedule_options,
            schedule_by=schedule_by,
            warmup=warmup,
            max_norm=max_norm,
            batch=batch,
            epochs=epochs,
            steps=steps,
            stragglers=stragglers,
            loss=loss,
            metrics=metrics,
            device=place,
            dtype=dtype,
        )
        self.augment = make_augmentation(augment)
        self.alone = one_at_a_time()  # shared by copies: one row at a time is in the model, see bind of Plain
        self.models = str(pretrained) if names_models(pretrained) else None
        common = None if self.models else pretrained
        made = divide_model(model, pretrained=common, frozen=frozen, norm=norm, device=self.device, dtype=dtype)
        self.divided, self.model, self.dropouts, self.initial = made, made.model, made.dropouts, made.initial
        self.layout, self.trained = made.layout, made.trained
        self._choose_engines(precision, scored=loss is None or metrics is None)

    def _choose_engines(self, precision: str, *, scored: bool) -> None:
        """Choose one engine for a single row, and one for a stack."""
        self.model.eval()
        dataset = self.federation.dataset
        counted, first, self.features = check_inputs(self.model, dataset, self.features, few=TRIED_SAMPLES)
        few, targets = self.features[:TRIED_SAMPLES], self.targets[:TRIED_SAMPLES]
        self.products = counted.products
        if self.augment is not None:
            self.augment.check(few)
        if scored:
            check_outputs(dataset, first, loss=self.loss)
        with torch.no_grad():
            outputs = self.model(few).to(self.dtype)  # [n, *outputs]
        checks.check_loss(self.loss, outputs, targets)
        checks.check_metrics(self.metrics, self.whole, outputs, targets)
        mixed = precision == "mixed"
        autocast = partial(torch.autocast, self.device.type, torch.bfloat16) if mixed else contextlib.nullcontext
        start = self.initial.unsqueeze(0).to(self.device, copy=True)  # [1, P]
        close = Tolerance.of(self.dtype, self.device, mixed=mixed)
        trial = Trial(self.model, self.layout, start, few, targets, self.loss, self.dropouts, autocast, close)
        # padding of a stack would count in running statistics
        chosen = engines(trial, numbers=counted.numbers, mixed=mixed, stacks=self.layout == self.trained)
        self.plain, self.engine, self.footprint = chosen.plain, chosen.many, chosen.footprint
        self.perceptrons = chosen.perceptrons
        self.proof = EngineProof(self.plain, self.initial, close)

    def _engine(self, rows: Rows) -> PlainEngine | Kernels | StackedEngine:
        """Return the engine for outputs of some rows; autograd is the fastest for one row, and takes any module."""
        return self.plain if len(rows) == 1 else self.engine

    def stepper(self, work: training.Work) -> PlainEngine | FastEngine:
        """Return the engine for steps, which follows from shapes; see :class:`PlainEngine`."""
        width = int(work.schedule.widths.max(initial=0))
        fast = self.perceptrons if self.augment is None else None  # numpy reads samples where they lie
        if fast is not None and fast.suits(width):
            return fast
        return self.plain if self.engine.block(width) == 1 else self._engine(work.rows)

    def _proven(self, work: training.Work, engine: PlainEngine | FastEngine) -> PlainEngine | FastEngine:
        """Return an engine if it computes the first batch of each peer as plain torch does, else plain torch."""
        other = copy.copy(self)  # whose samples nothing changes, and whose gradients nothing clips
        other.augment, other.recipe = None, replace(self.recipe, max_norm=None)
        if self.proof.holds(work, learner=other, engine=engine):
            return engine
        warnings.warn(SLOWER_SENTENCE, stacklevel=3)
        self.perceptrons, self.engine, self.plain.threadable = None, self.plain, False
        return self.plain

    def on(self, federation: Federation) -> Self:
        """Return the same learner on other data of the same shape."""
        other = copy.copy(self)
        if federation.dataset is not self.federation.dataset:
            whole = not self.features.is_floating_point()  # as the model takes them
            tensors = inputs(federation.dataset, device=self.device, dtype=self.dtype, whole=whole)
            other.features, other.targets = tensors
        other.federation = federation
        other.parts = self._samples_of_parts(federation)
        other.proof = EngineProof(self.plain, self.initial, self.proof.tolerance)
        return other

    def begin(self, peers: Sequence[str]) -> Rows | None:
        """Return the models ``[R, P]`` with which peers begin, where each has a file of its own; else ``None``.

        Raises
        ------
        ModelError
            There is no file of a peer, or it holds a model of another shape.
        """
        if self.models is None:
            return None
        files = [model_file_of(self.models, peer) for peer in peers]
        return torch.stack([self.divided.row(weights(file), source=file) for file in files])  # [R, P]

    def _train(
        self, start: training.Work, *, correction: Correction | None = None, slope: training.Slope | None = None
    ) -> training.Work:
        """Return a copy of rows and memory after all steps of a round.

        Code of the user that draws or keeps state is refused; the code of kernels is all p2pfl's.
        """

        def train() -> training.Work:
            memory = {name: value.clone() for name, value in start.memory.items()}
            work = replace(start, rows=start.rows.clone(), memory=memory)
            engine = self._proven(work, self.stepper(work))
            self.model.train()
            training.train(work, learner=self, engine=engine, correction=correction, slope=slope)
            return work

        def numbers(work: training.Work) -> list[torch.Tensor]:
            return [work.rows if slope is not None else work.rows - start.rows, work.loss]

        with self.alone, checks.blame_model(self.model, doing=f"in round {start.round}"):
            if isinstance(self.engine, Kernels) and self.augment is None:
                return train()
            return self.repeatable(train, numbers=numbers)

    def repeatable(
        self, compute: Callable[[], Result], *, numbers: Callable[[Result], Sequence[torch.Tensor]]
    ) -> Result:
        """Return the result of code of the user, see :func:`p2pfl.learning.engine_proof.repeatable`."""
        by = "the model" if self.augment is None else f"the model or {self.augment.name}"
        state = partial(ModelState, self.model, own=self.layout.names)
        return repeatable(compute, numbers=numbers, state=state, by=by)

    def _score(
        self, compute: Callable[[], Result], *, part: str, numbers: Callable[[Result], Sequence[torch.Tensor]]
    ) -> Result:
        """Return the scores of models in evaluation."""
        with self.alone, checks.blame_model(self.model, doing=f"on the {part} part"):
            self.model.eval()
            return self.repeatable(compute, numbers=numbers)

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return one row ``[P]`` under the names of the model, including frozen tensors."""
        return self.divided.state_dict(row)
