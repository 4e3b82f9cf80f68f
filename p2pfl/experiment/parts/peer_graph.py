"""Graphs and schedules from the section ``[topology]``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError
from p2pfl.core.imports import translate_errors
from p2pfl.experiment.catalogue import TOPOLOGIES, import_reference
from p2pfl.experiment.parts.option_tables import checked_options, parameter_types
from p2pfl.experiment.schema import Experiment
from p2pfl.topology.graph import brief


def is_own(kind: str) -> bool:
    """Return whether ``topology.kind`` names a function of a user, or one that a package registers."""
    return ":" in kind or (kind not in graphs.BUILDERS and kind in TOPOLOGIES)


def check_kind(kind: str) -> None:
    """Refuse a kind of topology that nobody makes; the message names the nearest."""
    if not is_own(kind):
        graphs.check_kind(kind, registered=TOPOLOGIES)


def load_graph(experiment: Experiment) -> graphs.Topology | graphs.Schedule | None:
    """Return the topology of the files, or of the user's function, in ``topology.kind``; ``None`` for other kinds."""
    settings = experiment.topology
    if settings.files:
        read = tuple(graphs.load(file) for file in settings.files)
        return read[0] if isinstance(settings.kind, str) else graphs.Schedule(read)
    kind = str(settings.kind)
    if not is_own(kind):
        return None
    check_options(experiment)
    options = {"seed": experiment.seed, "degree": settings.degree} | settings.options
    return _named(own_graph(kind, peers=settings.count, options=options), experiment)


def built(experiment: Experiment, *, trusted: bool = True) -> graphs.Topology | graphs.Schedule:
    """Return the topology that the section ``[topology]`` defines.

    Parameters
    ----------
    experiment
        The experiment.
    trusted
        False for the file of a run directory, which may come from anybody: then a function that it names is not called.

    Raises
    ------
    ExperimentError
        The topology cannot be built or read, or is that of a function that nobody trusts.
    """
    kind = str(experiment.topology.kind)
    if not trusted and ":" in kind:
        raise ExperimentError(f'topology.kind = "{kind}" names code, which reading a run does not import')
    given = load_graph(experiment)
    if given is not None:
        return given
    settings, options = experiment.topology, check_options(experiment)
    graph = graphs.build(
        str(settings.kind), peers=settings.count, seed=experiment.seed, degree=settings.degree, **options
    )
    return _named(graph, experiment)


def peers_of(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of all peers of an experiment, sorted; the graph is made only if it names them."""
    given = load_graph(experiment)
    return peer_names(experiment) if given is None else given.peers


def peer_names(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of the peers of an experiment whose graph is in no file, sorted.

    Raises
    ------
    ExperimentError
        ``topology.peers`` has a name twice.
    """
    peers = experiment.topology.peers
    if isinstance(peers, int):
        return graphs.ring(peers).peers  # as all kinds call them
    if twice := [name for name in peers if peers.count(name) > 1]:
        raise ExperimentError(f'topology.peers has the name "{twice[0]}" twice; leave one out')
    return tuple(sorted(peers))


def _named(graph: graphs.Topology | graphs.Schedule, experiment: Experiment) -> graphs.Topology | graphs.Schedule:
    """Return a graph with the names of ``topology.peers``, if it lists names."""
    return graph if isinstance(experiment.topology.peers, int) else graph.named(peer_names(experiment))


def check_options(experiment: Experiment) -> dict[str, Any]:
    """Return ``topology.options``, checked against what the kind of graph takes.

    Raises
    ------
    InputError
        The kind or an option is unknown, or the value of an option has another type.
    """
    settings = experiment.topology
    if settings.files:
        return {}
    kind = str(settings.kind)
    if is_own(kind):
        types = parameter_types(TOPOLOGIES.kind(kind))
        types.pop(next(iter(types), ""), None)  # the number of peers
    else:
        check_kind(kind)
        known, types = graphs.options_of(kind), parameter_types(graphs.BUILDERS[kind])
        types = {name: types[name] for name in known}
    types = {name: kind for name, kind in types.items() if name not in {"seed", "degree"}}
    return checked_options(settings.options, types, key="topology.options", name=kind)


def remaining(experiment: Experiment, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the peers that take part, without those of ``learning.without``.

    Raises
    ------
    ExperimentError
        There is no such peer, or nobody is left.
    """
    absent = experiment.learning.without
    if unknown := sorted({*absent} - {*names}):
        raise ExperimentError(f'learning.without names "{unknown[0]}", which is no peer; choose one of {brief(names)}')
    rest = tuple(name for name in names if name not in absent)
    if not rest:
        raise ExperimentError("learning.without names all peers, so nobody would learn; leave some out of it")
    return rest


def check_peers(experiment: Experiment, names: Sequence[str], only: Sequence[str]) -> None:
    """Refuse peers that an experiment does not have.

    Raises
    ------
    ExperimentError
        One of ``only`` is not among ``names``.
    """
    if unknown := sorted(set(only) - set(names)):
        some = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise ExperimentError(f'experiment "{experiment.name}" has no peer "{unknown[0]}"; choose one of {some}')


def own_graph(
    reference: str, *, peers: int, options: Mapping[str, Any], key: str = "topology.kind"
) -> graphs.Topology | graphs.Schedule:
    """Return what a function makes of a number of peers.

    Parameters
    ----------
    reference
        ``package.module:function``, or the name of an entry point; p2pfl calls it as ``function(peers, **options)``.
    peers
        Number of peers.
    options
        Keyword arguments, of which the function receives those that it has parameters for.
    key
        Key of the experiment file that names the function, for errors.

    Returns
    -------
    Topology or Schedule
        The graph, also of a networkx graph, or the schedule.

    Raises
    ------
    ExperimentError
        The function cannot be imported, needs another argument or raises, or its graph has another number of peers, or
        other edges when it is called again.
    TopologyError
        It returns no graph.
    """
    function = import_reference(reference, key=key) if ":" in reference else TOPOLOGIES.kind(reference)
    takes = [*inspect.signature(function).parameters.values()][1:]
    if lacking := [each.name for each in takes if _is_needed(each) and each.name not in options]:
        raise ExperimentError(
            f"{key}: {reference} needs {lacking[0]}, which p2pfl does not pass; give it a default, or one of the names "
            f"{', '.join(options)}"
        )

    def called() -> graphs.Topology | graphs.Schedule:
        with translate_errors(reference, key=key, module=function.__module__, refused=ExperimentError):
            made = function(peers, **{each.name: options[each.name] for each in takes if each.name in options})
        return graphs.as_topology(made)

    graph = called()
    if called() != graph:
        raise ExperimentError(
            f"{key}: {reference} makes another graph when it is called again; draw random numbers from a generator "
            "with the argument `seed`"
        )
    if len(graph.peers) != peers:
        raise ExperimentError(
            f"{key}: {reference} made a graph of {len(graph.peers)} peers, not of topology.peers = {peers}; change one "
            "of the two"
        )
    return graph


def _is_needed(parameter: inspect.Parameter) -> bool:
    """Return whether a call must give a parameter a value."""
    variable = parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    return parameter.default is parameter.empty and not variable
