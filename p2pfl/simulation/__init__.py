"""Simulation of an experiment with the rows of all peers at once."""

from p2pfl.simulation.engine import simulate
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood

__all__ = ["Faults", "StackedNeighbourhood", "simulate"]
