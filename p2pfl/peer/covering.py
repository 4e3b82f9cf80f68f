"""Before a release: wait until enough mask partners are present."""

from collections.abc import Callable

from p2pfl.peer.link import Link


async def covered(link: Link, lacking: Callable[[], frozenset[str]], *, say: Callable[[str], None]) -> None:
    """Wait for missing mask partners, at most for the link's timeout.

    What follows decides whether those that came are enough.

    Parameters
    ----------
    link
        Tells when somebody comes or goes.
    lacking
        Returns the partners to wait for; none once enough are present.
    say
        Tells people whom the release waits for.
    """
    missing = lacking()
    if not missing:
        return
    say(f"the next release waits up to {link.patience:g} s for mask partners: {', '.join(sorted(missing))}")
    deadline = link.clock() + link.patience
    while lacking() and link.clock() < deadline:
        await link.changed(by=deadline)
