"""Model card of a run, as Markdown: what was trained, on which columns, its scores, and what protects the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from p2pfl.core.errors import InputError
from p2pfl.core.texts import printable
from p2pfl.experiment.catalogue import model_traits
from p2pfl.results.content.exact_statistics import without_exact
from p2pfl.results.formats import number
from p2pfl.results.notices.grouping import grouped
from p2pfl.results.notices.wording import sentence
from p2pfl.results.reading import alarms_of, alone_of
from p2pfl.results.run import Run

MOST_PEERS = 16
"""Peers whose scores a card lists."""


def card(run: Run, *, exact: bool = False) -> str:
    """Return the model card of a run that has ended.

    A card contains no sample. Its scores are statistics of the peers' test data, see its own section on limits.
    It does not name the seed of a run with private noise.

    Parameters
    ----------
    run
        Run, as :meth:`p2pfl.results.run.Run.load` gives it.
    exact
        Whether to print exact statistics of the training data, such as what a missing cell becomes, for data that are
        public; see :mod:`p2pfl.results.content.exact_statistics`.

    Returns
    -------
    str
        Markdown with the front matter of the Hugging Face hub.

    Raises
    ------
    InputError
        The run has not ended, or p2pfl does not know its model.

    References
    ----------
    Mitchell et al. Model cards for model reporting. FAccT 2019, arXiv:1810.03993.
    """
    if not run.summary:
        raise InputError(f"the run in {run.folder} has not ended; resume it, then write its card")
    if not run.description:
        raise InputError(
            f"the run in {run.folder} has no model.json, as with a learner of your own; describe it yourself"
        )
    described = run.description if exact else without_exact(run.description)
    parts = [
        _front(run),
        _about(run),
        _inputs(run.description, described, exact=exact),
        _scores(run),
        _protection(run),
        _limits(run),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _front(run: Run) -> Iterator[str]:
    tabular = run.description["inputs"]["columns"] is not None
    kind = [f"tabular-{run.description['task']}"] if tabular else []
    yield "---"
    yield "library_name: p2pfl"
    yield f"tags: [{', '.join(['decentralised-learning', 'federated-learning', *kind])}]"
    yield "---"
    yield ""
    yield f"# {run.experiment.name}"


def _about(run: Run) -> Iterator[str]:
    experiment, summary = run.experiment, run.summary
    peers = summary.get("peers", experiment.topology.peers)
    target = run.description["outputs"]["target"]
    yield "## What was trained"
    yield ""
    yield f"- **Model**: {run.description['model']['name']}, {_of(run.description)}"
    if target is not None:
        yield f"- **Target**: `{printable(target)}`"
    graph = ", ".join(experiment.topology.files) or experiment.topology.kind
    yield f"- **Training**: {experiment.learning.algorithm} by {peers} peers, topology {graph}, without a server"
    if "rounds" in summary:
        yield f"- **Rounds**: {summary['rounds']} of {experiment.rounds}"
    owned = ", which peers own; they were not exchanged" if experiment.data.owned else ""
    yield f"- **Data**: {experiment.data.name}{owned}"
    if not _noisy(run):
        yield f"- **Seed**: {experiment.seed}"
    if versions := summary.get("versions"):
        began = summary.get("began") or "at an unknown time"
        yield f"- **Software**: p2pfl {versions['p2pfl']}, torch {versions['torch']}; began {began}"


def _noisy(run: Run) -> bool:
    """Return whether noise or secret participation hides data, which a seed may give away."""
    privacy = run.summary["privacy"]
    return bool(privacy["noise"]) or privacy["participation"] < 1 or privacy["examples"] is not None


def _of(about: Mapping[str, Any]) -> str:
    outputs = about["outputs"]
    if not model_traits(about["model"]["name"]).predicts:
        return "which describes the data and predicts nothing"
    if outputs["classes"] is None:
        return "which predicts a number"
    names = printable(", ".join(map(str, outputs["class_names"] or ())))
    return f"which predicts {outputs['classes']} classes" + (f": {names}" if names else "")


def _inputs(about: Mapping[str, Any], shown: Mapping[str, Any], *, exact: bool) -> Iterator[str]:
    inputs = about["inputs"]
    yield "## Inputs"
    yield ""
    if inputs["columns"] is None:
        yield f"Raw values: {inputs['raw']}. They have no column names."
        return
    yield from _table(
        ["column", "values", "a missing cell becomes", "an unknown text becomes"],
        map(_column, inputs["columns"], shown["inputs"]["columns"]),
    )
    yield ""
    traits = model_traits(about["model"]["name"])
    if traits.predicts:
        yield "The file of the model contains the scaling; `p2pfl predict` takes the raw columns."
    elif traits.command:
        yield f"`p2pfl {traits.command}` prints the file."
    if not exact and not inputs.get("declared"):
        yield "What the columns take from the training data is exact and left out; `p2pfl card --exact` prints it."


def _column(column: Mapping[str, Any], shown: Mapping[str, Any]) -> list[str]:
    """Return the cells of a column, with what may be shown of it; "left out" in place of the rest."""
    kind = "whole numbers" if column.get("integer") else "numbers"
    text = column["levels"] is not None
    values = kind if not text else "texts" if shown["levels"] is None else ", ".join(shown["levels"])
    rules = [_rule(column.get(key), shown.get(key)) for key in ("missing", "unknown")]
    return [column["name"], values, rules[0], rules[1] if text else "-"]


def _rule(value: object, shown: object) -> str:
    return "an error" if value is None else "left out" if shown is None else str(shown)


def _scores(run: Run) -> Iterator[str]:
    summary = run.summary
    yield "## Scores"
    yield ""
    if not model_traits(run.description["model"]["name"]).predicts:
        yield "It has none."
        return
    if "scores" in summary:  # of one peer
        yield f"On the held-out part of the data of {summary['peer']}:"
        yield ""
        alone = alone_of(summary)
        heads = ["score", "together", *(["alone"] if alone else [])]
        yield from _table(
            heads,
            (
                [name, _score(value), *([_score(alone.get(name))] if alone else [])]
                for name, value in summary["scores"].items()
            ),
        )
        return
    metric, peers = summary["metric"], list(summary["per_peer"].items())
    yield f"{metric}, on held-out data; *alone* is a model that the peer trains by itself."
    yield ""
    rows = [[peer, _score(each["alone"]), _score(each["together"])] for peer, each in peers[:MOST_PEERS]]
    rows.append(["mean", _score(summary["alone"]), _score(summary["together"])])
    yield from _table(["peer", "alone", "together"], rows)
    if len(peers) > MOST_PEERS:
        yield ""
        yield f"The table lists {MOST_PEERS} of {len(peers)} peers."
    if summary["pooled"] is not None:
        yield ""
        yield f"One model on the data of all peers reaches {_score(summary['pooled'])}."


def _protection(run: Run) -> Iterator[str]:
    privacy = run.summary["privacy"]
    yield "## Protection of the data"
    yield ""
    yield f"{privacy['statement']}."
    if privacy.get("epsilon") is not None:
        yield ""
        yield f"Epsilon of the peer that is worst off: {privacy['epsilon']:.3g} at delta {privacy['delta']:g}."
    if not run.summary.get("accounted", True):
        yield ""
        yield "The account of the data does not count this run: it ran with `--unaccounted`."
    for alarm, more in grouped(alarms_of(run.summary)):
        now = "; this is over" if alarm.cancelled else ""
        yield ""
        yield f"Alarm of {alarm.peer}: {sentence(alarm)}{now}{more}."


def _limits(run: Run) -> Iterator[str]:
    yield "## Limits"
    yield ""
    if model_traits(run.description["model"]["name"]).predicts:
        yield from _of_scores()
    yield "- The files of the model contain exact statistics of the training data, such as means of columns, which no"
    yield "  guarantee covers."
    yield "- The statement on protection covers what peers sent. A model that is published gives away as much about the"
    yield "  training data as the guarantee allows, and without a guarantee there is no limit."
    yield "- The intended use, and who may not use the model, are for its owners to add here."


def _of_scores() -> Iterator[str]:
    yield "- Scores are means over the peers' own held-out data. They say nothing of other populations; use"
    yield "  `p2pfl evaluate` on your own data before you use the model, and look at subgroups."
    yield "- Scores are statistics of private data that no guarantee covers."


def _table(header: Sequence[str], rows: Any) -> Iterator[str]:
    yield _row(header)
    yield _row(["---"] * len(header))
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(printable(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _score(value: float | None) -> str:
    return number(value, unknown="-")
