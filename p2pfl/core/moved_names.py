"""Names that modules had in release 0.1; they work in this release, with a warning."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

CORE = "draws encodings errors explanations files neighbourhood process rows texts traits"
NETWORK = "peer protocol transport virtual"
MOVED_MODULES = (
    {name: f"core.{name}" for name in CORE.split()}
    | {name: f"network.{name}" for name in NETWORK.split()}
    | {
        "audit": "plugins.audit",
        "compression": "core.codecs",
        "deploy": "plugins.operate",
        "exact": "plugins.exact",
        "identity": "privacy.keys",
        "importing": "core.imports",
        "inference": "results.models",
        "privacy.stream": "privacy.normal_stream",
        "report": "results",
        "robust": "algorithms.robust",
        "secagg": "privacy.secagg",
        "sweep": "plugins.study",
        "watch": "plugins.watch",
    }
)
"""New name of each module or package below ``p2pfl``, by its old one."""


class _ModuleAlias(Loader):
    """Loader of a module under its old name: the module of the new name itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002 (importlib's interface)
        module = importlib.import_module(self.name)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import has set that of the old name


class MovedModuleFinder(MetaPathFinder):
    """Finder of modules by the names that they had before."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 (importlib's interface)
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the spec of a module that has moved; ``None`` for all others."""
        root, *parts = fullname.split(".")
        if root != "p2pfl":
            return None
        for count in range(len(parts), 0, -1):
            if (new := MOVED_MODULES.get(".".join(parts[:count]))) is not None:
                name = ".".join(["p2pfl", new, *parts[count:]])
                warnings.warn(f"{fullname} is {name} now; change the import", DeprecationWarning, stacklevel=2)
                return ModuleSpec(fullname, _ModuleAlias(name))
        return None


def install_moved_names() -> None:
    """Let imports find modules by their old names.

    The finder is the first one: after an old package, the others would find its modules by path, and load them twice.
    """
    if not any(isinstance(finder, MovedModuleFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModuleFinder())
