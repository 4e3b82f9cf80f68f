"""Everything that can go wrong, as one tree.

    P2PFLError
    ├── InputError                the user can fix it before anything starts; exit status 2
    │   ├── ExperimentError       the experiment file: unknown key, value out of range, missing file
    │   ├── TopologyError         a graph that is disconnected, weights that are not doubly stochastic
    │   ├── DataError             a data set that is missing, a split that is impossible
    │   ├── ModelError            a model that does not fit the data or cannot be stacked
    │   └── BrokerError           a broker that cannot be reached or started
    │       └── AccessError       a broker that does not let us in, or is not the one we trust
    └── RunError                  it happened while learning; exit status 1
        ├── LearningError         a loss that is not a number
        ├── PrivacyError          a released value left the range of the fixed-point grid
        ├── CoverError            nobody is there to share a mask with
        ├── BudgetError           a release would cost more than privacy.epsilon allows
        ├── DecodeError           bytes from the network that are not a message of ours
        │   └── AuthenticityError a message that the peer of its topic has not sealed for us
        ├── TransportError        the connection was lost, a publish did not get through
        │   ├── BusyError         the broker refused a subscription that it may grant later
        │   └── RefusedError      the broker does not let us publish or read there
        ├── PeerError             a neighbour is missing, differs, or carries our name
        │   └── ResumeError       nobody is there to go on with: the run ended, or stopped
        └── StorageError          a run directory or checkpoint cannot be written or read

Each message is one sentence: what was expected, what came, what to do.
"""

from collections.abc import Sequence


class P2PFLError(Exception):
    """Root of every error that p2pfl raises on purpose."""

    status = 1


def foremost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of all that went wrong at once: our own error if there is one, else the first."""
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


class ModelError(InputError):
    """A model does not fit the data, or its rows cannot be stacked."""


class BrokerError(InputError):
    """A broker cannot be reached or started."""


class AccessError(BrokerError):
    """A broker does not let us in, or is not the one we trust: to ask again would change nothing."""


class RunError(P2PFLError):
    """A run that had started failed."""


class LearningError(RunError):
    """Training produced something that is not a number."""


class PrivacyError(RunError):
    """A released value left the range in which masks cancel exactly."""


class CoverError(RunError):
    """Nobody is there to share a mask with; nothing has been released."""


class BudgetError(RunError):
    """A release would cost more than is left of the privacy budget; it has not been made."""


class DecodeError(RunError):
    """Bytes from the network are not a message of this protocol."""


class AuthenticityError(DecodeError):
    """A message was not sealed for this peer by the peer under whose topic it was published."""


class TransportError(RunError):
    """The connection to the broker was lost or a publish failed."""


class BusyError(TransportError):
    """The broker refused a subscription without a final reason: asking again may help."""


class RefusedError(TransportError):
    """The broker refused a publish or a subscription: to ask again would change nothing."""


class PeerError(RunError):
    """A neighbour is missing, differs in what must agree, or carries our name.

    Parameters
    ----------
    absent, gone
        Neighbours that did not come, and those that came and went.
    """

    def __init__(self, sentence: str, *, absent: Sequence[str] = (), gone: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.absent, self.gone = tuple(absent), tuple(gone)


class ResumeError(PeerError):
    """A peer that resumes finds nobody to go on with; what it had learned is kept."""


class StorageError(RunError):
    """A run directory or a checkpoint cannot be written or read."""
