"""Simulation by several workers, each of which holds the models of some peers.

:class:`Shard` is what the engine asks for everything that concerns peers of other workers; on its own it is all peers,
in one process. :mod:`~p2pfl.simulation.sharding.group` carries bytes between workers, over ``torch.distributed``,
:mod:`~p2pfl.simulation.sharding.part` is the shard of one worker and decides which models travel in a gossip step,
:mod:`~p2pfl.simulation.sharding.shared_checkpoint` writes and reads checkpoints of all shards, and
:mod:`~p2pfl.simulation.sharding.workers` starts the processes.
"""

from p2pfl.simulation.sharding.shard import Near, Shard

__all__ = ["Near", "Shard"]
