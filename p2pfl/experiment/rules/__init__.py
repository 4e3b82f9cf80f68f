"""The rules on which settings go together: one table, read by validation, ``p2pfl explain`` and the docs."""
