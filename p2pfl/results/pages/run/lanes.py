"""Activity of each peer over time, as a figure."""

from __future__ import annotations

from p2pfl.results.pages.markup import Markup, tag
from p2pfl.results.run import Run
from p2pfl.results.swarm.headline import seconds as duration
from p2pfl.results.swarm.lanes import Doing, Stretch, busiest
from p2pfl.results.swarm.timeline import swarm_of_run

MOST = 40
"""Largest number of lanes of a figure."""

WIDTH, NAME, ROW, BAR = 960, 120, 18, 11
"""Width of the figure, of the names in it, and height of a lane and of a bar."""

LOOKS: dict[Doing, tuple[str, str, int]] = {
    "training": ("trains", "c2", BAR),
    "waiting": ("waits", "c1", 3),
    "offline": ("without broker", "c5", 7),
    "away": ("gone, failed or silent", "c6", BAR),
}
"""Words, colour and height of what a lane shows."""


def lanes(run: Run) -> Markup | None:
    """Return the lanes of a run; ``None`` if its events have no times, or all peers only trained."""
    swarm = swarm_of_run(run)
    timed = any(event.time is not None for event in run.events)
    peers = busiest(swarm.lanes, [*swarm.peers], since=0.0, until=swarm.at, most=MOST)
    found = {peer: swarm.lanes.of(peer, since=0.0, until=swarm.at) for peer in peers}
    if not timed or not any(each.doing != "training" for stretches in found.values() for each in stretches):
        return None
    height = ROW * len(found) + ROW
    parts = [
        _lane(peer, stretches, place=place, span=swarm.at) for place, (peer, stretches) in enumerate(found.items())
    ]
    ends = [
        tag("text", text, x=x, y=height - 3, text_anchor=anchor)
        for text, x, anchor in (("0 s", NAME, "start"), (duration(swarm.at), WIDTH, "end"))
    ]
    lost = {peer: sum(e.ended - e.began for e in each if e.doing != "training") for peer, each in found.items()}
    most = max(lost, key=lambda peer: lost[peer])
    said = f"{most} lost most time: {duration(lost[most])} of {duration(swarm.at)} without training."
    label = tag("title", said, id="lanes-said")
    box = f"0 0 {WIDTH} {height}"
    drawn = tag("svg", label, parts, ends, class_="chart", viewBox=box, role="img", aria_labelledby="lanes-said")
    more = len(swarm.peers) - len(found)
    note = f"{said} A wait counts from one second on.{f' {more} peers that lost less are not shown.' if more else ''}"
    return tag(
        "figure",
        tag("figcaption", "What each peer did"),
        tag("div", drawn, class_="wide", tabindex=0, role="region", aria_label="What each peer did"),
        _key(),
        tag("p", note, class_="small"),
        class_="lanes",
    )


def _lane(peer: str, stretches: list[Stretch], *, place: int, span: float) -> Markup:
    middle, scale = place * ROW + ROW / 2, (WIDTH - NAME) / max(span, 1e-9)
    bars = [
        _bar(each.doing, x=NAME + each.began * scale, width=max(1.0, (each.ended - each.began) * scale), middle=middle)
        for each in stretches
    ]
    return tag("g", tag("text", peer[:16], x=0, y=f"{middle + 4:.0f}"), bars)


def _bar(doing: Doing, *, x: float, width: float, middle: float) -> Markup:
    _, colour, high = LOOKS[doing]
    return tag("rect", x=f"{x:.1f}", y=f"{middle - high / 2:.1f}", width=f"{width:.1f}", height=high, class_=colour)


def _key() -> Markup:
    marks = (
        tag("svg", _bar(doing, x=0.0, width=26.0, middle=5.0), viewBox="0 0 26 10", aria_hidden="true")
        for doing in LOOKS
    )
    return tag(
        "ul", (tag("li", mark, look[0]) for mark, look in zip(marks, LOOKS.values(), strict=True)), class_="legend"
    )
