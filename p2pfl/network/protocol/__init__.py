"""Protocol of live peers, without a clock, an event loop, a disk or a transport.

The folders, each of which imports only those below it::

    session/      one state machine: events in, effects out
    interface/    the events and the effects
    totals/       exact sums up and down a spanning tree      timing/      how long to wait for a neighbour
    incoming/     which messages of a neighbour are used
    agreement/    majority decisions on a release
    membership/   which peers are present, and where they are in the run
    ledgers/      which models and masks each neighbour has applied
    wire/         messages as bytes: signed, sealed, bounded
"""
