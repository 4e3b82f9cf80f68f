"""What the tests of robust rules share is in golden.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
