"""What the tests of algorithms share is in stacks.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
