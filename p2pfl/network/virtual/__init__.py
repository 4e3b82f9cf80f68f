"""Live peers of many devices in one process, on a simulated clock, broker and network, reproducible from one seed."""
