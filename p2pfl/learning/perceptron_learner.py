""":class:`PerceptronLearner`, which trains linear models and perceptrons by numpy, on devices without torch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.rows import Layout, Rows
from p2pfl.core.tensors import needs_torch, torch
from p2pfl.core.traits import LearnerTraits
from p2pfl.data import Federation
from p2pfl.learning.data_checks import check_outputs, inputs
from p2pfl.learning.learner import Correction
from p2pfl.learning.losses import cross_entropy, squared_error
from p2pfl.learning.models import model_file_of, names_models, read_row
from p2pfl.learning.step_learner import Result, StepLearner
from p2pfl.learning.steps import training
from p2pfl.learning.steps.augmentation import Augmentation
from p2pfl.learning.steps.batching import BLOCK_BYTES, Footprint
from p2pfl.learning.steps.perceptrons import LayerKind, Perceptrons


class PerceptronLearner(StepLearner):
    """Local training of perceptrons as :class:`p2pfl.learning.TorchLearner` does it, to rounding.

    Initial values, names of tensors, batches and scores are those of the models ``linear`` and ``mlp`` of torch.

    Parameters
    ----------
    widths
        Numbers of features, of units in each hidden layer, and of outputs.
    federation
        Samples of each peer.
    seed
        Seed of initial values and batches.
    pretrained
        File of safetensors with the values to begin with; one with ``{peer}`` in its name for each peer.
    **options
        Other arguments of :class:`p2pfl.learning.TorchLearner`; the optimiser is ``sgd`` without momentum.

    Raises
    ------
    ModelError
        The loss or an option needs torch, or a file does not fit the model.

    Examples
    --------
    >>> x, y = torch.eye(4), torch.tensor([0, 1, 0, 1])
    >>> from p2pfl.data import gather
    >>> learner = PerceptronLearner([4, 2], gather({"ada": (x, y), "bob": (x, 1 - y)}, seed=0), seed=0, rate=0.5)
    >>> learner.fit(learner.start(["ada", "bob"]), peers=["ada", "bob"], round=0).rows.shape == (2, 10)
    True
    """

    traits: ClassVar[LearnerTraits] = LearnerTraits(gradients=True, known_steps=True, any_data=True, torch_model=True)
    augment: Augmentation | None = None

    def __init__(
        self, widths: Sequence[int], federation: Federation, *, seed: int, pretrained: str | None = None, **options: Any
    ) -> None:
        usual: dict[str, Any] = dict.fromkeys(("options", "schedule", "schedule_options", "max_norm", "steps", "loss"))
        usual |= {"metrics": None, "optimizer": "sgd", "rate": 0.1, "schedule_by": "round", "warmup": 0, "batch": 32}
        usual |= {"epochs": 1, "stragglers": 0.0, "device": torch.device("cpu"), "dtype": torch.float32}
        super().__init__(federation, seed=seed, **usual | options)
        if self.loss not in (cross_entropy, squared_error) or self.targets.dim() > 1:
            raise needs_torch(f'learning.loss = "{getattr(self.loss, "__name__", self.loss)}" on these targets')
        self.features = self._features(federation)
        kinds, names, shapes = _layers(widths)
        self.layout = self.trained = Layout(names, shapes)
        initial = torch.from_numpy(draw_initial(widths, seed=int(draw(seed, "start").integers(2**63)))).to(self.dtype)
        self.models = str(pretrained) if names_models(pretrained) else None
        self.initial = (
            initial
            if pretrained is None or self.models
            else read_row(str(pretrained), layout=self.layout, dtype=self.dtype)
        )  # [P]
        self.products = sum(math.prod(pair) for pair in pairwise(widths))
        size = self.initial.itemsize
        self.footprint = Footprint(size * self.layout.size, 2 * size * sum(widths[1:]), BLOCK_BYTES["cpu"])
        self.numpy = Perceptrons(kinds, self.layout, footprint=self.footprint, loss=self.loss)
        if len(self.features):
            parts = [*self.layout.split(self.initial.unsqueeze(0)).values()]
            outputs = self.numpy.outputs(parts, self.features[:1], shared=True)
            check_outputs(federation.dataset, outputs[0], loss=self.loss)

    def _features(self, federation: Federation) -> torch.Tensor:
        return inputs(federation.dataset, device=self.device, dtype=self.dtype, whole=False)[0]

    def on(self, federation: Federation) -> Self:
        """Return the same learner on other data of the same shape."""
        other = copy.copy(self)
        if federation.dataset is not self.federation.dataset:
            other.features = self._features(federation)
            other.targets = inputs(federation.dataset, device=self.device, dtype=self.dtype)[1]
        other.federation, other.parts = federation, self._samples_of_parts(federation)
        return other

    def begin(self, peers: Sequence[str]) -> Rows | None:
        """Return the models ``[R, P]`` with which peers begin, where each has a file of its own; else ``None``."""
        if self.models is None:
            return None
        return torch.stack(
            [read_row(model_file_of(self.models, peer), layout=self.layout, dtype=self.dtype) for peer in peers]
        )  # [R, P]

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return one row ``[P]`` under the names of the model."""
        return {name: part[0].clone() for name, part in self.layout.split(row.detach().unsqueeze(0)).items()}

    def _engine(self, rows: Rows) -> Perceptrons:
        del rows
        return self.numpy

    def _train(
        self, start: training.Work, *, correction: Correction | None = None, slope: training.Slope | None = None
    ) -> training.Work:
        memory = {name: value.clone() for name, value in start.memory.items()}
        work = replace(start, rows=start.rows.clone(), memory=memory)
        training.train(work, learner=self, engine=self.numpy, correction=correction, slope=slope)
        return work

    def _score(
        self, compute: Callable[[], Result], *, part: str, numbers: Callable[[Result], Sequence[torch.Tensor]]
    ) -> Result:
        del part, numbers
        return compute()


def _layers(widths: Sequence[int]) -> tuple[list[LayerKind], tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Return the layers of a perceptron, and names and shapes of its tensors, as in a sequence of modules of torch."""
    kinds: list[LayerKind] = []
    tensors: Mapping[str, tuple[int, ...]] = {}
    for number, (fan_in, fan_out) in enumerate(pairwise(widths)):
        kinds += ["affine"] if number == 0 else ["relu", "affine"]
        place = 1 + 2 * number  # after the layer that flattens features, and between functions
        tensors = {**tensors, f"{place}.weight": (fan_out, fan_in), f"{place}.bias": (fan_out,)}
    return kinds, tuple(tensors), tuple(tensors.values())


def draw_initial(widths: Sequence[int], *, seed: int) -> np.ndarray:
    r"""Return the initial values ``[P]`` that torch's ``Linear`` layers draw from its generator of this seed.

    Weights and biases are uniform in :math:`\pm 1 / \sqrt{n}` with n inputs: the bits are those of a Mersenne twister,
    24 of each word.

    Examples
    --------
    >>> [round(value, 4) for value in draw_initial([2, 1], seed=7).tolist()]
    [0.0494, -0.426, 0.2252]
    """
    words, parts = np.random.RandomState(seed % 2**32), []
    for fan_in, fan_out in pairwise(widths):
        bound = np.float64(np.float32(1 / np.sqrt(fan_in)))
        for count in (fan_in * fan_out, fan_out):
            shares = (words.randint(0, 2**32, size=count, dtype=np.uint32) & (2**24 - 1)) * 2.0**-24
            parts.append((shares * (2 * bound) - bound).astype(np.float32))  # rounded once, as torch's kernels do
    return np.concatenate(parts)
