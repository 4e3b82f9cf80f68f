"""Learner and algorithm from the sections ``[model]`` and ``[learning]``, a user's own code included."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from p2pfl.algorithms import Algorithm, Local
from p2pfl.core.errors import ExperimentError, ModelError
from p2pfl.core.imports import kind_of, translate_errors
from p2pfl.core.registry import find_entry_points
from p2pfl.core.rows import Layout
from p2pfl.core.tensors import TORCH_INSTALLED, needs_torch, torch
from p2pfl.core.traits import Traits
from p2pfl.data import Dataset, Federation
from p2pfl.data.loader import check_name as check_data_name
from p2pfl.data.loader import check_split
from p2pfl.experiment.catalogue import ADDITIVE, ALGORITHMS, MODELS, import_reference, traits_of
from p2pfl.experiment.partitionings import name_of, partitioning
from p2pfl.experiment.parts.formula_parts import FORMULA, formula_of
from p2pfl.experiment.parts.option_tables import checked_options, parameter_types
from p2pfl.experiment.parts.peer_graph import check_options
from p2pfl.experiment.schema import ENDLESS, Experiment, ScheduleSettings
from p2pfl.learning import ExternalLearner, Learner, build
from p2pfl.learning.exact_learner import ExactLearner
from p2pfl.learning.exact_model import ExactModel
from p2pfl.learning.library_names import is_reference
from p2pfl.learning.losses import LOSSES, PerSample
from p2pfl.learning.models import check_name as check_model_name
from p2pfl.learning.models import names_models, read_row
from p2pfl.learning.perceptron_learner import PerceptronLearner
from p2pfl.learning.set_scores import choose_metrics, choose_score
from p2pfl.learning.steps.augmentation import Augmentation
from p2pfl.learning.steps.optimisers import Recipe
from p2pfl.learning.steps.optimisers import find_torch_key as find_optimiser_key
from p2pfl.privacy.keys import SecretSource, Source
from p2pfl.privacy.mask_size import update_size
from p2pfl.privacy.noise import exact_normals

if TYPE_CHECKING:
    from p2pfl.learning import TorchLearner
    from p2pfl.learning.modules.norms import Norm


def learner(experiment: Experiment, federation: Federation, *, peers: int = 1, source: Source | None = None) -> Learner:
    """Return the learner of an experiment on a federation.

    Parameters
    ----------
    experiment
        Experiment with the sections ``[model]`` and ``[learning]``.
    federation
        Data of the peers.
    peers
        Factor of the steps of a round, if they are given as a number; so one model on pooled data takes as many as
        all peers together.
    source
        Source of the noise that hides samples; the operating system's by default.

    Returns
    -------
    Learner
        The learner.

    Raises
    ------
    InputError
        The model, the optimiser or the user's own code does not work.
    """
    learning, model = experiment.learning, experiment.model
    if learning.learner is not None:
        return own_learner(experiment, federation)
    if not TORCH_INSTALLED and (key := find_torch_key(experiment)) is not None:
        raise needs_torch(key)
    traits = traits_of(learning.algorithm)
    if (divided := partitioning(experiment.data)) is not None:
        return divided.learner(experiment, federation)
    if traits.additive:
        return ExactLearner(exact_model(experiment, federation), federation)
    full, steps, schedule = traits.full_batch, _steps(experiment, traits), learning.scheduling
    shared: dict[str, Any] = {
        "seed": experiment.seed,
        "optimizer": learning.optimizer,
        "rate": learning.rate,
        "options": learning.options,
        "schedule": schedule.name,
        "schedule_options": schedule.options,
        "schedule_by": schedule.by,
        "warmup": schedule.warmup,
        "max_norm": None if learning.example_noise else learning.max_norm,
        "batch": None if full or learning.batch == "all" else learning.batch,
        "epochs": 1 if full else learning.epochs,
        "steps": None if steps is None else steps * peers,
        "stragglers": learning.straggling,
        "loss": _loss(experiment),
        "metrics": choose_metrics(learning.metrics, find=import_reference) or None,
        "pretrained": None if _fills_library(experiment) else model.pretrained,
        "dtype": torch.float64 if learning.dtype == "float64" else torch.float32,
    }
    made = (
        _torch_learner(experiment, federation, shared, source)
        if TORCH_INSTALLED
        else PerceptronLearner(_widths(experiment, federation.dataset), federation, **shared)
    )
    made.check_schedule(experiment.horizon)
    return made


EXACT = "p2pfl.plugins.exact."
"""Prefix of the modules with models that follow from totals, which numpy computes."""


def find_torch_key(experiment: Experiment) -> str | None:
    """Return the first key of an experiment that needs torch; ``None`` if its peers do without.

    Code of the user's own may need it, too.

    Examples
    --------
    >>> from p2pfl.experiment import read
    >>> find_torch_key(read({"model": {"name": "cnn"}}))
    'model.name = "cnn"'
    """
    learning, model, schedule = experiment.learning, experiment.model, experiment.learning.scheduling.name
    if (divided := partitioning(experiment.data)) is not None:
        known = divided.traits.numpy_models
        key = f'model.name = "{model.name}"' if known else name_of(experiment.data)
        return None if model.name in known else key
    exact = find_entry_points("p2pfl.models").get(model.name)
    by_numpy = model.name in {"linear", "mlp"} or (exact is not None and exact.value.startswith(EXACT))
    needed = {
        f'model.name = "{model.name}"': not by_numpy,
        "model.frozen": bool(model.frozen),
        "model.norm": model.norm is not None,
        "learning.example_noise": bool(learning.example_noise),
        "learning.augment": learning.augment is not None,
        f'learning.device = "{learning.device}"': learning.device not in {"auto", "cpu"},
        'learning.dtype = "mixed"': learning.dtype == "mixed",
        f'learning.loss = "{learning.loss}"': learning.loss not in {None, "cross_entropy", "squared_error"},
    }
    keys = [key for key, wanted in needed.items() if wanted]
    return keys[0] if keys else find_optimiser_key(learning.optimizer, learning.options, schedule)


def _widths(experiment: Experiment, dataset: Dataset) -> list[int]:
    """Return the widths of a perceptron, from its features to its outputs."""
    outputs = _outputs(experiment, dataset)
    usual = 1 if dataset.classes is None else dataset.classes
    hidden = experiment.model.hidden if experiment.model.name == "mlp" else ()
    return [math.prod(dataset.shape), *hidden, usual if outputs is None else outputs]


def _torch_learner(
    experiment: Experiment, federation: Federation, shared: Mapping[str, Any], source: Source | None
) -> TorchLearner:
    """Return the learner of a torch model."""
    from p2pfl.learning.example_private import ExamplePrivateLearner, grid_deviation  # noqa: PLC0415 (it needs torch)
    from p2pfl.learning.torch_learner import TorchLearner  # noqa: PLC0415 (it needs torch)

    learning, model = experiment.learning, experiment.model
    kind: Callable[..., TorchLearner] = TorchLearner
    if learning.example_noise:
        kind = partial(
            ExamplePrivateLearner,
            noise=learning.example_noise,
            clip=learning.example_clip,
            source=source or SecretSource(),
            normals=exact_normals(grid_deviation(noise=learning.example_noise, clip=learning.example_clip)),
        )
    return kind(
        _model(experiment, federation),
        federation,
        augment=_augmenting(learning.augment),
        frozen=model.frozen,
        norm=_norm(experiment),
        device=learning.device,
        precision="mixed" if learning.dtype == "mixed" else "full",
        **shared,
    )


def _loss(experiment: Experiment) -> PerSample | None:
    """Return the loss of an experiment; ``None`` for that of its data."""
    wanted = experiment.learning.loss
    loss: PerSample | None = None
    if wanted is not None:
        loss = choose_score(wanted, key="learning.loss", choices=LOSSES, find=import_reference)
    return loss


GIVEN = (*("rate", "batch", "epochs", "steps", "optimizer", "options", "max_norm", "device", "dtype"),)
"""Keys of ``[learning]`` that a factory of learners is given where it has a parameter of that name."""


def own_learner(experiment: Experiment, federation: Federation) -> Learner:
    """Return the learner that ``learning.learner`` makes.

    The factory receives those of these that it has parameters for: ``federation`` (the data of the peers), ``peers``
    (names of the local ones), ``model`` (the torch module of ``[model]``), ``seed``, ``rounds``, keys of ``[learning]``
    by their names, and ``learning.learner.options``.

    Returns
    -------
    Learner
        The result of the factory.

    Raises
    ------
    ExperimentError
        The factory cannot be imported, has other parameters, raises an exception or returns no learner.
    """
    wanted = experiment.learning.own_learner
    assert wanted is not None  # noqa: S101 (asked by the caller)
    reference, options = wanted.name, wanted.options
    factory = import_reference(reference, key="learning.learner")
    names = inspect.signature(factory).parameters
    for option in options:
        if option not in names:
            raise ExperimentError(
                f"learning.learner.options: {reference} has no parameter {option}; it has {', '.join(names) or 'none'}"
            )
    schedule, usual = experiment.learning.scheduling, ScheduleSettings()
    needed = {
        "learning.max_norm": ("max_norm", experiment.learning.max_norm is not None),
        "learning.schedule.warmup": ("warmup", schedule.warmup != usual.warmup),
        "learning.schedule.by": ("schedule_by", schedule.by != usual.by),
    }
    for key, (parameter, wanted_there) in needed.items():
        if wanted_there and parameter not in names:
            raise ExperimentError(
                f"{key} has no effect, because {reference} has no parameter {parameter}; leave it out, or add the "
                "parameter"
            )
    given: dict[str, Any] = {key: getattr(experiment.learning, key) for key in GIVEN}
    given |= {"schedule": schedule.name, "schedule_options": schedule.options}
    given |= {"schedule_by": schedule.by, "warmup": schedule.warmup}
    given |= {
        "federation": federation,
        "peers": federation.peers,
        "seed": experiment.seed,
        "rounds": experiment.horizon,
    }
    if "rounds" in names and experiment.endless:
        raise ExperimentError(
            f'rounds = "endless" does not work with {reference}, which asks for the number of rounds; set it to one'
        )
    if "model" in names:
        given["model"] = _model(experiment, federation)
    with translate_errors(reference, key="learning.learner", refused=ExperimentError):
        made = factory(**{key: value for key, value in (given | options).items() if key in names})
    if not isinstance(made, Learner):
        raise ExperimentError(
            f"learning.learner: {reference} returned {type(made).__name__}, which is no learner; return a "
            "p2pfl.ExternalLearner, or an object with the methods of p2pfl.learning.Learner"
        )
    _check_described(made, reference=reference)
    if experiment.model.pretrained is not None and not ("model" in names and _fills_library(experiment)):
        _begin_with(made, experiment.model.pretrained, reference=reference, peers=federation.peers)
    return made


def _check_described(made: Learner, *, reference: str) -> None:
    """Refuse a learner of the user's own whose description is not of the model that it trains, before it trains."""
    if not isinstance(made, ExternalLearner):
        return
    try:
        with translate_errors("describe", key="it", module=reference.partition(":")[0], refused=ModelError):
            own = made.own_model()
            if own is None or own.name in MODELS:  # the tensors of models from totals follow from their data
                return
            check_model_name(own.name, others=MODELS)
            if not TORCH_INSTALLED:
                return
            model = build(own.name, shape=own.data.shape, classes=own.data.classes, seed=0, options=own.options)
    except ModelError as error:
        raise ExperimentError(f"learning.learner: the description of {reference} does not work: {error}") from error
    tensors = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if tensors != dict(zip(made.layout.names, made.layout.shapes, strict=True)):
        described = Layout(tuple(tensors), tuple(tensors.values()))
        raise ExperimentError(
            f'learning.learner: {reference} describes its model as "{own.name}" with {_tensors(described)}, but its '
            f"layout has {_tensors(made.layout)}; give both the same names and shapes"
        )


def _tensors(layout: Layout) -> str:
    """Return the names and shapes of the first tensors of a layout, and how many there are.

    Examples
    --------
    >>> _tensors(Layout(("weight", "bias"), ((2, 3), (2,))))
    'the tensors weight [2, 3], bias [2]'
    """
    shown = [f"{name} {[*shape]}" for name, shape in zip(layout.names, layout.shapes, strict=True)]
    more = len(shown) - MAX_TENSORS
    return f"the tensors {', '.join(shown[:MAX_TENSORS])}" + (f" and {more} more" if more > 0 else "")


MAX_TENSORS = 6
"""Tensors of a layout that an error lists."""


def _begin_with(made: Learner, pretrained: str, *, reference: str, peers: Sequence[str]) -> None:
    """Let a learner of the user's own begin with saved models, which must be there and fit it."""
    if not isinstance(made, ExternalLearner):
        raise ExperimentError(
            f"model.pretrained: {reference} returned {type(made).__name__}, which begins with a model of its own; "
            "return a p2pfl.ExternalLearner, or hand it the model by learning.learner.options"
        )
    if names_models(pretrained):
        made.models = pretrained
        made.begin(peers)
    else:
        made.initial = read_row(pretrained, layout=made.layout, dtype=made.dtype)


def exact_model(experiment: Experiment, federation: Federation) -> ExactModel:
    """Return the model of an experiment that follows from totals.

    It receives ``features``, ``classes``, ``rounds``, ``seed``, ``owned`` (whether peers own their data) and ``fields``
    (columns of the table) where it has parameters of these names, and ``model.options``.

    Raises
    ------
    ExperimentError
        The model or an option is unknown, an option is missing, or its value has another type.
    """
    model, dataset = experiment.model, federation.dataset
    kind = MODELS.kind(model.name)
    parameters = inspect.signature(kind).parameters
    shown_features = math.prod(dataset.shape)
    given: dict[str, Any] = {
        "features": shown_features,
        "classes": dataset.classes,
        "rounds": experiment.horizon,
        "owned": experiment.data.owned,
        "fields": dataset.description.columns,
        "seed": experiment.seed,
    }
    own = [parameter for parameter in parameters if parameter not in given]
    options = {key: value for key, value in model.options.items() if key != FORMULA}
    values = checked_options(options, parameter_types(kind, without=given), key="model.options", name=model.name)
    needed = [name for name in own if parameters[name].default is inspect.Parameter.empty]
    if missing := [option for option in needed if option not in values]:
        raise ExperimentError(f"model.options.{missing[0]} is missing, and {model.name} needs it; set it")
    if FORMULA in model.options and "fit_intercept" in parameters:
        table = dataset.description.table or ()
        values["fit_intercept"] = formula_of(model.name, model.options, table).intercept
    made = kind(**{key: value for key, value in given.items() if key in parameters}, **values)
    if not isinstance(made, ExactModel):
        raise ExperimentError(
            f"model.name: {model.name} made {kind_of(made)}, which does not follow from exact totals; inherit from "
            "p2pfl.learning.ExactModel"
        )
    made.check()
    event, columns = experiment.data.options.get("event"), dataset.description.columns or ()
    kept = event in {column.name for column in columns} and event != made.event_kinds
    if kept and made.scored != "nothing":
        raise ExperimentError(
            f'data.options.event = "{event}" has several kinds of events, which {made.name} would take for features; '
            f'set model.options.cause = "{event}" of cox, or declare two levels'
        )
    if experiment.data.scale and made.unscaled:
        raise ExperimentError(
            "data.scale would change the units of the offset, the exposure or the weights in model.options; leave "
            "data.scale out, as regressions need no scaling"
        )
    return made


def shown_names(experiment: Experiment) -> tuple[str, str]:
    """Return the names of model and data that people read: a learner of their own, which may bring its own data.

    Examples
    --------
    >>> from p2pfl.experiment import read
    >>> shown_names(read({"data": {"name": "wine"}}))
    ('mlp', 'wine')
    """
    own = experiment.learning.own_learner
    model = experiment.model.name if own is None else own.name
    return model, experiment.data.name if takes_data(experiment) else "data of its own"


def takes_data(experiment: Experiment) -> bool:
    """Return whether a learner needs the data of ``[data]``; a user's own learner may have data of its own."""
    wanted = experiment.learning.own_learner
    if wanted is None:
        return True
    factory = import_reference(wanted.name, key="learning.learner")
    return bool({"federation", "model"} & {*inspect.signature(factory).parameters})


def expected_update(experiment: Experiment, traits: Traits, learner: Learner, *, mean_samples: float | None) -> float:
    """Return the expected root mean square of a parameter's change in one round, from public numbers alone.

    Parameters
    ----------
    experiment
        Experiment with the learning rate and the steps.
    traits
        Those of its algorithm.
    learner
        Learner with the initial parameters.
    mean_samples
        Mean number of training samples of a peer; ``None`` if it is private.

    Returns
    -------
    float
        See :func:`p2pfl.privacy.mask_size.update_size`.
    """
    learning, layout = experiment.learning, learner.layout
    start = learner.start(("",))[:, ~layout.mask(layout.local)]  # common, or models that all have seen
    steps = _steps(experiment, traits)
    if steps is None and (traits.full_batch or learning.batch == "all"):
        steps = 1 if traits.full_batch else learning.epochs
    elif steps is None and mean_samples is not None:
        steps = learning.epochs * math.ceil(mean_samples / int(learning.batch))
    return update_size(
        norm=float(start.double().norm()),
        size=start.shape[1],
        rate=learning.rate,
        steps=steps,
        optimizer=learning.optimizer,
        momentum=float(learning.options.get("momentum", 0.0)),
    )


def _fills_library(experiment: Experiment) -> bool:
    """Return whether a model of a library takes the weights of a file, whose last layer may have another size."""
    model = experiment.model
    return is_reference(model.name) and not names_models(model.pretrained)


def _norm(experiment: Experiment) -> Norm | None:
    """Return what becomes of batch normalisation; it stays local with an algorithm made for that."""
    return experiment.model.norm or ("local" if traits_of(experiment.learning.algorithm).needs_local else None)


def _steps(experiment: Experiment, traits: Traits) -> int | None:
    """Return the optimiser steps of a round, where they are given as a number."""
    if traits.full_batch:
        return None
    return traits.default_steps if experiment.learning.steps is None else experiment.learning.steps


def _model(experiment: Experiment, federation: Federation) -> torch.nn.Module:
    """Return the model of an experiment; an exception of a user's own class becomes one sentence."""
    model, dataset = experiment.model, federation.dataset
    if model.name in MODELS:
        raise ExperimentError(
            f'learning.algorithm = "{experiment.learning.algorithm}" does not work with model.name = "{model.name}", '
            f'which follows from exact totals; leave it out, or set it to "{ADDITIVE}"'
        )
    if ":" not in model.name and model.options:
        raise ExperimentError(
            f'model.options sets {", ".join(model.options)}, but the model "{model.name}" takes no options; leave them '
            "out, or set model.hidden for the widths of mlp and cnn"
        )
    with translate_errors(model.name, key="model.name", refused=ModelError):
        return build(
            model.name,
            shape=dataset.shape,
            classes=dataset.classes,
            outputs=_outputs(experiment, dataset),
            pretrained=model.pretrained if _fills_library(experiment) else None,
            seed=experiment.seed,
            options=model.options | ({"hidden": model.hidden} if model.name in {"mlp", "cnn"} else {}),
        )


def _outputs(experiment: Experiment, dataset: Dataset) -> int | None:
    """Return the number of outputs of a model, if it is not that of the classes: one for each number or label."""
    if dataset.classes is not None and experiment.learning.loss != "binary_cross_entropy":
        return None
    return math.prod(dataset.targets.shape[1:])


def _augmenting(reference: str | None) -> Augmentation | None:
    """Return what the function of ``learning.augment`` does, under the user's name for it."""
    return (
        None if reference is None else Augmentation(import_reference(reference, key="learning.augment"), name=reference)
    )


def algorithm(name: str, *, options: Mapping[str, Any], given: Mapping[str, Any]) -> Algorithm:
    """Make an algorithm.

    Parameters
    ----------
    name
        Name in the catalogue, or ``package.module:Class``.
    options
        The user's options, which are checked against the types of the parameters.
    given
        Values by name; the algorithm receives those that it has parameters for.

    Returns
    -------
    Algorithm
        The algorithm.

    Raises
    ------
    ExperimentError
        The algorithm or an option is unknown, or the value of an option has another type.
    """
    kind = ALGORITHMS.kind(name)
    parameters = inspect.signature(kind).parameters
    if "rounds" in parameters and given.get("rounds") == ENDLESS:
        raise ExperimentError(f'rounds = "endless" does not work with {name}, which needs the last; set it to a number')
    values = own_options(name, kind, options=options, given=given)
    made: Algorithm = kind(**{key: value for key, value in given.items() if key in parameters}, **values)
    return made


def own_options(name: str, kind: Any, *, options: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Return a user's options of an algorithm, checked against its parameters other than those ``given``."""
    trained = {"epochs", "steps"} if isinstance(kind, type) and issubclass(kind, Local) else set()  # of [learning]
    types = parameter_types(kind, without={*given, *trained})
    return checked_options(options, types, key="learning.algorithm_options", name=name)


def check_names(experiment: Experiment, *, given: Collection[str]) -> None:
    """Refuse unknown names, and options of algorithms, before data are read and large graphs are made.

    Parameters
    ----------
    experiment
        Experiment to check.
    given
        Parameters of algorithms that a run fills in.

    Raises
    ------
    InputError
        A data set, split, kind of topology, model, optimiser, schedule, loss, metric or option is unknown.
    """
    learning = experiment.learning
    check_options(experiment)
    algorithm = ALGORITHMS.kind(learning.algorithm)
    own_options(learning.algorithm, algorithm, options=learning.algorithm_options, given=given)
    if learning.learner is not None:
        return
    if partitioning(experiment.data) is not None:  # it knows its models
        return
    check_data_name(experiment.data.name)
    check_split(experiment.data.split)
    if traits_of(learning.algorithm).additive:
        MODELS.kind(experiment.model.name)
        return
    if experiment.model.name not in MODELS:  # of totals, which other algorithms refuse with a sentence of their own
        check_model_name(experiment.model.name, others=MODELS)
    _loss(experiment)
    choose_metrics(learning.metrics, find=import_reference)
    recipe = Recipe(
        learning.optimizer,
        learning.rate,
        learning.options,
        learning.scheduling.name,
        learning.scheduling.options,
        schedule_by=learning.scheduling.by,
        warmup=learning.scheduling.warmup,
        max_norm=learning.max_norm,
    )
    recipe.check(experiment.horizon)
