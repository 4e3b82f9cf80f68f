"""Predict the cost of an experiment and the differences of its peers' data before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

import p2pfl
from p2pfl import topology as graphs
from p2pfl.algorithms import average_of
from p2pfl.algorithms.devices import MS
from p2pfl.cli import terminal
from p2pfl.cli.core_commands import ExplainOptions
from p2pfl.cli.experiments import experiment_of, note_tables
from p2pfl.cli.options import JsonOptions
from p2pfl.cli.planning.sign_off import sign_off_page
from p2pfl.cli.tables import MAX_LISTED_PEERS, facts, grid
from p2pfl.core.process import free_memory
from p2pfl.core.tensors import TORCH_INSTALLED
from p2pfl.data import describe
from p2pfl.experiment import Plan
from p2pfl.experiment.parts.learner_parts import shown_names
from p2pfl.experiment.swarm_agreement import PeersAgreement
from p2pfl.network.peer.storage.checkpoint import forecast_writes, rounds_apart
from p2pfl.results.formats import size
from p2pfl.results.summary import describe as describe_privacy

WORDS = ((0.1, "much alike"), (0.3, "somewhat different"), (0.6, "very different"), (1.0, "almost nothing in common"))
"""Words for a label distance up to a bound."""

MOST_BARS = 30
"""Classes that are drawn."""

MOST_NATS = 700.0
"""Whose exponential a double still holds."""


def run(options: ExplainOptions) -> int:
    """Run ``p2pfl explain``."""
    resolved = p2pfl.plan(experiment_of(options), only=options.only, unaccounted=True)
    note_tables(resolved)
    return write_plan(options, resolved, html=options.html, name=options.name)


def write_plan(options: JsonOptions, resolved: Plan, *, html: str | None, name: str | None) -> int:
    """Print a plan, write the page that an officer signs, and return the exit status.

    Parameters
    ----------
    options
        Arguments of the command.
    resolved
        The plan.
    html
        Path of the page; ``None`` writes none.
    name
        The peer whose officer signs; ``None`` if all data are here.
    """
    if html is not None:
        with terminal.output(html) as file:
            file.write(sign_off_page(resolved, name=name))
    return terminal.answer(options, explain(resolved), show)


def explain(resolved: Plan) -> dict[str, Any]:
    """Return everything that ``p2pfl explain`` prints, as values for JSON."""
    return {
        "name": resolved.experiment.name,
        "algorithm": resolved.experiment.learning.algorithm,
        "model": {"name": shown_names(resolved.experiment)[0], "parameters": resolved.learner.layout.size},
        "topology": _topology(resolved),
        "cost": _cost(resolved),
        "memory": _memory(resolved),
        "data": _data(resolved),
        "privacy": describe_privacy(resolved, spent=None)["statement"],
        "mask": _mask(resolved),
        "learned": dict(resolved.protection.learned),
    }


def show(results: Mapping[str, Any]) -> None:
    """Print it."""
    console = terminal.console()
    model, data = results["model"], results["data"]
    console.print(
        Text.assemble(
            (results["name"], "bold"),
            f": {results['algorithm']} of {model['name']} with {model['parameters']:,} parameters on {data['name']}",
        )
    )
    console.print()
    _show_data(data, console)
    for title, pairs in (("Topology", _graph_lines(results)), ("What it costs", _cost_lines(results))):
        console.print()
        console.print(Text(title, style="bold"))
        facts(pairs)
    if results["learned"]:
        console.print()
        console.print(Text("Who learns what, and what a malicious peer can do", style="bold"))
        facts(results["learned"])
    console.print()
    console.print(Text(f"privacy: {results['privacy']}"), soft_wrap=not console.is_terminal)
    if results["mask"] is not None:
        sentence = f"mask: deviation {results['mask']['deviation']:.3g} in each parameter, {results['mask']['origin']}"
        console.print(Text(sentence), soft_wrap=not console.is_terminal)


def _mask(resolved: Plan) -> dict[str, Any] | None:
    """Return the standard deviation of a pairwise mask and where it comes from; ``None`` without such masks."""
    wanted, settings = resolved.experiment.privacy, resolved.protection.settings
    if not resolved.masked or resolved.protection.totals:
        return None
    if wanted.mask is not None:
        origin = "as privacy.mask says"
    elif resolved.sized is not None:
        origin = "the default from public numbers: initial parameters, learning rate, steps of a round and graph"
    elif wanted.epsilon is not None and not wanted.noise:
        origin = "calibrated to privacy.epsilon"
    else:
        origin = "as large as privacy.clip" if math.isfinite(wanted.clip) else "the default without privacy.clip"
    return {"deviation": settings.mask, "origin": origin}


def _topology(resolved: Plan) -> dict[str, Any]:
    topology, weights = resolved.topology, resolved.weights
    degrees = sorted(topology.union.degree(peer) for peer in topology.peers)
    squares = np.mean([each.squares for each in weights], axis=0)  # [N]
    return {
        "kind": "file" if resolved.experiment.topology.files else resolved.experiment.topology.kind,
        "peers": len(topology.peers),
        "edges": topology.union.edge_count,
        "period": topology.period,
        "degree": [degrees[0], degrees[-1]],
        "diameter": graphs.diameter(topology.union),
        "spectral_gap": graphs.gap(weights),
        "effective_neighbours": float((1 / squares).mean()) - 1,
        "left": _left(resolved),
    }


def _left(resolved: Plan) -> float:
    """Return the share of the disagreement between peers that the gossip steps of a round leave in the worst case."""
    weights, steps = resolved.weights, resolved.gossip.steps
    rho = graphs.contraction(weights[:1])
    if resolved.experiment.gossip.acceleration == "chebyshev":
        return 1 / math.cosh(min(MOST_NATS, steps * math.acosh(1 / rho))) if rho > 0 else 0.0
    if len(weights) == 1:
        return rho**steps if weights[0].symmetric else graphs.contraction(weights * steps)
    return graphs.contraction([weights[step % len(weights)] for step in range(steps)])


def _cost(resolved: Plan) -> dict[str, Any]:
    """Return the gossip steps and bytes of rounds with one release each, without the overhead of the transport.

    Rounds without an end have no number, and all of them no bytes.
    """
    experiment, peers = resolved.experiment, len(resolved.topology.peers)
    claimed = resolved.protection.claimed
    rounds = resolved.protection.affordable if claimed else None if experiment.endless else experiment.horizon
    row = resolved.learner.layout.size * resolved.learner.dtype.itemsize
    agreement = PeersAgreement(resolved)
    hears = sum(each.entries - peers for each in resolved.weights) / (len(resolved.weights) * peers)
    if resolved.protection.totals:  # the bytes of a total follow from the data
        unknown = ("bytes_per_peer_and_round", "bytes_sent_per_peer", "bytes_received_per_peer", "bytes_sent")
        known = {"rounds": rounds, "gossip_steps_per_round": 0, "row_bytes": row}
        return known | {"totals_before": agreement.opening, "totals_after": agreement.closing} | dict.fromkeys(unknown)
    sent = row * resolved.gossip.steps
    sizes = {"sent_per_peer": sent, "received_per_peer": sent * hears, "sent": sent * peers}
    return {
        "rounds": rounds,
        "gossip_steps_per_round": resolved.gossip.steps,
        "totals_before": agreement.opening,
        "totals_after": agreement.closing,
        "row_bytes": row,
        "bytes_per_peer_and_round": sent,
        "bytes_received_per_peer_and_round": sizes["received_per_peer"],
        "bytes_written_per_peer_and_round": forecast_writes(resolved, kept=resolved.kept_states),
        "rounds_per_checkpoint": rounds_apart(resolved),
        **{f"bytes_{name}": None if rounds is None else each * rounds for name, each in sizes.items()},
        "participants": _participants(resolved),
        "clients": _clients(resolved),
    }


def _memory(resolved: Plan) -> dict[str, Any] | None:
    """Return the memory that a simulation in one process needs, and that there is, in bytes.

    ``None`` of a run without an end, and without torch, which simulations need.
    """
    if resolved.experiment.endless or not TORCH_INSTALLED:
        return None
    from p2pfl.simulation.memory_estimate import estimate  # noqa: PLC0415 (it needs torch)

    needed, free = estimate(resolved), free_memory()
    return asdict(needed) | {"total": needed.total, "free": None if free is None else free.bytes}


def _participants(resolved: Plan) -> int | None:
    """Return how many peers train in a round; ``None`` if all do, or if devices decide it."""
    average = average_of(resolved.algorithm)
    peers = resolved.topology.peers
    if average is None or average.fraction == 1.0 or average.devices is not None:
        return None
    return int(replace(average, dropped=0.0).participants(peers, round=0).sum())


def _clients(resolved: Plan) -> dict[str, Any] | None:
    """Return how many clients are invited and count in all rounds of ``simulation.devices``.

    ``None`` without it, or without a last round.
    """
    average = average_of(resolved.algorithm)
    if average is None or average.devices is None or resolved.experiment.endless:
        return None
    rounds = [here for each in range(resolved.experiment.horizon) if (here := average.invitation(each)) is not None]
    counted = [len(here.counted) for here in rounds]
    invited = [len(here.invited) for here in rounds]
    return {
        "wanted": average.count,
        "invited": {"least": min(invited), "median": median(invited), "most": max(invited)},
        "counted": {"least": min(counted), "median": median(counted), "most": max(counted)},
        "rounds_without": counted.count(0),
        "seconds": rounds[-1].ended / MS,
    }


def _clients_text(clients: Mapping[str, Any], *, rounds: int) -> str:
    """Return the clients of all rounds in words."""
    invited, counted = (
        "{least} to {most} {what} (median {median:g})".format(what=what, **clients[key])
        for key, what in (("invited", "are invited"), ("counted", "count"))
    )
    empty = clients["rounds_without"]
    warning = f"; warning: in {empty} of {rounds} rounds nobody counts, which change nothing" if empty else ""
    return f"{clients['wanted']} wanted in a round, {invited}, {counted}{warning}"


def _data(resolved: Plan) -> dict[str, Any]:
    federation, data = resolved.federation, resolved.experiment.data
    if federation.parties is not None:
        parties = federation.parties.own.items()
        return {
            "name": data.name,
            "split": "own" if data.owned else data.split,
            "parties": {peer: {"rows": len(own), "columns": own.features.shape[1]} for peer, own in parties},
        }
    if (name := shown_names(resolved.experiment)[1]) != data.name:
        return {"name": name, "split": "own", "classes": None, "per_peer": {}}
    classes = federation.dataset.classes
    counts = {peer: len(federation.train[peer]) for peer in federation.peers}
    everybody = sum(counts.values())
    labels = np.zeros((len(counts), classes or 0))  # [N, C]
    if classes is not None:
        labels = np.stack([federation.dataset.counts(federation.train[peer]) for peer in counts])
    pooled = labels.sum(0) / max(labels.sum(), 1)  # [C]
    peers = {}
    for (peer, count), own in zip(counts.items(), labels, strict=True):
        distance = None if classes is None else float(np.abs(own / max(own.sum(), 1) - pooled).sum() / 2)
        peers[peer] = {
            "samples": count,
            "share": count / max(everybody, 1),
            "classes": own.astype(int).tolist(),
            "label_distance": distance,
        }
    split = "own" if data.owned else data.split
    return {"name": data.name, "split": split} | describe(federation) | {"classes": classes, "per_peer": peers}


def _show_data(data: Mapping[str, Any], console: Console) -> None:
    if "parties" in data:
        console.print(Text("Who has what (different columns of the same people)", style="bold"))
        table = grid("peer", "rows", "columns")
        for peer, own in data["parties"].items():
            table.add_row(peer, f"{own['rows']:,}", str(own["columns"]))
        console.print(table)
        return
    if not data["per_peer"]:
        console.print(Text("The learner reads data of its own", style="bold"))
        return
    table = grid("peer", "samples", "share", *(["classes", "label distance", ""] if data["classes"] else []))
    division = "each peer's own data" if data["split"] == "own" else f"split {data['split']}"
    console.print(Text(f"Who has what ({division})", style="bold"))
    if data["classes"]:
        table.columns[-1].justify = "left"
        table.columns[-1].header = "samples by class"
    peers = list(data["per_peer"].items())
    for peer, own in peers[:MAX_LISTED_PEERS]:
        cells = [peer, str(own["samples"]), f"{own['share']:.1%}"]
        if data["classes"]:
            held = sum(count > 0 for count in own["classes"])
            cells += [f"{held}/{data['classes']}", f"{own['label_distance']:.2f}", _bars(own["classes"])]
        table.add_row(*cells)
    if len(peers) > MAX_LISTED_PEERS:
        table.add_row(f"and {len(peers) - MAX_LISTED_PEERS} more")
    console.print(table)
    spread = data["samples"]
    console.print(f"a peer has {spread['min']} to {spread['max']} samples, {spread['median']:g} in the median")
    if data["label_distance"] is not None:
        mean = data["label_distance"]
        word = next(word for limit, word in WORDS if mean <= limit + 1e-9)
        console.print(
            Text(f"label distance {mean:.2f} in the mean: {word} (0: the same mixture, towards 1: no class in common)"),
            soft_wrap=not console.is_terminal,
        )


def _bars(counts: list[int]) -> str:
    """Return one character per class: the taller it is, the more samples of the class a peer has.

    Examples
    --------
    >>> _bars([0, 1, 4, 8])
    '·▁▄█'
    """
    most = max(counts, default=0)
    heights = "▁▂▃▄▅▆▇█"
    drawn = (heights[math.ceil(len(heights) * count / most) - 1] if count else "·" for count in counts[:MOST_BARS])
    return "".join(drawn) + ("…" if len(counts) > MOST_BARS else "")


def _graph_lines(results: Mapping[str, Any]) -> dict[str, str]:
    graph = results["topology"]
    low, high = graph["degree"]
    alike = graph["kind"] != "complete" and graph["period"] == 1 and low == graph["peers"] - 1
    kind = f"{graph['kind']} (complete at this degree)" if alike else graph["kind"]
    lines = {
        "topology": f"{kind}, {graph['peers']} peers, {graph['edges']} edges, diameter {graph['diameter']}",
        "neighbours of a peer": (f"{low}" if low == high else f"{low} to {high}")
        + f", as good as {graph['effective_neighbours']:.1f} with equal weights",
        "spectral gap": f"{graph['spectral_gap']:.3g}",
    }
    if results["cost"]["gossip_steps_per_round"]:
        lines["disagreement left"] = f"{graph['left']:.2g} after a round"
    if graph["period"] > 1:
        lines["graphs in turn"] = f"{graph['period']}"
    return lines


def _cost_lines(results: Mapping[str, Any]) -> dict[str, str]:
    cost = results["cost"]
    more = [
        f"{cost[key]} {when}"
        for key, when in (("totals_before", "exact sums before"), ("totals_after", "after"))
        if cost[key]
    ]
    beside = f", {' and '.join(more)} them" if more else ""
    memory = {} if results["memory"] is None else {"memory to simulate": _memory_text(results["memory"])}
    if not cost["gossip_steps_per_round"]:
        return {
            "totals": f"{cost['rounds']} rounds{beside}, two messages a peer for each total; simulate counts the bytes",
            "a model": f"{size(cost['row_bytes'])}, which never travels",
            **memory,
        }
    apart = cost["rounds_per_checkpoint"]
    few, peers, clients = cost["participants"], results["topology"]["peers"], cost["clients"]
    rounds, received = cost["rounds"], cost["bytes_received_per_peer_and_round"]
    played = "rounds without an end" if rounds is None else f"{rounds} rounds"
    chosen = f"{few} of {peers} train in a round and count; the others send the last model on, with weight 0"
    return {
        "gossip steps": f"{played} of {cost['gossip_steps_per_round']}{beside}",
        **({} if few is None else {"participants": chosen}),
        **({} if clients is None else {"clients": _clients_text(clients, rounds=cost["rounds"])}),
        "a model": f"{size(cost['row_bytes'])}; the protocol adds messages, which simulate --network counts",
        "a peer sends": _bytes_text(cost["bytes_per_peer_and_round"], rounds=rounds),
        "a peer receives": _bytes_text(received, rounds=rounds),
        "a peer writes": f"about {_bytes_text(cost['bytes_written_per_peer_and_round'], rounds=rounds)}; a checkpoint "
        f"{'a round' if apart == 1 else f'in {apart} rounds'}",
        "the broker takes in": _bytes_text(cost["bytes_per_peer_and_round"] * peers, rounds=rounds),
        **memory,
    }


def _bytes_text(each: float, *, rounds: int | None) -> str:
    """Return the bytes of a round, and of all if they have an end."""
    return f"{size(each)} a round" + ("" if rounds is None else f", {size(each * rounds)} in all")


def _memory_text(memory: Mapping[str, Any]) -> str:
    """Return the memory of a simulation in words."""
    sentence = f"about {size(memory['total'])}, models {size(memory['models'])} of it"
    needed, free = memory["total"] - memory["held"], memory["free"]
    if free is None:
        return sentence
    return f"{sentence}; {size(free)} free{'' if needed <= free else ', too little'}"
