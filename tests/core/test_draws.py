import hashlib

import numpy as np
import torch

from p2pfl.core.draws import keys, scramble, subkeys

WORD = 2**64 - 1


def split_mix(x):
    """Return the finaliser of SplitMix64 on Python's integers."""
    x &= WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def expected_key(seed, purpose, peer, round):
    base = int.from_bytes(hashlib.sha256(f"{seed}\x1f{purpose}\x1f{peer}".encode()).digest()[:8], "little")
    return split_mix(base + (round + 1) * 0x9E3779B97F4A7C15)


def test_a_key_is_split_mix_of_a_digest_and_the_round():
    found = keys(-3, "batches", ("ada", "bob"), 2**40)
    assert [int(key) & WORD for key in found] == [expected_key(-3, "batches", peer, 2**40) for peer in ("ada", "bob")]


def test_a_key_depends_on_seed_purpose_peer_and_round_and_not_on_other_peers():
    found = [
        keys(seed, purpose, (peer,), round).item()
        for seed in (0, 1)
        for purpose in ("batches", "dropout")
        for peer in ("ada", "bob")
        for round in (0, 1)
    ]
    assert len(set(found)) == 16
    assert keys(0, "batches", ("bob", "ada"), 0).tolist() == [found[2], found[0]]


def test_who_changes_the_returned_keys_changes_no_later_keys():
    first = keys(1, "batches", ("ada",))
    first += 1
    assert keys(1, "batches", ("ada",)).item() == first.item() - 1


def test_numpy_and_torch_hash_the_same_integers_to_the_same_bits():
    numbers = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 1000)
    assert scramble(torch.from_numpy(numbers)).tolist() == scramble(numbers).tolist()
    assert [split_mix(number) for number in numbers.tolist()] == [int(x) & WORD for x in scramble(numbers)]
    assert subkeys(torch.from_numpy(numbers), torch.arange(1000)).tolist() == [
        subkeys(numbers[i : i + 1], i).item() for i in range(1000)
    ]
