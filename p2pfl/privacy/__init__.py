"""What leaves a peer, and under which noise."""

from p2pfl.privacy.masks import Masks, neighbour_secrets, swarm_secrets
from p2pfl.privacy.release import PrivateNeighbourhood, Settings, private

__all__ = ["Masks", "PrivateNeighbourhood", "Settings", "neighbour_secrets", "private", "swarm_secrets"]
