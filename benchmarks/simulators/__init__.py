"""Server-style workloads, a few of many clients in a round, by p2pfl and by other simulators."""
