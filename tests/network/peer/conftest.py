"""Fixtures of the tests of attacks on live peers; the attacks are in tests/support/attacks.py."""

import pytest
import pytest_asyncio

from attacks import RING, run
from p2pfl.experiment import read
from swarms import SMALL


@pytest.fixture(scope="module")
def experiment():
    return read(SMALL, changes=RING)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def undisturbed(experiment):
    return {name: end.state.rows for name, end in (await run(experiment)).items()}
