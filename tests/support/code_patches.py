"""Functions whose code reads otherwise for as long as a patch lasts."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from types import CodeType


def patched(*lines):
    """Return a build in which lines of functions read otherwise.

    ``lines`` are triples: the function as ``package.module:qualified.name``, a text that is once in its source, and
    another text. Code is replaced within the function, so whoever has imported it runs the other text, too.
    """

    def build(patch):
        for place, old, new in lines:
            function = _function(place)
            source = textwrap.dedent(inspect.getsource(function))
            assert source.count(old) == 1, f"{place} has {source.count(old)} times: {old}"
            patch.setattr(function, "__code__", _compiled(function, source.replace(old, new)))

    return build


def _function(place):
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    found = getattr(found, "fget", None) or getattr(found, "__func__", None) or found  # of properties and class methods
    return inspect.unwrap(found)


def _compiled(function, source):
    """Return the code of a function with another source, and with the same variables from around it."""
    (definition,) = ast.parse(source).body
    definition.decorator_list.clear()
    around = ast.parse(f"def around({', '.join(function.__code__.co_freevars)}): pass")
    around.body[0].body = [definition]
    code = compile(around, function.__code__.co_filename, "exec", annotations.compiler_flag)
    for _ in range(2):
        code = next(each for each in code.co_consts if isinstance(each, CodeType))
    return code
