"""The privacy modes by name."""

from __future__ import annotations

from p2pfl.traits import ModeTraits

MODES = {
    "none": ModeTraits(),
    "independent": ModeTraits(hides=True),
    "pairwise": ModeTraits(hides=True, masks=True),
    "secagg": ModeTraits(hides=True, sums=True),
}


def mode_traits(name: str) -> ModeTraits:
    """Return what a privacy mode declares, by its name."""
    return MODES[name]
