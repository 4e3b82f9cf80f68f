"""Gain from learning together, in a sentence and in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.report.comparing.comparison import lower_is_better
from p2pfl.report.comparing.intervals import newcombe
from p2pfl.report.comparing.wording import gained_by
from p2pfl.report.formats import number
from p2pfl.report.notices.wording import stopped
from p2pfl.report.pages.markup import Markup, join, tag
from p2pfl.report.pages.parts import MOST_PEERS, TOTAL, beside, table
from p2pfl.report.reading import alone_of, stop_of
from p2pfl.report.records import Record, by_round


def fragment(summary: Mapping[str, Any], metrics: Sequence[Record], *, rounds: int) -> str:
    """Return the result of a run as a part of a page, for notebooks."""
    return tag("div", tag("p", tag("strong", verdict(summary, metrics, rounds=rounds))), gains(summary, metrics))


def verdict(summary: Mapping[str, Any], metrics: Sequence[Record], *, rounds: int) -> str:
    """Return the result of a run of so many rounds in a sentence or two."""
    if not summary:
        found = len({record.round for record in metrics})
        return f"The run is not finished; {found} of {rounds} rounds are recorded."
    stop = stop_of(summary)
    early = "" if stop is None else f" It stopped after {stopped(stop)}."
    if "scores" in summary:
        said = ", ".join(f"{name} {number(value)}" for name, value in summary["scores"].items())
        alone = "".join(f" {sentence}" for sentence in gained_by(summary))
        return f"{summary['peer']} learned a model with {said}.{alone}{early}"
    if summary["metric"] is None:
        return f"{summary['peers']} peers learned together for {summary['rounds']} rounds; there is no score.{early}"
    known = [("Together", "together"), ("alone", "alone"), ("on all data", "pooled")]
    said = ", ".join(f"{word} {number(summary[key])}" for word, key in known if summary[key] is not None)
    return f"{said} ({summary['metric']}, mean of the peers).{_gained(summary)}{early}"


def _gained(summary: Mapping[str, Any]) -> str:
    honest = [each for each in summary["per_peer"].values() if not each["attacker"]]
    pairs = [(each["alone"], each["together"]) for each in honest]
    if not pairs or any(value is None for pair in pairs for value in pair):
        return ""
    lower = lower_is_better(summary["metric"])
    better = sum((together < alone) if lower else (together > alone) for alone, together in pairs)
    who = "All" if better == len(pairs) else f"{better} of"
    return f" {who} {len(pairs)} peers gained."


def gains(summary: Mapping[str, Any], metrics: Sequence[Record]) -> Markup | None:
    """Return scores by peer; of one peer or an interrupted run its last scores."""
    if alone_of(summary):
        return _of_one(summary)
    if "per_peer" not in summary or summary["metric"] is None:
        return _last_scores(metrics)
    metric, everyone = summary["metric"], list(summary["per_peer"].items())
    counted = any(score.get("samples") for _, score in everyone)
    tested = _is_share(metric) and any(_interval(score) for _, score in everyone)
    heads = [
        "peer",
        *(["samples"] if counted else []),
        "alone",
        "together",
        "gain",
        *(["95 % interval"] if tested else []),
    ]

    def row(name: str, score: Mapping[str, Any], *, of_peer: bool = True) -> list[object]:
        count = score.get("samples") if of_peer else ""
        between = _interval(score) if of_peer else ""
        return [
            name,
            *([count] if counted else []),
            number(score["alone"]),
            number(score["together"]),
            _difference(score, metric),
            *([between] if tested else []),
        ]

    rows = [row(f"{name} (attacks)" if each["attacker"] else name, each) for name, each in everyone[:MOST_PEERS]]
    if len(everyone) > MOST_PEERS:
        rows.append([f"and {len(everyone) - MOST_PEERS} more", *[""] * (len(heads) - 1)])
    attacked = any(score["attacker"] for _, score in everyone)
    rows.append([TOTAL, *row("mean of the others" if attacked else "mean", summary, of_peer=False)])
    for name, value in (
        ("one model on all data", summary["pooled"]),
        ("one model of all peers", (summary.get("common") or {}).get(metric)),
    ):
        if value is not None:
            count = [sum(each.get("samples") or 0 for _, each in everyone)] if counted else []
            rows.append([TOTAL, name, *count, "", number(value), *[""] * (1 + tested)])
    found = table(f"{metric} by peer", heads, rows)
    return join([beside(found, _last_scores(metrics)), _note(summary, tested=tested)])


def _note(summary: Mapping[str, Any], *, tested: bool) -> Markup:
    """Return what the table says about chance, and what it does not."""
    sizes = sorted({each["tested"] for each in summary["per_peer"].values() if each.get("tested")})
    span = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}" if sizes else ""
    inside = (
        f"The interval holds the gain with 95 % certainty over samples: each model was tested on {span} of them "
        "(Newcombe's method 10). It does not hold what another seed would change. "
        if tested
        else "This is one run with one seed: a difference may be chance. "
    )
    return tag(
        "p",
        inside,
        tag("code", "p2pfl sweep"),
        " repeats a run over seeds, and gives intervals over these.",
        class_="small",
    )


def _is_share(metric: str) -> bool:
    """Return whether a score is the share of samples that a model gets right."""
    return metric == "accuracy"


def _interval(score: Mapping[str, Any]) -> str:
    """Return the 95 % interval of a gain; empty where it is unknown."""
    if not score.get("tested") or score["alone"] is None or score["together"] is None:
        return ""
    low, high = newcombe(score["together"], score["alone"], score["tested"])
    return f"{low:+.3f} to {high:+.3f}"


def _of_one(summary: Mapping[str, Any]) -> Markup:
    """Return the scores of one peer beside those of the model that it has trained alone."""
    rows = [
        [name, number(alone), number(summary["scores"].get(name)), _difference(_pair(summary, name), name)]
        for name, alone in alone_of(summary).items()
    ]
    return table(f"Scores of {summary['peer']}", ("score", "alone", "together", "gain"), rows)


def _pair(summary: Mapping[str, Any], name: str) -> dict[str, float | None]:
    return {"alone": alone_of(summary).get(name), "together": summary["scores"].get(name)}


def _last_scores(metrics: Sequence[Record]) -> Markup | None:
    """Return all scores of the last round as the mean over the peers that do not attack."""
    rounds = by_round(metrics)
    if not rounds:
        return None
    last, records = list(rounds.items())[-1]
    names = list(dict.fromkeys(name for record in records for name in record.scores))
    if not names:
        return None
    rows = []
    for name in names:
        values = [record.scores[name] for record in records if name in record.scores]
        rows.append([name, number(sum(values) / len(values)), number(min(values)), number(max(values))])
    evaluated = sum(bool(record.scores) for record in records)
    return table(f"Scores after round {last + 1}, over {evaluated} peers", ("score", "mean", "least", "most"), rows)


def _difference(score: Mapping[str, Any], metric: str) -> Markup | str:
    if score["alone"] is None or score["together"] is None:
        return ""
    gain = score["together"] - score["alone"]
    better = gain < 0 if lower_is_better(metric) else gain > 0
    return tag("span", f"{gain:+.3f}", class_="good" if better else "bad" if gain else None)
