"""The experiment file: one validated schema that builds what learns.

Names are imported when they are first used: reading an experiment does not need torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
