"""Contract suites and test doubles for transports, learners, algorithms, models and privacy modes that you write.

Examples
--------
>>> import asyncio
>>> from p2pfl.testing import MemoryTransport, check_transport
>>> asyncio.run(check_transport(MemoryTransport))
"""

from p2pfl.network.transport.memory import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.testing.algorithm_contract import ALGORITHM_CHECKS, check_algorithm
from p2pfl.testing.contract import ContractError
from p2pfl.testing.learner_contract import LEARNER_CHECKS, check_learner
from p2pfl.testing.mode_contract import MODE_CHECKS, check_mode
from p2pfl.testing.model_contract import MODEL_CHECKS, check_model
from p2pfl.testing.transport_contract import TRANSPORT_CHECKS, check_transport

__all__ = [
    "ALGORITHM_CHECKS",
    "LEARNER_CHECKS",
    "MODEL_CHECKS",
    "MODE_CHECKS",
    "TRANSPORT_CHECKS",
    "ContractError",
    "MemoryTransport",
    "VirtualLoop",
    "check_algorithm",
    "check_learner",
    "check_mode",
    "check_model",
    "check_transport",
]
