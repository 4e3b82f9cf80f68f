"""The protocol of live peers, without a clock, a loop, a disk or a transport."""
