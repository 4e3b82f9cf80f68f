"""Before a release: wait until enough mask partners are present."""

from collections.abc import Callable

from p2pfl.peer.connection import Connection


async def covered(connection: Connection, lacking: Callable[[], frozenset[str]], *, say: Callable[[str], None]) -> None:
    """Wait for missing mask partners, at most for the timeout of the session.

    What follows decides whether those that came are enough.

    Parameters
    ----------
    connection
        Looks again whenever somebody comes or goes.
    lacking
        Returns the partners to wait for; none once enough are present.
    say
        Tells people whom the release waits for.
    """
    missing = lacking()
    if not missing:
        return
    patience = connection.session.shared.patience
    say(f"the next release waits up to {patience:g} s for mask partners: {', '.join(sorted(missing))}")
    await connection.until(lambda: not lacking(), by=connection.clock() + patience)
