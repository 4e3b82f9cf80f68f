"""What leaves a peer, and under which noise."""
