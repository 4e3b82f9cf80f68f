"""Checks of ``p2pfl doctor``, each of which names the reason of one kind of failure."""
