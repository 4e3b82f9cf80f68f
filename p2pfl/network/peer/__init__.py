"""One live peer: the connection that carries out what its session decides, and what learning adds to it.

Names are imported when they are first used, because the fork server of ``run`` starts from this package before torch is
loaded.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
