"""How many examples Hypothesis tries, relative to the profile in force: ``dev``, ``ci`` or ``thorough``."""

from hypothesis import settings

FEW = settings(max_examples=max(2, settings().max_examples // 5))
"""For properties of which each example trains a model or solves a large system."""

MANY = settings(max_examples=10 * settings().max_examples)
"""For properties of bytes, whose examples take microseconds."""

SEVERAL = settings(max_examples=4 * settings().max_examples)
"""For state machines, each of whose examples is a history."""
