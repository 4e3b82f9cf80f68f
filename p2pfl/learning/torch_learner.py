""":class:`TorchLearner`, which trains and evaluates many torch models at once."""

import contextlib
import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import nn

from p2pfl.core.errors import ModelError
from p2pfl.core.process import one_at_a_time
from p2pfl.core.rows import Rows, to_device
from p2pfl.core.traits import LearnerTraits
from p2pfl.data import Federation, IntArray, gather
from p2pfl.learning import checks
from p2pfl.learning.checks import check_inputs, inputs
from p2pfl.learning.engine_proof import SLOWER_SENTENCE, EngineProof, FastEngine, Result, repeatable
from p2pfl.learning.engine_trial import Tolerance, Trial, engines
from p2pfl.learning.evaluation import evaluate, predict_row, tally_rows
from p2pfl.learning.histograms import score_histograms
from p2pfl.learning.lazy_samples import having
from p2pfl.learning.learner import Correction, Fitted, Learner, Memory, Report
from p2pfl.learning.losses import LOSSES, PerSample, binary_cross_entropy, cross_entropy, name_loss, squared_error
from p2pfl.learning.models import model_file_of, names_models, weights
from p2pfl.learning.modules.hidden_state import ModelState
from p2pfl.learning.modules.norms import Norm
from p2pfl.learning.modules.trained_part import divide_model
from p2pfl.learning.set_scores import SET_SCORES, SetScore, choose_metrics, choose_score, choose_usual, r2, scores_of
from p2pfl.learning.steps import training
from p2pfl.learning.steps.augmentation import Augment, make_augmentation
from p2pfl.learning.steps.autograd import PlainEngine
from p2pfl.learning.steps.batching import PeerSamples
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.optimisers import Factor, Recipe
from p2pfl.learning.steps.torch_func import StackedEngine
from p2pfl.privacy.keys import Source

TRIED_SAMPLES = 3
"""Number of samples on which model, loss and metrics are tried before anything starts."""

MAX_POOLED_STEPS = 20_000
"""Steps that the model on pooled data takes at most: enough for what it is compared with."""


class TorchLearner:
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
        self.given, self.seeded = None if isinstance(federation, Federation) else federation, seed is not None
        self.federation = federation if isinstance(federation, Federation) else gather(federation, seed=seed or 0)
        self.seed, self.dtype = checks.check_whole(seed or 0, key="seed", least=0), dtype
        self.batch = None if batch in (None, "all") else checks.check_whole(batch, key="learning.batch")
        self.epochs = checks.check_whole(epochs, key="learning.epochs")
        self.steps = None if steps is None else checks.check_whole(steps, key="learning.steps")
        self.stragglers = checks.finite(stragglers, key="learning.stragglers")
        checks.check_module(model)
        rate = checks.finite(rate, key="learning.rate")
        max_norm = None if max_norm is None else checks.finite(max_norm, key="learning.max_norm")
        if options is not None and not isinstance(options, Mapping):
            raise ModelError(
                f"learning.options is a {type(options).__name__}; give a dict of arguments of the optimiser"
            )
        self.recipe = Recipe(
            optimizer,
            rate,
            dict(options or {}),
            schedule,
            dict(schedule_options or {}),
            schedule_by=schedule_by,
            warmup=warmup,
            max_norm=max_norm,
        )
        self.clock: int | None = None  # a schedule by step counts the steps of each peer
        self.device = checks.find_device(device)
        checks.check_precision(precision, device=self.device, dtype=dtype)
        self.recipe.attempt(dtype)
        dataset = self.federation.dataset
        self.features, self.targets = inputs(dataset, device=self.device, dtype=dtype)
        own = squared_error if dataset.classes is None else cross_entropy
        self.loss = own if loss is None else name_loss(choose_score(loss, key="learning.loss", choices=LOSSES))
        self.augment = make_augmentation(augment)
        wanted: Mapping[str, PerSample | SetScore]
        wanted = choose_usual(dataset, loss=self.loss) if metrics is None else choose_metrics(metrics)
        self.metrics: Mapping[str, PerSample]
        self.whole: Mapping[str, SetScore]
        self.metrics, self.whole = scores_of(wanted)
        self.order: Sequence[str] = ("loss", *wanted, "r2")  # of the scores
        self.r2 = metrics is None and dataset.classes is None and self.loss is not binary_cross_entropy
        self.parts = self._samples_of_parts(self.federation)
        self.alone = one_at_a_time()  # shared by copies: one row at a time is in the model, see bind of Plain
        self.models = str(pretrained) if names_models(pretrained) else None
        common = None if self.models else pretrained
        made = divide_model(model, pretrained=common, frozen=frozen, norm=norm, device=self.device, dtype=dtype)
        self.divided, self.model, self.dropouts, self.initial = made, made.model, made.dropouts, made.initial
        self.layout, self.trained = made.layout, made.trained
        self._choose_engines(precision, scored=loss is None or metrics is None)

    def _samples_of_parts(self, federation: Federation) -> dict[str, PeerSamples]:
        """Return the samples of all peers in each part."""
        parts = {"train": federation.train, "validation": federation.validation, "test": federation.test}
        return {name: PeerSamples(each, self.device) for name, each in parts.items()}

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
            checks.check_outputs(dataset, first, loss=self.loss)
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

    @property
    def bare(self) -> Self:
        """The learner itself."""
        return self

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

    @property
    def home(self) -> torch.device:
        """Device of the rows of a simulation."""
        return self.device

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the learner, as keys of ``[learning]``."""
        recipe, schedule = self.recipe, self.recipe.schedule
        if schedule is not None and not isinstance(schedule, str):  # neighbours compare its name
            schedule = f"{schedule.__module__}:{getattr(schedule, '__qualname__', type(schedule).__qualname__)}"
        named = {} if schedule is None else {"name": schedule, "options": dict(recipe.schedule_options)}
        return {
            "schedule": named | {"by": recipe.schedule_by, "warmup": recipe.warmup},
            "max_norm": recipe.max_norm,
            "optimizer": recipe.optimizer if isinstance(recipe.optimizer, str) else recipe.optimizer.__name__.lower(),
            "rate": recipe.rate,
            "options": dict(recipe.options),
            "batch": "all" if self.batch is None else self.batch,
            "epochs": self.epochs,
            "steps": self.steps,
            "stragglers": self.stragglers,
            "dtype": "float64" if self.dtype == torch.float64 else "float32",
        }

    def adjusted(
        self, *, seed: int, epochs: int | None = None, steps: int | None = None, full_batch: bool = False
    ) -> Self:
        """Return the same learner with a seed where it has none, and with epochs or steps where they are given."""
        made = copy.copy(self)
        if not self.seeded:
            if self.given is not None:
                made = self.on(gather(self.given, seed=seed))
            made.seed, made.seeded = seed, True
        if epochs is not None or steps is not None:
            made.epochs, made.steps = self.epochs if epochs is None else epochs, steps
        if full_batch:
            made.batch, made.epochs, made.steps = None, 1, None
        return made

    def pooled(self, federation: Federation, *, peers: int, rounds: int) -> Self:
        """Return the learner of one peer that does in a round what ``peers`` do together, and waits for nobody.

        A schedule by step counts the steps of a peer of mean size, so that it is as far in a round as those of the
        peers.
        """
        made = self.on(federation)
        made.stragglers = 0.0
        begun = self.begin(self.federation.peers)
        if begun is not None:
            made.models, made.initial = None, begun.mean(0)
        size = int(federation.samples(federation.peers)[0])
        mean = math.ceil(size / peers)
        if self.steps is None:
            made.clock = self.epochs * math.ceil(mean / (self.batch or mean))
            steps = self.epochs * math.ceil(size / (self.batch or size))
        else:
            made.clock, steps = self.steps, self.steps * peers
        if steps * rounds > MAX_POOLED_STEPS and (self.batch is not None or self.steps is not None):
            made.steps = max(1, MAX_POOLED_STEPS // rounds)
        elif self.steps is not None:
            made.steps = steps
        return made

    def drawing(self, source: Source) -> Self:
        """Return the learner itself, as it draws no secrets."""
        del source
        return self

    def start(self, peers: Sequence[str]) -> Rows:
        """Return the trained values of the model for every peer, ``[R, P]``."""
        return self.initial.repeat(len(peers), 1)  # [R, P]

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

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples of each peer, ``[R]`` int64."""
        return self.federation.samples(peers)

    def samples_a_round(self, peers: Sequence[str]) -> int:
        """Return the number of samples in all batches of a round, if every peer takes part."""
        samples = self.samples(peers).numpy()  # [R]
        if self.steps is None:
            return int(self.epochs * samples.sum())
        return int(self.steps * (samples if self.batch is None else np.minimum(samples, self.batch)).sum())

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
        """Train each row on the data of its peer; rows that are not ``active`` do not move.

        Parameters
        ----------
        rows
            Parameters ``[R, P]``; they are not changed.
        peers
            Names of the R peers.
        round
            Round number, which keys batches and dropout and sets the rate of a schedule.
        memory
            Memory of the last round's :class:`Fitted`; ``None`` for a fresh optimiser.
        active
            ``[R]`` bool; ``None`` for all.
        correction
            Function whose result is added to the gradients at every step.

        Raises
        ------
        LearningError
            A loss or a row is no longer finite.
        """
        self._check_rows(rows, peers)
        if self.federation.lazy:
            with having(self, peers, active) as near:
                return near.fit(rows, peers=peers, round=round, memory=memory, active=active, correction=correction)
        schedule = training.schedule_batches(self, peers, round=round, active=active)
        start = training.Work(
            rows=rows.to(self.device, self.dtype),
            memory={name: value.to(self._home(value)) for name, value in (memory or {}).items()},
            schedule=schedule,
            peers=tuple(peers),
            round=round,
        )
        work = self._train(start, correction=correction)
        back = rows.device
        loss = work.loss.to(back)  # [R]
        if back.type == "cpu":
            checks.check_losses(loss, peers=peers, round=round)
        return Fitted(
            rows=work.rows.to(back),
            memory={name: value.to(back) if value.dim() > 1 else value for name, value in work.memory.items()},
            report=Report(loss, torch.from_numpy(work.counts)),
            owned=True,
        )

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

    def _home(self, value: torch.Tensor) -> torch.device:
        """Return the device of a tensor of the optimiser: one number for each row is read on the CPU."""
        return self.device if value.dim() > 1 else torch.device("cpu")

    def gradient(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        step: int = 0,
        whole: bool = False,
        active: torch.Tensor | None = None,
    ) -> Rows:
        r"""Return :math:`\nabla F_k(x_k; \xi)` of each row, ``[R, P]``, zero where a row is not ``active``.

        Parameters
        ----------
        rows, peers, active
            Arguments as in :meth:`fit`.
        round
            Round number, which keys the batch and dropout.
        step
            Number of the batch :math:`\xi` in the round, counted from 0; epochs follow each other.
        whole
            True if :math:`\xi` is the whole training part instead.
        """
        self._check_rows(rows, peers)
        if self.federation.lazy:
            with having(self, peers, active) as near:
                return near.gradient(rows, peers=peers, round=round, step=step, whole=whole, active=active)
        schedule = training.schedule_batches(self, peers, round=round, active=active, only=step, whole=whole)
        start = training.Work(rows.to(self.device, self.dtype), {}, schedule, tuple(peers), round, first=step)
        work = self._train(start, slope=training.Slope())
        if rows.device.type == "cpu":
            checks.check_losses(work.loss.cpu(), peers=peers, round=round)
        awake = to_device(torch.from_numpy(work.counts > 0), self.device).unsqueeze(-1)  # [R, 1]
        work.rows[:, self.trained.size :] = 0  # running statistics have no gradient
        return torch.where(awake, work.rows, 0).to(rows.device)

    def rate(self, round: int) -> float:
        """Return the step size of a round.

        Raises
        ------
        ModelError
            The rate changes within a round.
        """
        if self.recipe.paced:
            raise ModelError(
                "this algorithm needs one learning rate in a round, but learning.schedule changes it at each "
                "step; leave them out, or take another algorithm"
            )
        return float(self.recipe.settings(round)["lr"])  # type: ignore[arg-type]

    def check_schedule(self, rounds: int) -> None:
        """Check the learning rates of ``rounds`` rounds, see :meth:`p2pfl.learning.steps.optimisers.Recipe.check`."""
        samples = self.federation.largest
        each = 1 if self.batch is None else -(-samples // self.batch)
        self.recipe.check(rounds, steps=self.epochs * each if self.steps is None else self.steps)

    def _check_rows(self, rows: Rows, peers: Sequence[str]) -> None:
        expected = (len(peers), self.layout.size)
        if tuple(rows.shape) != expected:
            raise ModelError(
                f"the rows have shape {tuple(rows.shape)}, not {expected}, for {len(peers)} peers; take them from start"
            )

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return by name the mean loss and metrics of each row on the samples of its peer, each ``[R]`` float64.

        ``part`` is ``train``, ``validation`` or ``test``; a peer without samples in it scores NaN.
        """
        self._check_rows(rows, peers)
        if part == "train" and self.federation.lazy:
            with having(self, peers) as near:
                return near.evaluate(rows, peers=peers, part=part)
        stack, samples = rows.to(self.device, self.dtype), self.parts[part].of(tuple(peers))
        compute = partial(evaluate, self, stack, samples, engine=self._engine(rows))
        scores = self._score(compute, part=part, numbers=lambda scores: [*scores.values()])
        return {name: score.to(rows.device) for name, score in scores.items()}

    @property
    def scoring(self) -> Mapping[str, PerSample | SetScore]:
        """Scores by name, as functions of outputs and targets; of whole sets only those of p2pfl."""
        scores: dict[str, PerSample | SetScore] = {"loss": self.loss, **self.metrics}
        scores |= {name: metric for name, metric in self.whole.items() if metric in SET_SCORES.values()}
        return scores | ({"r2": r2} if self.r2 else {})

    def outputs(self, row: torch.Tensor, *, peer: str, part: str = "test") -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs ``[n, *outputs]`` of a model ``[P]`` on a peer's samples and their targets, on the CPU."""
        if part == "train" and self.federation.lazy:
            with having(self, (peer,)) as near:
                return near.outputs(row, peer=peer, part=part)
        stack, samples = row.unsqueeze(0).to(self.device, self.dtype), self.parts[part].of((peer,))
        compute = partial(predict_row, self, stack, samples, engine=self._engine(stack))
        return self._score(compute, part=part, numbers=lambda both: both[:1])

    def tallies(self, rows: Rows, *, peers: Sequence[str]) -> torch.Tensor:
        """Return histograms of what each row predicts for the test part of its peer, ``[R, T]`` int64.

        Sums of them over peers give the scores of :func:`p2pfl.learning.histograms.score_histograms`. T is 0 unless the
        model is a classifier of single samples under the cross-entropy.
        """
        classes = self.federation.dataset.classes
        if classes is None or self.loss is not cross_entropy or self.targets.dim() > 1:
            return torch.zeros(len(rows), 0, dtype=torch.int64)
        self._check_rows(rows, peers)
        stack, samples = rows.to(self.device, self.dtype), self.parts["test"].of(tuple(peers))
        compute = partial(tally_rows, self, stack, samples, engine=self._engine(rows), classes=classes)
        return self._score(compute, part="test", numbers=lambda counts: [counts.double()]).cpu()

    def tallied(self, row: torch.Tensor, total: IntArray, *, copies: int) -> dict[str, float]:
        """Return the scores of a model ``[P]`` that follow from the sum of its :meth:`tallies` over all peers."""
        del row
        return score_histograms(total, copies=copies)

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return one row ``[P]`` under the names of the model, including frozen tensors."""
        return self.divided.state_dict(row)


def home(learner: Learner) -> torch.device:
    """Return the device of the rows of a simulation: that on which the learner trains.

    Norms and sums are taken in double precision, so a device without it (``mps``) trains and the CPU does the rest. The
    rows of a learner without an attribute ``home`` stay on the CPU.
    """
    device = getattr(learner.bare, "home", None)
    return device if isinstance(device, torch.device) and device.type != "mps" else torch.device("cpu")
