"""Figures by matplotlib: plots for people, and the figures of pages, whose colours follow light and dark."""

from __future__ import annotations

import html
import importlib.util
import math
import os
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BytesIO, StringIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from p2pfl.core.errors import InputError
from p2pfl.core.files import OWNER_ONLY
from p2pfl.results.charts import Chart, Curve, Interval
from p2pfl.results.facts import Figure

if TYPE_CHECKING:
    from p2pfl.topology import Topology

MATPLOTLIB_REMEDY = 'plots need matplotlib, which is not installed; run pip install "p2pfl-mqtt[plot]"'
"""Remedy where matplotlib is missing."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
"""Colours that people with any colour vision tell apart (Okabe and Ito), the dark ones first."""

STROKES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (3, 1, 1, 1, 1, 1)))
"""Strokes of lines, which differ in grey as well."""

RED, GREY = "#8a1c1c", "#666666"
"""Colours of attackers, and of what is compared with."""

PRINT_STYLE: Any = {
    "font.size": 9,
    "text.parse_math": False,  # names of columns and peers are no formulas
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # publishers refuse type 3 fonts
    "svg.fonttype": "none",
    "svg.hashsalt": "p2pfl",
    "savefig.dpi": 300,
    "savefig.bbox": "tight",  # cuts no letter off
}
"""Style of matplotlib for print."""

PAGE_STYLE: Any = {
    **PRINT_STYLE,
    **dict.fromkeys(["text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"], GREY),
    "savefig.bbox": None,  # figures side by side have one width
    "xtick.bottom": False,
    "ytick.left": False,  # lines of the grid mark the values
}
"""Style of matplotlib for pages."""

THEME = {
    "#0072b2": "var(--c0)",
    "#d55e00": "var(--c1)",
    "#009e73": "var(--c2)",
    "#cc79a7": "var(--c3)",
    "#e69f00": "var(--c4)",
    "#56b4e9": "var(--c5)",
    RED: "var(--c6)",
    GREY: "var(--faint)",
    "#000000": "var(--text)",
    "#e6e6e6": "var(--rule)",
    "#ffffff": "var(--ground)",
}
"""Colours of the style sheet of pages for those of figures."""

SPARE_SPACE = re.compile(r'font-family: [^;]*; | transform="rotate\(-0 [^"]*"|(?<=<g) id="[^"]*"')
"""Parts of SVG that a page does not need: its style sheet has the font."""

WIDTH, HEIGHT = 4.6, 2.8
"""Inches of a figure of a page."""

HANDLE, CHARACTER, ENTRY = 0.62, 0.072, 0.2
"""Inches of a legend: a line with its margins, a letter beside it, and the height of both."""

MAX_NAMED_PEERS = 40
"""Peers up to which a drawing of a graph has names."""

MAX_PLACED_PEERS = 256
"""Peers up to which neighbours are close to each other in a drawing, which takes seconds for more."""


def missing() -> bool:
    """Return whether matplotlib is not installed."""
    return importlib.util.find_spec("matplotlib") is None


def blank(*, width: float = WIDTH, height: float = HEIGHT) -> Any:
    """Return an empty matplotlib figure, which a notebook shows as a picture.

    Raises
    ------
    InputError
        Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 (an extra)
    except ImportError:
        raise InputError(MATPLOTLIB_REMEDY) from None

    class Picture(Figure):  # notebooks know figures by themselves only once somebody has imported pyplot
        def _repr_png_(self) -> bytes:
            data = BytesIO()
            self.savefig(data, format="png")
            return data.getvalue()

    return Picture(figsize=(width, height), layout="constrained")


def keep(figure: Any, path: str | Path) -> None:
    """Write a figure to a file, without the time, so that the same figure has the same bytes; its owner alone reads it.

    Raises
    ------
    InputError
        The suffix is not that of a picture format, or the file cannot be written.
    """
    kind = Path(path).suffix.lower()
    date, data = {".pdf": "CreationDate", ".svg": "Date"}.get(kind), BytesIO()
    try:
        figure.savefig(data, format=kind.removeprefix("."), metadata=None if date is None else {date: None})
        with open(path, "wb", opener=partial(os.open, mode=OWNER_ONLY)) as file:
            file.write(data.getvalue())
    except ValueError:
        suffixes = ", ".join(sorted(figure.canvas.get_supported_filetypes()))
        raise InputError(f"{path} does not have the suffix of a picture ({suffixes}); change it") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); choose another place") from None


def draw_printed(draw: Callable[[], Any], *, path: str | None) -> Any:
    """Return the figure that a function draws; with a path, in the style of print, and written there.

    Raises
    ------
    InputError
        As :func:`keep`, or matplotlib is not installed.
    """
    if path is None:
        return draw()
    blank(width=1, height=1)  # refuses a lack of matplotlib
    import matplotlib as mpl  # noqa: PLC0415 (an extra)

    with mpl.rc_context(PRINT_STYLE):
        picture = draw()
        keep(picture, path)
    return picture


def svg(draw: Callable[[], Any], *, name: str, shown: Callable[[str], object]) -> str:
    """Return a figure as an SVG element in the colours of the style sheet of pages.

    Parameters
    ----------
    draw
        Function that returns a figure of matplotlib.
    name
        Unique name in the page, which has elements ``NAME-title`` and ``NAME-about``.
    shown
        Function that returns a text as the page shows it.
    """
    import matplotlib as mpl  # noqa: PLC0415 (an extra)

    file = StringIO()
    with mpl.rc_context(PAGE_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has more fonts
        picture = draw()
        picture.savefig(
            file, format="svg", transparent=True, metadata=dict.fromkeys(["Creator", "Date", "Format", "Type"])
        )
    content = file.getvalue()

    def adapted(match: re.Match[str]) -> str:
        part = match[0]
        if not part.startswith("<"):
            return html.escape(str(shown(html.unescape(part)))) if part.strip() else ""
        part = re.sub(r"\s+", " ", part)
        part = re.sub(r'(?<= d=")[^"]*', lambda path: re.sub(r" ?([A-Za-z]) ", r"\1", path[0]), part)
        part = re.sub(r"(\.\d\d)\d+", r"\1", part)
        part = SPARE_SPACE.sub("", part)
        part = re.sub(r'( id="|url\(#|href="#)', rf"\1{name}-", part)
        return re.sub("#[0-9a-f]{6}", lambda colour: THEME.get(colour[0], colour[0]), part)

    head, body = content[content.index("<svg") :].split(">", 1)
    [box] = re.findall(r'viewBox="[^"]*"', head)
    label = f'class="chart" role="img" aria-labelledby="{name}-title {name}-about"'
    return f"<svg {box} {label}>" + re.sub("<[^>]*>|[^<]+", adapted, body)


def chart_figure(chart: Chart | None) -> Figure | None:
    """Return a chart as a figure; ``None`` if it has nothing to show."""
    if chart is None or not chart.clean():
        return None
    return Figure(chart.title, chart.description, lambda: lines(chart))


def lines(chart: Chart) -> Any:
    """Draw the curves and levels of a chart."""
    labels = [*(curve.label for curve in chart.clean()), *(f"{label}: {value:.3f}" for label, value in chart.levels)]
    columns, texts, below = legend_of(labels, width=WIDTH)
    picture = blank(height=HEIGHT + below)
    axes = picture.subplots()
    draw_chart(axes, chart)
    if len(labels) > 1:
        handles, _ = axes.get_legend_handles_labels()
        picture.legend(handles, texts, loc="outside lower left", ncols=columns, handlelength=3)
    return picture


def draw_charts(charts: Sequence[Chart], *, title: str = "", path: str | Path | None = None) -> Any:
    """Draw charts over the same rounds, one below the other.

    Parameters
    ----------
    charts
        The charts.
    title
        Title of the picture.
    path
        Path of the file; ``None`` writes none.

    Raises
    ------
    InputError
        Matplotlib is not installed, or the file cannot be written.
    """
    picture = blank(width=8, height=1 + 3.5 * len(charts))
    for axes, chart in zip(picture.subplots(len(charts), sharex=True, squeeze=False)[:, 0], charts, strict=True):
        draw_chart(axes, chart)
        axes.legend()
        axes.label_outer()
    picture.axes[0].set_title(title, loc="left")
    if path is not None:
        keep(picture, path)
    return picture


def draw_chart(axes: Any, chart: Chart) -> None:
    """Draw the curves and levels of a chart into axes."""
    strokes = ("--", ":", "-.")
    for curve in chart.clean():
        draw_curve(axes, curve)
    for number, (label, value) in enumerate(chart.levels):
        stroke = strokes[number % len(strokes)]
        axes.axhline(value, color=GREY, linestyle=stroke, linewidth=1.5, label=f"{label}: {value:.3f}")
    axes.set(xlabel=chart.x, ylabel=chart.y.replace("_", " "))
    if chart.log:
        axes.set_yscale("log", subs=[2, 5])
        axes.yaxis.set_major_formatter("{x:g}")
        low, high = axes.get_ylim()
        axes.yaxis.set_minor_formatter("{x:g}" if high < 100 * low else "")
    if chart.whole:
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)


def legend_of(labels: Sequence[str], *, width: float) -> tuple[int, list[str], float]:
    """Return the columns, the wrapped texts and the height of a legend; one label needs none."""
    columns = max(1, min(len(labels), int(width / (HANDLE + CHARACTER * max(map(len, labels))))))
    texts = [textwrap.fill(label, max(1, int((width - HANDLE) / CHARACTER))) for label in labels]
    high = max(text.count("\n") + 1 for text in texts)
    return columns, texts, ENTRY * high * math.ceil(len(labels) / columns) if len(labels) > 1 else 0.0


def draw_curve(axes: Any, curve: Curve, look: Mapping[str, object] = MappingProxyType({})) -> None:
    """Draw a curve with its band; a look has further properties of the line in matplotlib."""
    style = curve.style
    colour = GREY if style is None else COLOURS[style % len(COLOURS)]
    stroke = "-" if style is None else STROKES[(style + style // len(COLOURS)) % len(STROKES)]
    if curve.low:
        axes.fill_between(curve.xs, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    usual = {"linewidth": 1.8, "marker": "o" if len(curve.xs) == 1 else None, "label": curve.label}
    axes.plot(curve.xs, curve.ys, color=colour, linestyle=stroke, **{**usual, **look})


def intervals(entries: Sequence[Interval], *, x: str) -> Any:
    """Draw intervals below each other, with a line at zero."""
    picture = blank(height=0.55 + 0.42 * len(entries))
    axes = picture.subplots()
    draw_intervals(axes, entries)
    for line, each in enumerate(entries):
        label = textwrap.shorten(each.label, 66, placeholder="…")
        above = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(label, (0, line), (2, 6), bbox={"fc": "white", "ec": "none", "pad": 1.5}, **above)
    axes.set(yticks=[], xlabel=x)
    return picture


def draw_intervals(axes: Any, entries: Sequence[Interval]) -> None:
    """Draw intervals below each other into axes, with a line at zero.

    The area of a square is in proportion to its weight; a pooled value is a diamond as wide as its interval.
    """
    axes.axvline(0.0, color=GREY, linewidth=1)
    most = max((each.weight or 0.0 for each in entries), default=0.0)
    for line, each in enumerate(entries):
        half = each.half or 0.0
        if each.pooled:
            corners = [each.value - half, each.value, each.value + half, each.value]
            axes.fill(corners, [line, line - 0.25, line, line + 0.25], color=each.colour)
            continue
        size = 5.0 if each.weight is None or not most else 2.0 + 7.0 * math.sqrt(each.weight / most)
        mark = "o" if each.weight is None else "s"
        axes.errorbar(each.value, line, xerr=each.half, color=each.colour, fmt=mark, markersize=size, capsize=3)
    axes.set_ylim(len(entries) - 0.5, -0.8)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)


def graph(topology: Topology, *, attackers: frozenset[str] = frozenset(), side: float = 4.2) -> Any:
    """Draw peers and their edges; those of a directed graph are arrows to the receivers."""
    import numpy as np  # noqa: PLC0415

    from p2pfl.topology.networkx_graphs import positions  # noqa: PLC0415 (imports networkx)

    count = len(topology.peers)
    angles = 2 * np.pi * np.arange(count) / count
    around = dict(zip(topology.peers, zip(np.sin(angles), -np.cos(angles), strict=True), strict=True))
    coordinates = positions(topology) if count <= MAX_PLACED_PEERS else around
    picture = blank(width=side, height=side)
    axes = picture.subplots()
    ends = np.array([[coordinates[a], coordinates[b]] for a, b in topology.edges]).reshape(-1, 2, 2)
    if topology.directed:
        steps = ends[:, 1] - ends[:, 0]
        steps *= 1 - 0.07 / np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 0.1)  # ends before the peer
        arrows = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.004, "headwidth": 6}
        axes.quiver(*ends[:, 0].T, *steps.T, color=GREY, **arrows)
    else:
        from matplotlib.collections import LineCollection  # noqa: PLC0415 (an extra)

        axes.add_collection(LineCollection([*ends], colors=GREY, linewidths=0.8))
    colours = [RED if peer in attackers else COLOURS[0] for peer in topology.peers]
    axes.scatter(
        *np.array([coordinates[peer] for peer in topology.peers]).T,
        s=max(8, min(60, 1600 / count)),
        c=colours,
        zorder=2,
    )
    for peer, (x, y) in coordinates.items() if count <= MAX_NAMED_PEERS else ():
        across = "center" if abs(x) < 0.2 else "left" if x > 0 else "right"
        down = "center" if across != "center" else "bottom" if y > 0 else "top"
        name = peer if len(peer) <= 12 else f"{peer[:11]}…"
        axes.text(1.09 * x, 1.09 * y, name, ha=across, va=down, fontsize=8)
    axes.set(aspect="equal", xlim=(-1.35, 1.35), ylim=(-1.2, 1.2))
    axes.set_axis_off()
    return picture
