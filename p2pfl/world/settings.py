"""What the peers of a world do: small swarms of pure averaging, drawn by key from the seed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from p2pfl.experiment import Plan, plan, read
from p2pfl.rows import draw
from p2pfl.world.learner import Goals

SMALL = {
    "name": "world",
    "data": {"name": "synthetic"},
    "model": {"name": "linear"},
    "learning": {"dtype": "float64", "device": "cpu", "weighted": False},
    "gossip": {"steps": 2},
    "transport": {"gather": 120.0},
}
"""Rows of 5 KB, in one chunk or a few. Both ends' half-open connections, one after another, end before gather."""

ALGORITHMS = (
    ("learning.algorithm=fedavg",),
    ("learning.algorithm=fedavg", "privacy.mode=pairwise"),
    ("learning.algorithm=fedavg", "privacy.mode=pairwise", "gossip.steps=3"),
    ("learning.algorithm=fedavg", "learning.weighted=true"),
    ("learning.algorithm=fedavg", "learning.weighted=true", "privacy.mode=pairwise"),
    ("learning.algorithm=fedavg", "gossip.steps=6", "gossip.acceleration=chebyshev"),
    ("learning.algorithm=dpsgd",),
    ("learning.algorithm=dpsgd", "privacy.mode=pairwise"),
    ("learning.algorithm=robust_sgp",),
    ("learning.algorithm=fedavg", "privacy.mode=secagg", "gossip.steps=1"),
)
LINES = (("8", "2048"), ("12", "4096"), ("20", "8192"))
"""Patience and chunk."""

HURRIES = (1.0, 1.0, 0.7, 0.4)
"""Drawn where slow neighbours may be left behind."""

GRAPHS = ("path", "ring", "star", "complete", "exponential", "one_peer_exponential")


HEALED = {
    "ring": "ring",
    "complete": "circulant",
    "star": "random_regular",
    "exponential": "exponential",
    "one_peer_exponential": "one_peer_exponential",
}
"""What takes the place of a graph in worlds in which it heals."""


@dataclass(frozen=True)
class Setting:
    """An experiment of a world.

    Attributes
    ----------
    changes
        Of :data:`SMALL`.
    """

    changes: tuple[str, ...]

    @property
    def averages(self) -> bool:
        """Whether the mean of the rows is to be the mean of the goals, whatever happens to living peers."""
        return "learning.weighted=true" not in self.changes and not self.running

    @property
    def running(self) -> bool:
        """Whether running sums are sent."""
        return "learning.algorithm=robust_sgp" in self.changes


def setting(seed: int) -> Setting:
    """Draw the setting of a seed."""
    random = draw(seed, "world setting")
    algorithm = ALGORITHMS[int(random.integers(len(ALGORITHMS)))]
    peers = (3, 3, 4, 4, 5)[int(random.integers(5))]
    graphs = [graph for graph in GRAPHS if _fits(graph, algorithm)]
    graph = graphs[int(random.integers(len(graphs)))]
    if graph == "one_peer_exponential" or _hides(algorithm) == "secagg":
        peers = max(4, peers if graph == "complete" else 4)
    fits = graph in HEALED and not any("robust_sgp" in each or "secagg" in each for each in algorithm)
    heals = fits and draw(seed, "world heals").random() < 0.4
    if heals:  # with more peers, of whom more may be lost
        graph, peers = HEALED[graph], 2 * peers if peers == 4 else peers + 2
    given = (f"topology.kind={graph}", f"topology.peers={peers}", f"rounds={int(random.integers(1, 4))}")
    patience, chunk = LINES[int(random.integers(len(LINES)))]
    hurry = HURRIES[int(random.integers(len(HURRIES)))] if _hides(algorithm) == "none" else 1.0
    line = (f"transport.patience={patience}", f"transport.chunk={chunk}", f"transport.hurry={hurry}")
    healing = ("topology.heal=true",) if heals else ()
    return Setting((*given, *healing, *line, *algorithm))


def _hides(algorithm: tuple[str, ...]) -> str:
    """Its privacy mode."""
    return next((each.partition("=")[2] for each in algorithm if each.startswith("privacy.mode")), "none")


def _fits(graph: str, algorithm: tuple[str, ...]) -> bool:
    """Whether an algorithm can be played on a graph."""
    if _hides(algorithm) == "secagg":
        return graph == "complete"  # of the small ones, that in which everybody hears three
    if graph == "one_peer_exponential":
        return not any("robust_sgp" in each or "chebyshev" in each for each in algorithm)
    return graph != "exponential" or not any("chebyshev" in each for each in algorithm)


@dataclass
class Plans:
    """Settings resolved, each once: peers of all worlds share what does not change."""

    known: dict[Setting, Plan] = field(default_factory=dict)

    def of(self, setting: Setting, *, seed: int) -> Plan:
        """The plan of a setting, with the goals of a seed."""
        found = self.known.get(setting)
        if found is None:
            found = self.known[setting] = plan(read(SMALL, changes=setting.changes))
        goals = Goals(found.learner.layout, dtype=found.learner.dtype, seed=seed)
        return replace(found, learner=goals)
