"""Privacy: protection of what leaves a peer, and accounting for it.

Names are imported when they are first used: the accountant does not need torch.
"""

from typing import TYPE_CHECKING

from p2pfl.core.lazily import lazily

if TYPE_CHECKING:
    from p2pfl.privacy.accounting.accountant import Guarantee, account, table
    from p2pfl.privacy.accounting.calibration import Calibration, calibrate
    from p2pfl.privacy.accounting.colluders import worst_colluders
    from p2pfl.privacy.accounting.leakage import linear_view
    from p2pfl.privacy.accounting.spending import Cost, spent
    from p2pfl.privacy.masks import Masks, neighbour_secrets, swarm_secrets
    from p2pfl.privacy.release import PrivateNeighbourhood, private
    from p2pfl.privacy.settings import Settings

__all__ = [
    "Calibration",
    "Cost",
    "Guarantee",
    "Masks",
    "PrivateNeighbourhood",
    "Settings",
    "account",
    "calibrate",
    "linear_view",
    "neighbour_secrets",
    "private",
    "spent",
    "swarm_secrets",
    "table",
    "worst_colluders",
]

if not TYPE_CHECKING:  # mypy would take any name from a module with __getattr__
    __getattr__ = lazily(
        __name__,
        {
            "Calibration": "accounting.calibration",
            "Cost": "accounting.spending",
            "Guarantee": "accounting.accountant",
            "Masks": "masks",
            "PrivateNeighbourhood": "release",
            "Settings": "settings",
            "account": "accounting.accountant",
            "calibrate": "accounting.calibration",
            "linear_view": "accounting.leakage",
            "neighbour_secrets": "masks",
            "private": "release",
            "spent": "accounting.spending",
            "swarm_secrets": "masks",
            "table": "accounting.accountant",
            "worst_colluders": "accounting.colluders",
        },
    )
