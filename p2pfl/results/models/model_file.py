"""A saved model: the parameters, and the description in the metadata of its safetensors file."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import safetensors
from msgspec import Meta

from p2pfl.core.errors import DataError, InputError, ModelError, P2PFLError
from p2pfl.core.tensors import TORCH_INSTALLED, torch
from p2pfl.core.tensors import load as load_tensors
from p2pfl.data.data_description import Field
from p2pfl.data.tables.cells import MISSING
from p2pfl.data.tables.formula import Formula
from p2pfl.experiment.catalogue import MODELS as EXACT
from p2pfl.experiment.catalogue import SAVED_MODELS
from p2pfl.experiment.parts.formula_parts import FORMULA, formula_of
from p2pfl.learning.exact_model import ExactModel
from p2pfl.learning.models import MODELS, build
from p2pfl.results.models.numpy_model import PERCEPTRONS, of_exact, of_perceptron
from p2pfl.results.saved_models import KEY, METADATA, WORD_BYTES

Size = Annotated[int, Meta(ge=1)]
Numbers = float | tuple[float, ...]


class Architecture(msgspec.Struct, frozen=True):
    """Name and options that build the model, and what became of its batch normalisation."""

    name: str
    options: dict[str, Any] = {}
    norm: Literal["frozen", "group", "local"] | None = None


class SavedColumn(msgspec.Struct, frozen=True):
    """Column of a table, as in :class:`p2pfl.data.data_description.Field`."""

    name: str
    levels: tuple[str, ...] | None = None
    missing: float | str | None = None
    unknown: str | None = None
    integer: bool = False
    codes: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    outside_missing: bool = False
    since: str | None = None
    drop: bool = False


class SavedCells(msgspec.Struct, frozen=True):
    """Rules for reading the text of a cell, as in :class:`p2pfl.data.data_description.Cells`."""

    missing: tuple[str, ...] = tuple(sorted(MISSING))
    stripped: bool = True


class Inputs(msgspec.Struct, frozen=True):
    """Columns and scaling of the input, whether it takes whole numbers, and whether owners declared the columns."""

    raw: str
    shape: tuple[Annotated[int, Meta(ge=0)], ...]
    columns: tuple[SavedColumn, ...] | None
    mean: Numbers
    deviation: Numbers
    cells: SavedCells | None = None
    whole: bool = False
    declared: bool = False


class SavedOutputs(msgspec.Struct, frozen=True):
    """Meaning of the outputs of the model."""

    classes: Size | None
    class_names: tuple[str | int | float, ...] | None
    target: str | None
    mean: float
    deviation: float


class Constants(msgspec.Struct, frozen=True):
    """Frozen tensors of the model, which are not in the file, and the seed with which a class of your own made them."""

    digest: str
    tensors: tuple[str, ...]
    seed: int = 0


class ModelContent(msgspec.Struct, frozen=True):
    """Content of ``model.json`` that predictions need."""

    version: Literal[1]
    model: Architecture
    task: Literal["classification", "regression"]
    loss: str
    inputs: Inputs
    outputs: SavedOutputs
    constants: Constants | None = None


@dataclass(frozen=True, eq=False)
class SavedModel:
    """Model as a file describes it, with its parameters.

    Parameters
    ----------
    path
        The file.
    about
        Description of inputs and outputs.
    module
        The model, in evaluation mode.
    fields
        Columns of its table.
    exact
        The model that follows from totals; ``None`` for other models.
    formula
        Formula that makes the features of the columns; ``None`` if there is none.
    """

    path: Path
    about: ModelContent
    module: torch.nn.Module
    fields: tuple[Field, ...]
    exact: ExactModel | None = None
    formula: Formula | None = None

    @property
    def columns(self) -> tuple[Field, ...]:
        """Columns that the features are those of."""
        return self.fields if self.formula is None else self.formula.fields

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes; their positions where they have no names."""
        outputs = self.about.outputs
        return tuple(map(str, outputs.class_names or range(outputs.classes or 0)))

    @property
    def missing(self) -> frozenset[str]:
        """Texts of a missing cell, in lower case."""
        return frozenset((self.about.inputs.cells or SavedCells()).missing)


def load(path: str | Path, *, model: torch.nn.Module | str | None = None, samples: bool = False) -> SavedModel:
    """Load a saved model.

    A file from others cannot run code: safetensors holds numbers, the description is JSON, and a class that it names
    is imported only if ``model`` names the same one.

    Parameters
    ----------
    path
        ``NAME.safetensors`` of a run directory.
    model
        Your own module, whose parameters are replaced by those of the file, or ``package.module:Class`` of the class
        that the file names; needed for a model that is not one of p2pfl's.
    samples
        Whether the model is to take arrays, such as pictures or tokens, in place of tables.

    Returns
    -------
    SavedModel
        The model.

    Raises
    ------
    InputError
        The file is missing or damaged, is not one that p2pfl has written, or takes tables where it should take arrays
        or the other way round.
    ModelError
        The parameters do not fit the model, or its class is not the named one.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a model in it, such as {path / 'peers' / 'NAME.safetensors'}")
    try:
        with safetensors.safe_open(path, "pt" if TORCH_INSTALLED else "np") as file:
            metadata = file.metadata() or {}
            content = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
    except (OSError, safetensors.SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is not a safetensors file ({reason}); name peers/NAME.safetensors of a run") from None
    tensors = content if TORCH_INSTALLED else {name: torch.from_numpy(each) for name, each in content.items()}
    return restore(path, metadata, tensors, model=model, samples=samples)


def load_bytes(
    path: Path, data: bytes, *, model: torch.nn.Module | str | None = None
) -> tuple[SavedModel, dict[str, str]]:
    """Return the model in the content of a file, and its metadata; later changes of the file do not reach it.

    A model without column names takes arrays.

    Parameters
    ----------
    path, data
        Path of the file, for errors, and its content.
    model
        As for :func:`load`.

    Raises
    ------
    InputError
        As :func:`load`.
    ModelError
        Likewise.
    """
    try:
        tensors = load_tensors(data)
        header = msgspec.json.decode(data[WORD_BYTES : WORD_BYTES + int.from_bytes(data[:WORD_BYTES], "little")])
        metadata = msgspec.convert(header.get(METADATA, {}), dict[str, str])
    except (safetensors.SafetensorError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is not a safetensors file ({reason}); name peers/NAME.safetensors of a run") from None
    samples = _read_content(path, metadata).inputs.columns is None
    return restore(path, metadata, tensors, model=model, samples=samples), metadata


def restore(
    path: Path,
    metadata: Mapping[str, str],
    tensors: dict[str, torch.Tensor],
    *,
    model: torch.nn.Module | str | None = None,
    samples: bool = False,
) -> SavedModel:
    """Return the model of a file that has been read, or of a run in memory.

    Parameters
    ----------
    path
        Path of the file, or a name for errors.
    metadata, tensors
        Content of the file.
    model, samples
        As for :func:`load`.

    Raises
    ------
    InputError
        As :func:`load`.
    ModelError
        Likewise.
    """
    about = _read_content(path, metadata)
    if samples and about.inputs.columns is not None:
        raise InputError(f"{path} takes the rows of a table; name a CSV or Parquet file")
    fields = () if samples else _fields(path, about)
    formula = _formula(path, about, fields)
    exact = exact_model(path, about, fields, formula)
    return SavedModel(path, about, _module(path, about, tensors, model=model, exact=exact), fields, exact, formula)


def _formula(path: Path, about: ModelContent, fields: tuple[Field, ...]) -> Formula | None:
    if FORMULA not in about.model.options or about.model.name not in EXACT:
        return None
    try:
        return formula_of(about.model.name, about.model.options, fields)
    except P2PFLError as error:
        raise InputError(f"{path}: {error}") from None


def _read_content(path: Path, metadata: Mapping[str, str]) -> ModelContent:
    if KEY not in metadata:
        raise InputError(
            f"{path} does not describe its inputs, as that of a helper, of no round, or of a learner of your own; name "
            "the model of another peer, or let your learner describe its model"
        )
    try:
        about = msgspec.json.decode(metadata[KEY], type=ModelContent)
    except msgspec.MsgspecError as error:
        raise InputError(
            f"{path} describes its inputs in a way that this release does not read ({error}); use the release of "
            "p2pfl that wrote it"
        ) from None
    names, classes = about.outputs.class_names, about.outputs.classes
    if (about.task == "classification") != (classes is not None) or (names is not None and len(names) != classes):
        raise InputError(f"{path} contradicts itself on its classes; save the model again")
    return about


def _fields(path: Path, about: ModelContent) -> tuple[Field, ...]:
    if about.inputs.columns is None:
        raise InputError(
            f'{path} takes {about.inputs.raw}, which have no column names; train on `data.name = "table"` to use a '
            "model on tables, or give p2pfl predict a .npy file of such samples"
        )
    try:
        fields = tuple(_field(column) for column in about.inputs.columns)
        Field(about.outputs.target or "target", tuple(map(str, about.outputs.class_names or ())))  # names are shown
    except DataError as error:
        raise InputError(f"{path}: {error}") from None
    width = sum(1 if field.levels is None else len(field.levels) for field in fields)
    sizes = [len(each) for each in (about.inputs.mean, about.inputs.deviation) if isinstance(each, tuple)]
    if about.inputs.cells is not None and not about.inputs.cells.stripped:
        raise InputError(
            f"{path} does not strip white space around cells, which this release always does; use the release of p2pfl "
            "that wrote it"
        )
    if about.inputs.shape != (width,) or any(size != width for size in sizes):
        raise InputError(f"{path} contradicts itself on its {width} inputs; save the model again")
    for field in fields:
        rules = [rule for rule in (field.missing, field.unknown) if rule is not None]
        fits = (
            field.unknown is None and isinstance(field.missing, float | None)
            if field.levels is None
            else all(rule in field.levels for rule in rules)
        )
        if not fits:
            raise InputError(f'{path} contradicts itself on column "{field.name}"; save the model again')
    return fields


def _field(column: SavedColumn) -> Field:
    """Return a column as it is declared; "nan" is a missing number that stays missing."""
    options = msgspec.structs.asdict(column)
    stays = column.levels is None and column.missing == "nan"
    return Field(**options | ({"missing": float("nan")} if stays else {}))


def _module(
    path: Path,
    about: ModelContent,
    tensors: dict[str, torch.Tensor],
    *,
    model: torch.nn.Module | str | None,
    exact: ExactModel | None,
) -> torch.nn.Module:
    name = about.model.name
    if not TORCH_INSTALLED:
        return _numpy_module(path, about, tensors, exact=exact)
    if isinstance(model, torch.nn.Module):
        module = copy.deepcopy(model)
    elif exact is not None:
        with torch.device("meta"):
            module = exact.predictor(tensors)
    elif name in MODELS or name == model:
        # On the device "meta" a built-in model takes no memory, whatever size the file claims.
        settings: dict[str, Any] = {
            "shape": about.inputs.shape,
            "classes": about.outputs.classes,
            "options": dict(about.model.options),
        }
        with torch.device("meta" if name in MODELS else "cpu"):
            module = build(name, **settings, seed=0 if about.constants is None else about.constants.seed)
            if about.model.norm == "group":  # the other kinds keep the layers
                from p2pfl.learning.modules.norms import replace_norms  # noqa: PLC0415 (it needs torch)

                replace_norms(module, "group")
    else:
        raise ModelError(
            f"{path} names the model {name}, whose import runs its code; if you trust it, add --trust-model {name}"
        )
    tensors = tensors | _constants(path, about, module)
    try:
        module.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as error:
        raise ModelError(
            f"{path} does not fit the model {name} that it names ({' '.join(str(error).split())}); save it again"
        ) from None
    return module.eval().requires_grad_(requires_grad=False)


def _numpy_module(
    path: Path, about: ModelContent, tensors: dict[str, torch.Tensor], *, exact: ExactModel | None
) -> torch.nn.Module:
    """Return the model on a device without torch."""
    name = about.model.name
    if exact is not None:
        return of_exact(path, name, exact, tensors)
    if name not in PERCEPTRONS or about.constants is not None:
        raise ModelError(
            f"{path} is a model {name}, whose predictions need torch, which is not installed here; run pip install "
            "torch, or predict on a computer that has it"
        )
    return of_perceptron(path, about, tensors)


def _constants(path: Path, about: ModelContent, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the frozen tensors of a module that the file does not contain."""
    if about.constants is None:
        return {}
    from p2pfl.learning.modules.trained_part import digest  # noqa: PLC0415 (it needs torch)

    own = module.state_dict()
    constants = {name: own[name] for name in about.constants.tensors if name in own}
    if len(constants) < len(about.constants.tensors) or digest(constants) != about.constants.digest:
        raise ModelError(
            f"{path} holds what was trained, and the frozen tensors of the model are others than in the training; pass "
            "a module with the same pretrained weights as `model`"
        )
    return constants


def exact_model(
    path: Path, about: ModelContent, fields: tuple[Field, ...], formula: Formula | None = None
) -> ExactModel | None:
    """Return the model that follows from totals which a file describes; ``None`` for other models."""
    kinds = next((kinds for kinds in (EXACT, SAVED_MODELS) if about.model.name in kinds), None)
    if kinds is None:
        return None
    kind = kinds.kind(about.model.name)
    arguments: dict[str, Any] = {
        "features": math.prod(about.inputs.shape),
        "classes": about.outputs.classes,
        "fields": fields,
    }
    parameters = inspect.signature(kind).parameters
    if formula is not None:
        arguments |= {"features": formula.features, "fields": formula.fields, "fit_intercept": formula.intercept}
    left = {"features", "classes", "fields", "rounds", "fit_intercept"} - {*parameters} | {FORMULA}
    try:
        made = kind(**{key: value for key, value in (arguments | about.model.options).items() if key not in left})
    except TypeError as error:
        raise InputError(
            f"{path} describes its model with options that this release does not know ({error}); use the release of "
            "p2pfl that wrote it"
        ) from None
    assert isinstance(made, ExactModel)  # noqa: S101 (a plan refuses other classes before the first round)
    return made
