from .peer import Peer as Peer
from .updates import Progress as Progress
