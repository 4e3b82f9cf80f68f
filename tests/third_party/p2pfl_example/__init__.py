"""An algorithm, a topology, an exact model and a command for p2pfl."""
