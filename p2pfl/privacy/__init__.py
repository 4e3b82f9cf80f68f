"""Privacy: protection of what leaves a peer, and accounting for it.

Names are imported when they are first used: the accountant does not need torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
