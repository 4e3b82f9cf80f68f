"""Exceptions of p2pfl, as one tree.

    P2PFLError
    ├── InputError                wrong input, found before anything starts; exit status 2
    │   ├── ExperimentError       the experiment file: unknown key, value out of range, missing file
    │   ├── TopologyError         a graph that is disconnected, weights that are not doubly stochastic
    │   ├── DataError             a data set that is missing, a split that is impossible
    │   │   └── MissingTableError the table of a peer that is not here
    │   ├── ModelError            a model that does not fit the data or cannot be stacked
    │   └── BrokerError           a broker that cannot be reached or started
    │       └── AccessError       a broker that denies access, or is not the trusted one
    └── RunError                  a failure while running; exit status 1
        ├── LearningError         a loss that is not a number
        ├── PrivacyError          a released value left the range of the fixed-point grid
        ├── CoverError            no neighbour is present to share a mask with
        ├── UndecidedError        it is unknown which models of a round count, or one is missing for good
        │   └── OutdatedError     the others count a round that this peer cannot complete any more
        ├── BudgetError           a release would cost more than privacy.epsilon allows
        ├── DecodeError           bytes from the network that are not a valid message
        │   ├── VersionError      a message of another version of the wire format
        │   └── AuthenticityError a message that the peer of its topic has not sealed for this peer
        ├── TransportError        the connection was lost, a publish did not get through
        │   ├── BusyError         the broker refused a subscription that it may grant later
        │   └── RefusedError      the broker denies publishing or reading there
        ├── SwarmMovedError       the others ended this run by a change, and this peer goes on with the next one
        ├── PeerError             a neighbour is missing, differs, or has the name of this peer
        │   └── ResumeError       no neighbour is left to go on with: the run ended, or stopped
        └── StorageError          a run directory or checkpoint cannot be written or read

Each message is one sentence that states what is wrong and then, after a semicolon, what to do.
"""

from collections.abc import Sequence


class P2PFLError(Exception):
    """Root of all errors that p2pfl raises on purpose."""

    status = 1


def foremost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the most useful of several simultaneous errors: one of p2pfl if there is one, otherwise the first."""
    leaves = [foremost(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, P2PFLError)), leaves[0])


class InputError(P2PFLError):
    """The input is wrong; nothing has been started or written."""

    status = 2


class ExperimentError(InputError):
    """The experiment file is wrong."""


class TopologyError(InputError):
    """A graph or its mixing weights cannot be used for gossip."""


class DataError(InputError):
    """A data set is missing or cannot be split as asked."""


class MissingTableError(DataError):
    """The table of a peer is not here, as on the machine of any other peer."""


class ModelError(InputError):
    """A model does not fit the data, or its rows cannot be stacked."""


class BrokerError(InputError):
    """A broker cannot be reached or started."""


class AccessError(BrokerError):
    """A broker denies access, or is not the trusted one; retrying does not help."""


class RunError(P2PFLError):
    """A run that had started failed."""

    resumes = False
    """True if the run can go on from its checkpoints as it is."""


class LearningError(RunError):
    """Training produced something that is not a number."""


class PrivacyError(RunError):
    """A released value left the range in which masks cancel exactly."""


class CoverError(RunError):
    """No neighbour is present to share a mask with; nothing has been released."""


class UndecidedError(RunError):
    """A round could not be completed, because a release is missing or no majority agreed on whether it counts."""


class OutdatedError(UndecidedError):
    """A round counts that the peer cannot complete, because its files are older than what it has sent."""


class BudgetError(RunError):
    """A release would cost more than the remaining privacy budget; it has not been made."""


class DecodeError(RunError):
    """Bytes from the network are not a message of this protocol."""


class VersionError(DecodeError):
    """A message of another version of the wire format.

    Parameters
    ----------
    theirs, ours
        Versions.
    """

    def __init__(self, *, theirs: int, ours: int) -> None:
        super().__init__(
            f"the message has version {theirs} of the wire format, and this peer reads version {ours}; install one "
            "version of p2pfl everywhere"
        )
        self.theirs, self.ours = theirs, ours


class AuthenticityError(DecodeError):
    """A message was not sealed for this peer by the peer under whose topic it was published."""


class TransportError(RunError):
    """The connection to the broker was lost or a publish failed."""


class BusyError(TransportError):
    """The broker refused a subscription without a final reason; retrying may help."""


class RefusedError(TransportError):
    """The broker refused a publish or a subscription; retrying does not help."""


class SwarmMovedError(RunError):
    """The other peers have ended the run by a change of their operator, which this peer holds now, too."""


class PeerError(RunError):
    """A neighbour is missing, differs in what must agree, or has the name of this peer.

    Parameters
    ----------
    absent, gone
        Neighbours that never connected, and those that connected and left.
    refused
        Reasons for which announcements of neighbours do not count, see
    :mod:`p2pfl.network.protocol.membership.refusals`.
    """

    def __init__(
        self, message: str, *, absent: Sequence[str] = (), gone: Sequence[str] = (), refused: Sequence[object] = ()
    ) -> None:
        super().__init__(message)
        self.absent, self.gone, self.refused = tuple(absent), tuple(gone), tuple(refused)


class ResumeError(PeerError):
    """A peer that resumes finds no neighbour with which to continue; its checkpoint is kept."""


class LostModelError(RunError):
    """The model of a peer that may release nothing more is not on its disk."""


class StorageError(RunError):
    """A run directory or a checkpoint cannot be written or read."""


OUT_OF_MEMORY = ("alloc_cpu", "DefaultCPUAllocator", "not enough memory", "out of memory", "can't start new thread")
"""Parts of the messages of :class:`RuntimeError` by which torch and Python report that memory ran out."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out.

    Examples
    --------
    >>> is_out_of_memory(RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0")), is_out_of_memory(ValueError())
    (True, False)
    """
    matches = isinstance(error, RuntimeError) and any(part in str(error) for part in OUT_OF_MEMORY)
    return isinstance(error, MemoryError) or matches
