"""A secret source that two runs of a test share, which no run of a user should do."""

import secrets

from p2pfl.privacy.keys import KEY_BYTES, KeyedSource


def shared_source():
    """Return a source of a fresh key, so that runs which claim a guarantee can be compared."""
    return KeyedSource(secrets.token_bytes(KEY_BYTES), secret=True)
