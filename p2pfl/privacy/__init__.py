"""What leaves a peer, and under which noise."""

from p2pfl.privacy.accountant import Guarantee, account, table
from p2pfl.privacy.calibration import Calibration, calibrate
from p2pfl.privacy.colluders import worst_colluders
from p2pfl.privacy.leakage import leakage, linear_view
from p2pfl.privacy.masks import Masks, neighbour_secrets, swarm_secrets
from p2pfl.privacy.release import PrivateNeighbourhood, Settings, private
from p2pfl.privacy.spending import Cost, spent

__all__ = [
    "Calibration",
    "Cost",
    "Guarantee",
    "Masks",
    "PrivateNeighbourhood",
    "Settings",
    "account",
    "calibrate",
    "leakage",
    "linear_view",
    "neighbour_secrets",
    "private",
    "spent",
    "swarm_secrets",
    "table",
    "worst_colluders",
]
