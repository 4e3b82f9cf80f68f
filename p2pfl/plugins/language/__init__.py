"""Trainers of other libraries as learners: language models by Hugging Face, and modules of Lightning."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
