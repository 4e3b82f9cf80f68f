"""State of a swarm as one function of its events, for terminal, pages and exporters alike."""
