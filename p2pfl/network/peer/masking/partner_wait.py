"""Before a release: wait until enough mask partners are present."""

from collections.abc import Callable

from p2pfl.network.peer.connection import Connection
from p2pfl.results.notices.kinds import Notice, PartnersAwaited


async def covered(
    connection: Connection, lacking: Callable[[], frozenset[str]], *, notify: Callable[[Notice], None]
) -> None:
    """Wait for missing mask partners, at most for the timeout of the session.

    What follows decides whether those that came are enough.

    Parameters
    ----------
    connection
        Looks again whenever somebody comes or goes.
    lacking
        Returns the partners to wait for; none once enough are present.
    notify
        Called with a notice of the partners that the release waits for.
    """
    missing = lacking()
    if not missing:
        return
    patience = connection.session.shared.patience
    me = connection.session.shared.me.peer
    notify(PartnersAwaited(peer=me, partners=tuple(sorted(missing)), seconds=patience))
    await connection.until(lambda: not lacking(), by=connection.clock() + patience)
