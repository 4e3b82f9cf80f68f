"""``p2pfl peer`` in an environment without torch, beside a peer with torch."""

import subprocess

import pytest
from safetensors.numpy import load_file

from p2pfl.network.transport.broker import embedded
from torchless import make_environment
from wine_files import wine_file

DEADLINE = 300.0


@pytest.mark.slow
def test_the_command_learns_where_torch_cannot_be_imported_beside_a_peer_with_torch(p2pfl, fork, place):
    python = make_environment(place / "board")
    (place / "small.toml").write_text(wine_file("small", peers=2, more="[transport]\ngather = 240\npatience = 240\n"))
    missing = subprocess.run([python, "-c", "import torch"], check=False, capture_output=True, text=True)
    assert "ModuleNotFoundError: No module named 'torch'" in missing.stderr
    with embedded(kind="mosquitto") as broker:
        words = ["peer", "small.toml", "--no-baselines", "--set", f"transport.broker={broker.url}"]
        other = fork(*words, "--name", "peer1", "--runs", "other")
        done = subprocess.run(
            [python, "-P", "-m", "p2pfl", *words, "--name", "peer0", "--runs", "here"],
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert (done.returncode, other.end().status) == (0, 0), done.stderr
    assert p2pfl("simulate", "small.toml", "--no-baselines", "--runs", "simulated").status == 0
    for folder, peer in (("here", "peer0"), ("other", "peer1")):
        [path] = (place / folder).glob(f"*/peers/{peer}.safetensors")
        [expected] = (place / "simulated").glob(f"*/peers/{peer}.safetensors")
        ours, theirs = load_file(path), load_file(expected)
        assert ours.keys() == theirs.keys()
        assert max(float(abs(ours[name] - theirs[name]).max()) for name in theirs) < 1e-6
