""":class:`Predictor`, predictions of a saved model on a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import InputError, LearningError, ModelError
from p2pfl.core.tensors import torch
from p2pfl.core.texts import write_csv
from p2pfl.data.data_description import Field
from p2pfl.data.tables.cells import TextCells, read
from p2pfl.data.tables.encoding import code_cells, labels, numbers
from p2pfl.experiment.accounts import admitted_table
from p2pfl.experiment.catalogue import model_traits
from p2pfl.results.models.model_file import SavedModel, load
from p2pfl.results.models.prepared_model import Prepared


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for the rows of a table, in their order.

    Parameters
    ----------
    values
        Probabilities ``[n, C]`` of the classes, or predicted numbers ``[n]``.
    classes
        Names of the classes; empty for a regression.
    """

    values: npt.NDArray[np.float64]
    classes: tuple[str, ...]

    @property
    def labels(self) -> list[str]:
        """Names of the most likely classes."""
        return [self.classes[index] for index in self.values.argmax(1)]

    def write(self, file: TextIO) -> None:
        """Write them as CSV: ``prediction``, and for classes ``probability of NAME`` of each."""
        values = self.values.tolist()
        head = ["prediction", *(f"probability of {name}" for name in self.classes)]
        labelled = [[label, *row] for label, row in zip(self.labels, values, strict=True)] if self.classes else None
        write_csv(file, [head, *(labelled or [[value] for value in values])])


class Predictor:
    """Model that takes tables.

    Parameters
    ----------
    saved
        The model with its description, see :meth:`load`.
    others
        Models that groups of peers have trained apart on the same columns. Then predictions are means over all models,
        and who withdraws from one group leaves the other models as they are.

    Raises
    ------
    InputError
        The model describes data and predicts nothing, or another one takes or predicts something else.

    References
    ----------
    Bourtoule et al., Machine unlearning, IEEE S&P 2021 (SISA).
    """

    block = 65_536
    """Samples that are predicted at once."""

    samples = False
    """True if it takes arrays of samples instead of tables."""

    def __init__(self, saved: SavedModel, *others: SavedModel) -> None:
        traits = model_traits(saved.about.model.name)
        if not traits.predicts:
            prints = f"; p2pfl {traits.command} prints it" if traits.command else ""
            raise InputError(f"{saved.path} is a model {saved.about.model.name}, which predicts nothing{prints}")
        for other in others:
            if _form(other) != _form(saved):
                raise InputError(
                    f"{other.path} and {saved.path} take other columns or predict other values, so their predictions "
                    "have no mean; name models of one experiment"
                )
        self.saved = saved
        self.module = Prepared(saved)
        self._modules = (self.module, *map(Prepared, others))

    @classmethod
    def load(cls, *paths: str | Path, model: torch.nn.Module | str | None = None) -> Self:
        """Load ``NAME.safetensors`` of a run directory, see :func:`p2pfl.results.models.model_file.load`."""
        return cls(*(load(path, model=model, samples=cls.samples) for path in paths))

    @property
    def fields(self) -> tuple[Field, ...]:
        """Columns that a table must have."""
        return self.saved.fields

    def columns(self, source: Any, *, unaccounted: bool = False) -> npt.NDArray[np.float64]:
        """Return the columns of a table as the exported model takes them, ``[n, C]``.

        Parameters
        ----------
        source, unaccounted
            Table, see :func:`cells_of`.

        Raises
        ------
        InputError
            The table has an account.
        DataError
            A column is missing, or a cell does not fit it.
        """
        cells = cells_of(source, unaccounted=unaccounted)
        training_only = () if self.saved.exact is None else self.saved.exact.training_only
        for field in self.fields:
            if field.name in training_only and field.name not in cells.names:
                cells = cells.beside(field.name, "1" if field.levels is None else field.levels[0])  # has no effect
        return code_cells(cells, self.fields, missing=self.saved.missing).astype(np.float64)

    def predict(self, source: Any, *, unaccounted: bool = False) -> Predictions:
        """Return the predictions for a table.

        Parameters
        ----------
        source, unaccounted
            Table, see :func:`cells_of`. Other columns are not read.

        Returns
        -------
        Predictions
            Probabilities or numbers, a row for each row.

        Raises
        ------
        InputError
            The table has an account, or the model is a part of one.
        DataError
            A column is missing, or a cell does not fit it; the message names both.
        ModelError
            The model refuses the inputs.
        LearningError
            The model does not give one finite output for each class.
        """
        if self.saved.exact is not None and not self.saved.exact.predicts_alone:
            raise InputError(
                f"{self.saved.path} is a part of a model of several peers and predicts nothing by itself; name the "
                "run directory with the parts of all, or predict with --live"
            )
        columns = torch.from_numpy(self.columns(source, unaccounted=unaccounted))  # [n, C]
        values = torch.cat([self._outputs(block) for block in torch.split(columns, self.block)]).numpy()
        classes = self.saved.names
        if values.shape != ((len(columns), len(classes)) if classes else (len(columns),)):
            raise LearningError(
                f"{self.saved.path} gives outputs {tuple(values.shape[1:])} for a sample, and predict writes one value "
                "or one probability of each class; load the file with safetensors, and call the model itself"
            )
        if not np.isfinite(values).all():
            raise LearningError(f"{self.saved.path} does not give finite numbers; train the model again")
        return Predictions(values, classes)

    def _outputs(self, columns: torch.Tensor) -> torch.Tensor:
        try:
            with torch.inference_mode():
                outputs = torch.stack([module(columns) for module in self._modules]).mean(0)
        except Exception as error:  # the code of a model may raise anything, such as IndexError for an unknown code
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ModelError(
                f"{self.saved.path} cannot predict these samples ({reason}); check that they have the "
                f"codes and the form of the training data: {self.saved.about.inputs.raw}"
            ) from error
        return outputs

    def targets(self, source: Any, *, unaccounted: bool = False) -> npt.NDArray[Any]:
        """Return the targets in a table, ``[n]``: positions of classes, or numbers.

        Parameters
        ----------
        source, unaccounted
            Table, see :func:`cells_of`.

        Raises
        ------
        InputError
            The model does not know the name of its target, or the table has an account.
        DataError
            The target is missing, or is no class of the model.
        """
        cells = cells_of(source, unaccounted=unaccounted)
        name = self.saved.about.outputs.target
        if name is None:
            raise InputError(f"{self.saved.path} does not name its target; only models of tables can be evaluated")
        if self.saved.exact is not None and "risks" in self.saved.exact.scored:
            raise InputError(
                f"{self.saved.path} predicts risks, which evaluate does not score; see the scores of the run"
            )
        classes = self.saved.names
        reader = labels if classes else numbers
        return reader(cells, Field(name, classes or None), missing=self.saved.missing, role="target")


def _form(saved: SavedModel) -> tuple[Any, ...]:
    """Return what models whose predictions have a mean share: columns, or shape of samples, and classes or target."""
    about = saved.about
    return saved.fields, about.inputs.shape, about.inputs.raw, saved.missing, saved.names, about.outputs.target


def cells_of(source: Any, *, unaccounted: bool) -> TextCells:
    """Return the cells of a table.

    Parameters
    ----------
    source
        Path of a CSV or Parquet file, a data frame, or cells already read.
    unaccounted
        True if a file that has an account is read all the same, although exact results have no cost that it counts.

    Raises
    ------
    InputError
        The file has an account.
    DataError
        The table cannot be read.
    """
    if isinstance(source, str | Path):
        admitted_table(source, unaccounted=unaccounted)
    return source if isinstance(source, TextCells) else read(source)
