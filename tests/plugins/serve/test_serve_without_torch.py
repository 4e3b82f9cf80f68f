"""``p2pfl serve`` answers where torch cannot be imported."""

import json
import os
import re
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

PROGRAM = "import sys; sys.modules['torch'] = None; from p2pfl.cli import main; sys.exit(main(sys.argv[1:]))"
ROWS = [{"age": 63, "sex": "f", "weight": 70_000, "ward": "east"}, {"age": 40, "sex": "m", "weight": None, "ward": "x"}]


@pytest.mark.slow
def test_a_device_without_torch_answers_as_a_computer_with_it(model_file, served):
    paths = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "serve", str(model_file), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    try:
        said = next(line for line in process.stderr if "serves" in line or "torch" in line)
        found = re.search(r"serves (http://\S+)", said)
        assert found, said
        request = urllib.request.Request(  # noqa: S310 (our own server)
            found[1].rstrip("/") + "/predict", json.dumps(ROWS).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            answered = json.load(answer)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    expected = served.answer(json.dumps(ROWS).encode())
    assert answered["predictions"] == expected["predictions"]
    np.testing.assert_allclose(answered["probabilities"], expected["probabilities"], rtol=0, atol=1e-6)
