"""Time limits: failure detection, timeouts, and the pace of slow neighbours."""
