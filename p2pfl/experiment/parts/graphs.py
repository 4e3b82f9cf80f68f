"""Graphs and schedules from the section ``[topology]``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError, P2PFLError
from p2pfl.core.importing import located
from p2pfl.experiment.catalogue import imported
from p2pfl.experiment.schema import Experiment


def loaded(experiment: Experiment) -> graphs.Topology | graphs.Schedule | None:
    """Return the topology of ``topology.file``, of several files in turn, or of a user's function in ``topology.kind``.

    It is ``None`` for the kinds that p2pfl builds.
    """
    settings = experiment.topology
    if settings.file is None:
        own = ":" in settings.kind
        return own_graph(settings.kind, peers=settings.peers, options=_options(experiment)) if own else None
    if isinstance(settings.file, str):
        return graphs.load(settings.file)
    return graphs.Schedule(tuple(graphs.load(file) for file in settings.file))


def built(experiment: Experiment) -> graphs.Topology | graphs.Schedule:
    """Return the topology that the section ``[topology]`` defines."""
    settings = experiment.topology
    given = loaded(experiment)
    return graphs.build(settings.kind, peers=settings.peers, **_options(experiment)) if given is None else given


def _options(experiment: Experiment) -> dict[str, Any]:
    """Return the keys of ``[topology]`` from which a builder takes those that it knows, and the seed."""
    keys = ("degree", "rewire", "probability", "rows", "branching", "clusters", "inside", "every", "levels", "period")
    return {"seed": experiment.seed} | {key: getattr(experiment.topology, key) for key in keys}


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
    """Return what ``package.module:function`` makes of a number of peers.

    Parameters
    ----------
    reference
        Name of the function, which p2pfl calls as ``function(peers, **options)``.
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
    function = imported(reference, key=key)
    takes = [*inspect.signature(function).parameters.values()][1:]
    if lacking := [each.name for each in takes if _needed(each) and each.name not in options]:
        raise ExperimentError(
            f"{key}: {reference} needs {lacking[0]}, which p2pfl does not pass; give it a default, or one of the names "
            f"{', '.join(options)}"
        )

    def called() -> graphs.Topology | graphs.Schedule:
        try:
            found = function(peers, **{each.name: options[each.name] for each in takes if each.name in options})
        except P2PFLError:
            raise
        except Exception as error:
            reason = located(error, module=reference.partition(":")[0])
            raise ExperimentError(f"{key}: {reference} raised {reason}; fix it") from error
        return graphs.as_topology(found)

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


def _needed(parameter: inspect.Parameter) -> bool:
    """Return whether a call must give a parameter a value."""
    variable = parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    return parameter.default is parameter.empty and not variable
