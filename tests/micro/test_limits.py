"""What a board's peer takes: no memory from the heap, few bytes, and no harm from hostile bytes."""

import re
import shutil
import subprocess

import pytest

from boards import MICRO, build, section_sizes
from p2pfl.network.protocol.timing.timeouts import WAIT_PULSE

pytestmark = pytest.mark.slow

OWN = ["text", "msgpack", "wire", "blake3", "mlp", "seal", "mqtt", "peer"]
"""Modules that every board has."""

HEAP = {"malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign", "alloca", "strdup"}


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory):
    return build(tmp_path_factory.mktemp("fuzz"), "fuzz", "SANITIZE=1", "CFLAGS=-O1")


def feed(fuzz, *, seed, count):
    """Feed hostile bytes to a board; return how many models it added."""
    done = subprocess.run([fuzz, str(seed), str(count)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


def test_hostile_broker_and_neighbour_do_a_board_no_harm(fuzz):
    """Address and undefined behaviour sanitizers watch; some messages are good, else nothing would be reached."""
    assert feed(fuzz, seed=7, count=6000) > 10


def test_board_reconnects_after_silence_before_it_takes_a_neighbour_for_gone(fuzz):
    """A network swallows all bytes for a minute of virtual time; the program ends where a neighbour counts as gone."""
    done = subprocess.run([fuzz, "silence"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3 times reconnected, 3 pings\n"), done.stderr


def test_a_neighbour_that_waits_may_lose_three_heartbeats_before_a_board_takes_it_for_gone():
    """The board would never take it back."""
    silence = re.search(r"#define SILENCE \((\d+) \* SECOND\)", (MICRO / "peer.c").read_text())
    assert silence is not None
    assert int(silence[1]) > 4 * WAIT_PULSE


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8))
def test_many_more_hostile_messages_do_a_board_no_harm(fuzz, seed):
    assert feed(fuzz, seed=100 + seed, count=60_000) > 100


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """Own modules, compiled for size, of a board with 2,410 parameters and two neighbours."""
    folder = tmp_path_factory.mktemp("objects")
    for tool in ("cc", "nm", "size"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    made = {name: folder / f"{name}.o" for name in OWN}
    for name, path in made.items():
        warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
        subprocess.run(["cc", "-std=c99", "-Os", *warnings, "-c", MICRO / f"{name}.c", "-o", path], check=True)
    return made


def test_board_takes_no_memory_from_the_heap(objects):
    for path in objects.values():
        listed = subprocess.run(["nm", "-u", path], capture_output=True, text=True, check=True).stdout.split()
        assert HEAP.isdisjoint(listed)


def test_code_and_memory_of_a_board_are_small(objects, tmp_path):
    sizes = [section_sizes(path) for path in objects.values()]
    assert sum(text for text, _, _ in sizes) < 40_000
    assert all(zeroed == 0 for _, _, zeroed in sizes)  # all memory is that of the peer itself
    source = tmp_path / "memory.c"
    source.write_text('#include "peer.h"\nextern struct micro_peer peer;\nstruct micro_peer peer;\n')
    made = tmp_path / "memory.o"
    subprocess.run(["cc", "-std=c99", "-I", MICRO, "-c", source, "-o", made], check=True)
    assert section_sizes(made)[2] < 56_000  # of 64 kB, so that the stack and the network have the rest
