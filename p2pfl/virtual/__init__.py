"""The real peers of many devices in one process, on a simulated clock, broker and network: one seed, one history."""
