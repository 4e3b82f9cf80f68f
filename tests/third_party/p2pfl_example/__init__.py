"""An algorithm, a topology, an exact model, an attack, a command and a sink for p2pfl."""
