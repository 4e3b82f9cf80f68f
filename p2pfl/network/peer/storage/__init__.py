"""The files of a peer: checkpoints, journals, locks and credentials."""
