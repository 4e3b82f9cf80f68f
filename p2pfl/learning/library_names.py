"""Names of models of libraries, such as ``torchvision:resnet18``."""

LIBRARIES = ("torchvision", "timm", "transformers")
"""Libraries whose models have names: the extras ``vision`` and ``language``."""


def is_reference(name: str) -> bool:
    """Return whether a name is that of a library's model, such as ``torchvision:resnet18``.

    Examples
    --------
    >>> is_reference("timm:vit_tiny_patch16_224"), is_reference("clinic:Net")
    (True, False)
    """
    library, colon, _ = name.partition(":")
    return bool(colon) and library in LIBRARIES
