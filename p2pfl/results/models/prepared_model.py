""":class:`Prepared`, a model with its preprocessing: raw columns in, probabilities or predicted numbers out."""

from collections.abc import Sequence

import numpy as np

from p2pfl.core.tensors import torch
from p2pfl.data.data_description import Field
from p2pfl.results.models.model_file import SavedModel

NO_LEVEL = float("nan")


class Prepared(torch.nn.Module):
    r"""Model for the raw columns of a table.

    It takes one number for each column: the number itself, or the position of a level among the levels of the column,
    counted from 0; NaN stands for a missing cell. It applies the rules for missing cells and unknown levels, encodes
    levels, computes :math:`(x - \mu) / \sigma`, runs the model, and returns the softmax of the outputs, or predicted
    numbers in the unit of the target. Rows with a cell that no rule covers give NaN. Samples that are arrays are only
    scaled, and whole numbers not even that.

    Parameters
    ----------
    saved
        The model.

    Examples
    --------
    >>> fields = (Field("age"), Field("sex", ("f", "m"), missing="m"))
    >>> _tables(fields)["fill"].tolist()
    [nan, 1.0]
    """

    column: torch.Tensor
    level: torch.Tensor
    fill: torch.Tensor
    unknown: torch.Tensor
    count: torch.Tensor
    mean: torch.Tensor
    deviation: torch.Tensor
    shift: torch.Tensor
    stretch: torch.Tensor

    def __init__(self, saved: SavedModel) -> None:
        super().__init__()
        inputs, outputs = saved.about.inputs, saved.about.outputs
        self.model = saved.module
        self.classes = outputs.classes
        self.arrays, self.whole = inputs.columns is None, inputs.whole
        self.shape, self.formula = inputs.shape, saved.formula
        double = saved.exact is not None and not saved.exact.traits.single
        usual = torch.float64 if double else torch.float32
        self.dtype = next((tensor.dtype for tensor in saved.module.parameters()), usual)
        for name, values in _tables(saved.fields).items():
            self.register_buffer(name, values)
        for name, number in (("mean", inputs.mean), ("deviation", inputs.deviation)):
            self.register_buffer(name, torch.tensor(number, dtype=torch.float64))
        for name, number in (("shift", outputs.mean), ("stretch", outputs.deviation)):
            self.register_buffer(name, torch.tensor(number, dtype=torch.float64))

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        """Return probabilities ``[n, classes]`` or predicted numbers ``[n]`` for columns ``[n, C]``, all float64.

        Of the part of a party without labels, they are what it adds for each row, ``[n, k]`` or ``[n]``.
        """
        outputs: torch.Tensor = self.model(self.inputs(columns)).double()
        if self.classes is not None:
            return outputs.softmax(dim=1)
        numbers = outputs * self.stretch + self.shift
        return numbers if numbers.dim() == 2 and numbers.shape[1] > 1 else numbers.reshape(-1)

    def inputs(self, columns: torch.Tensor) -> torch.Tensor:
        """Return the inputs of the model, ``[n, *shape]``."""
        if self.whole:
            return columns
        encoded = columns.flatten(1) if self.arrays else self._encode(columns)  # [n, F]
        scaled = (encoded - self.mean) / self.deviation
        if self.formula is not None:
            return self.formula.apply(scaled).to(self.dtype)
        inputs = scaled.to(self.dtype)
        return inputs if len(self.shape) == 1 else inputs.reshape(-1, *self.shape)

    def _encode(self, columns: torch.Tensor) -> torch.Tensor:
        """Return a number for each feature of a table."""
        filled = torch.where(columns.isnan(), self.fill, columns)  # [n, C]
        level = (filled >= 0) & (filled < self.count) & (filled == filled.floor())
        levels = torch.where(level | (self.count == 0), filled, self.unknown)  # [n, C]
        picked = levels[:, self.column]  # [n, F]
        hot = torch.where(picked.isnan(), picked, (picked == self.level).double())
        return torch.where(self.level.isnan(), picked, hot)


def _tables(fields: Sequence[Field]) -> dict[str, torch.Tensor]:
    """Return the buffers of the encoding: by feature its column and level, by column its rules and number of levels."""
    features = [
        (number, level)
        for number, field in enumerate(fields)
        for level in ([NO_LEVEL] if field.levels is None else range(len(field.levels)))
    ]
    return {
        "column": torch.tensor([number for number, _ in features], dtype=torch.int64),  # [F]
        "level": torch.tensor([float(level) for _, level in features], dtype=torch.float64),  # [F]
        "fill": _column([_rule(field, field.missing) for field in fields]),  # [C]
        "unknown": _column([_rule(field, field.unknown) for field in fields]),  # [C]
        "count": _column([0.0 if field.levels is None else float(len(field.levels)) for field in fields]),  # [C]
    }


def _rule(field: Field, rule: float | str | None) -> float:
    if rule is None:
        return NO_LEVEL
    return float(rule) if field.levels is None else float(field.levels.index(str(rule)))


def _column(values: Sequence[float]) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64))
