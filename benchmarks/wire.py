"""Encoding and decoding a 4 MB row, against one copy of its bytes in memory.

    python -m benchmarks.wire

Encoding makes the payloads of all chunks (a copy is unavoidable: header and numbers must lie side
by side); decoding puts chunks together, checks digest and finiteness, and hands out a view. Two
baselines: a copy into memory that is mapped and in cache, and one into fresh memory, as a row that
arrives needs it.
"""

import numpy as np
import torch

from benchmarks.timing import pair
from p2pfl.network.protocol.wire.reliable_stream import Inbox, Outbox
from p2pfl.network.protocol.wire.wire_codec import decode, encode
from p2pfl.network.protocol.wire.wire_rows import encode_row, read_row, row_bytes

LENGTH = 1_000_000
CHUNK = 256 * 1024 - 512
REPEATS = 31


def main() -> None:
    """Print the table."""
    row = torch.randn(LENGTH)
    source, target = row.numpy().view(np.uint8), np.empty(4 * LENGTH, np.uint8)
    payloads = []

    def copy() -> None:
        target[:] = source

    def encoding() -> None:
        outbox = Outbox(1, chunk=CHUNK)
        outbox.listen("bob")
        outbox._limit["bob"] = 100  # noqa: SLF001 (all the credit it needs)
        outbox.put(encode_row(row, round=0, step=0))
        payloads[:] = [encode(chunk) for chunk in outbox.ready()]

    def decoding() -> None:
        inbox = Inbox(1, 100, row_bytes(LENGTH, row.dtype), granted=100)
        for payload in payloads:
            for message in inbox.take(decode(payload)):
                read_row(message)

    print(f"{'4 MB row':<10} {'ms':>8} {'copy':>14} {'ms':>8} {'ratio':>20}")
    for name, body in (("encode", encoding), ("decode", decoding)):
        for kind, baseline in (("into mapped", copy), ("into fresh", lambda: bytearray(source))):
            mine, other, ratio = pair(body, baseline, repeats=REPEATS)
            print(f"{name:<10} {1e3 * mine:>8.2f} {kind:>14} {1e3 * other:>8.2f} {ratio:>20}")


if __name__ == "__main__":
    main()
