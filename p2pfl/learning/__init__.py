"""Local training of models on a peer's own data.

Names are imported when they are first used, as a device without torch has no :class:`TorchLearner`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
