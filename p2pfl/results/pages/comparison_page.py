"""The page of several runs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from p2pfl.results.comparing import wording
from p2pfl.results.comparing.comparison import Comparison
from p2pfl.results.formats import size
from p2pfl.results.pages import curves
from p2pfl.results.pages.markup import Markup, join, tag
from p2pfl.results.pages.parts import box, changed, details, page, pairs, software, table, written
from p2pfl.results.pages.svg import Chart, Curve, Interval, figure, intervals
from p2pfl.results.run import Run

MOST_CURVES = 12
"""Settings that a chart of curves can hold."""

MOST_NAMED = 6
"""Settings that a sentence names."""

STYLES = {"better": "good", "worse": "bad"}


@dataclass(frozen=True)
class ComparedRun:
    """A run and the place of its setting in the comparison."""

    run: Run
    setting: int


def comparison_page(comparison: Comparison, runs: Sequence[ComparedRun], *, name: str) -> str:
    """Return the page of a comparison.

    Parameters
    ----------
    comparison
        The comparison.
    runs
        The runs that it is made of, as far as they ended.
    name
        Title of the page.
    """
    sections = [
        ("settings", "Scores", _settings(comparison)),
        ("differences", "Differences", _differences(comparison)),
        ("curves", "Curves", _curves(comparison, runs)),
        ("costs", "What a run costs", _costs(comparison)),
        ("privacy", "Privacy", _privacy(comparison, runs)),
        ("seeds", "Every run", _every(comparison)),
        ("repeat", "How to repeat it", _repeat(runs)),
    ]
    count = sum(len(each.by_seed) for each in comparison.settings)
    about = f"Comparison of {len(comparison.settings)} settings in {count} p2pfl runs."
    head = [tag("p", about, class_="small"), *_head(comparison)]
    return page(name, sections, head=head)


def fragment(comparison: Comparison) -> str:
    """Return the scores, differences and costs of a comparison as a part of a page, for notebooks."""
    warned = [tag("p", f"Warning: {sentence}") for sentence in wording.warnings(comparison)]
    said = tag("p", tag("strong", verdict(comparison)))
    return tag("div", said, warned, _settings(comparison), _costs(comparison))


def _head(comparison: Comparison) -> Iterator[Markup]:
    yield box("verdict", verdict(comparison))
    for sentence in wording.warnings(comparison):
        yield box("warning", f" {sentence}")


def verdict(comparison: Comparison) -> str:
    """Return the result of a comparison in a sentence or two."""
    best = [each for each in comparison.settings if each.best]
    if not best:
        return "No run has a score."
    if len(best) > 1:
        return _against(comparison)
    [one] = best
    count = f"over {len(one.by_seed)} seeds" if len(one.by_seed) > 1 else "over one seed"
    said = f"{wording.setting(one.values)} has the best mean, {comparison.metric} {wording.number(one.score)} {count}."
    place = comparison.settings.index(one)
    mine = [each for each in comparison.differences if place in {each.setting, each.reference}]
    tested = [each.significant for each in mine if each.adjusted is not None]
    clear = f" It differs significantly from {sum(tested)} of the {len(tested)} that it is compared with."
    return said + (clear if tested else "")


def _against(comparison: Comparison) -> str:
    """Return which settings are better and worse than their references, in a sentence for each verdict."""
    found: dict[str, list[str]] = {}
    for each in comparison.differences:
        mine, theirs = (comparison.settings[place].values for place in (each.setting, each.reference))
        said = f"{wording.setting(mine)} (reference {_other(mine, theirs)})"
        found.setdefault(wording.verdict(comparison, each), []).append(said)
    parts = [
        f"{said[:1].upper()}{said[1:]}: {'; '.join(names[:MOST_NAMED])}"
        + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
        for said in ("better", "worse", "not significant", "equal", "no test", "one seed")
        if (names := found.get(said))
    ]
    return ". ".join(parts) + "." if parts else "There is nothing to compare."


def _values(comparison: Comparison, place: int) -> list[object]:
    values = comparison.settings[place].values
    return [*values.values()] or ["the experiment"]


def _heads(comparison: Comparison) -> list[str]:
    return wording.heads(comparison.keys) or ["setting"]


def _settings(comparison: Comparison) -> Markup:
    rows = []
    differences = {each.setting: each for each in comparison.differences}
    references = {each.reference for each in comparison.differences}
    for place, each in enumerate(comparison.settings):
        found = differences.get(place)
        said = "reference" if place in references else ""
        said = wording.verdict(comparison, found) if found is not None else said
        rows.append(
            [
                *_values(comparison, place),
                tag("span", wording.number(each.score), class_="best" if each.leading else None),
                "" if found is None else wording.number(found.difference, sign=True),
                "" if found is None else wording.probability(found.adjusted),
                tag("span", said, class_=STYLES.get(said)),
                len(each.by_seed),
            ]
        )
    heads = [*_heads(comparison), comparison.metric, "difference", "p", "verdict", "seeds"]
    caption = f"{comparison.metric}, {'lower' if comparison.lower else 'higher'} is better"
    notes = [tag("p", sentence, class_="small") for sentence in (wording.bold(comparison), *wording.notes(comparison))]
    return join([table(caption, heads, rows, text=len(_heads(comparison))), notes])


def _differences(comparison: Comparison) -> Markup | None:
    entries = []
    for each in comparison.differences:
        said = wording.verdict(comparison, each)
        mine, theirs = (comparison.settings[place].values for place in (each.setting, each.reference))
        style = {"better": "c2", "worse": "c1"}.get(said, "plain")
        label = f"{wording.setting(mine)} against {_other(mine, theirs)}"
        entries.append(Interval(label, each.difference.mean, each.difference.half, style))
    about = " ".join(
        f"{entry.label}: {entry.value:+.3f}, {wording.verdict(comparison, each)}."
        for entry, each in zip(entries, comparison.differences, strict=True)
    )
    certain = any(each.difference.half is not None for each in comparison.differences)
    title = f"paired differences{' with 95 % intervals' if certain else ''}"
    drawn = intervals(
        entries, name="differences", title=title, description=about, x=f"difference in {comparison.metric}"
    )
    return None if drawn is None else tag("div", drawn, class_="figures")


def _other(mine: dict[str, str], theirs: dict[str, str]) -> str:
    """Return in what a reference differs."""
    return wording.setting({key: value for key, value in theirs.items() if mine.get(key) != value})


def _curves(comparison: Comparison, runs: Sequence[ComparedRun]) -> Markup | None:
    """Return the score over rounds and over bytes, a curve for each setting."""
    if len(comparison.settings) > MOST_CURVES:
        return tag("p", f"There are more than {MOST_CURVES} settings, which one chart cannot show.")
    over, costs = [], []
    for place, each in enumerate(comparison.settings):
        mine = [part.run for part in runs if part.setting == place]
        found = curves.means(mine, comparison.metric)
        if not found["xs"]:
            continue
        label = wording.setting(each.values)
        over.append(Curve(label, **found, style=place))
        paid = [x * each.bytes_sent / max(each.rounds, 1) / 1e6 for x in found["xs"]]
        costs.append(Curve(label, **(found | {"xs": paid}), style=place))
    about = " ".join(f"{curve.label} ends at {curve.ys[-1]:.3f}." for curve in over)
    metric = comparison.metric
    charts = [
        Chart(
            f"{metric} by round", f"Mean over the seeds, and their range. {about}", "round", metric, over, whole=True
        ),
        Chart(
            f"{metric} by bytes", f"The same over what all peers send. {about}", "MB sent by all peers", metric, costs
        ),
    ]
    drawn = [made for place, chart in enumerate(charts) if (made := figure(chart, name=f"curve{place}"))]
    return tag("div", drawn, class_="figures") if drawn else None


def _costs(comparison: Comparison) -> Markup:
    rows = []
    for place, each in enumerate(comparison.settings):
        gradients = "" if each.gradients is None else f"{each.gradients:,.0f}"
        rows.append(
            [*_values(comparison, place), f"{each.rounds:g}", size(each.bytes_sent), gradients, f"{each.seconds:.1f} s"]
        )
    heads = [*_heads(comparison), "rounds", "sent by all peers", "gradients", "time"]
    return table("means over the seeds", heads, rows, text=len(_heads(comparison)))


def _privacy(comparison: Comparison, runs: Sequence[ComparedRun]) -> Markup | None:
    """Return each statement, with the settings that it is true of."""
    said: dict[str, list[int]] = {}
    for part in runs:
        statement = part.run.summary.get("privacy", {}).get("statement")
        if statement is not None and part.setting not in said.setdefault(statement, []):
            said[statement].append(part.setting)
    if not said:
        return None
    if len(said) == 1:
        return tag("div", tag("p", next(iter(said))), class_="verdict")
    rows = [
        ["; ".join(wording.setting(comparison.settings[place].values) for place in places), statement]
        for statement, places in said.items()
    ]
    return table("statement of the runs of each setting", ("setting", "statement"), rows, text=2)


def _every(comparison: Comparison) -> Markup:
    seeds = sorted({seed for each in comparison.settings for seed in each.by_seed})
    rows = [
        [
            *_values(comparison, place),
            *("" if seed not in each.by_seed else f"{each.by_seed[seed]:.3f}" for seed in seeds),
        ]
        for place, each in enumerate(comparison.settings)
    ]
    heads = [*_heads(comparison), *(f"seed {seed}" for seed in seeds)]
    return table(f"{comparison.metric} by seed", heads, rows, text=len(_heads(comparison)))


def _repeat(runs: Sequence[ComparedRun]) -> Markup | None:
    if not runs:
        return None
    first = runs[0].run
    keys = {key: tag("code", value) for key, value in changed(first.experiment).items()}
    return join(
        [
            tag("p", "The first run has these keys; the others differ from it in the columns of the tables above."),
            pairs("Keys of its experiment that are not the default", keys),
            details("its whole experiment file", tag("pre", written(first.experiment))),
            software(first.provenance or first.summary),
        ]
    )
