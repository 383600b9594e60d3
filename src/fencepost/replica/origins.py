"""Where a job's code is: distinguishes two applications that use the same job id.

The origin of code is the project it belongs to and where in it: of an installed distribution the module, of a source
tree the path below its `pyproject.toml`. Only where there is neither it is the file's own path. So the replicas of one
application agree, wherever each is installed; and so they do if `FENCEPOST_ORIGIN` names it.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fencepost.model import Origin

INSTALLED = frozenset({"site-packages", "dist-packages"})


def origin_of(function: Callable[..., Any], application: str | None = None) -> Origin | None:
    """`application`: its name, if it was given one. None: unknown, as in an interactive session."""
    own = getattr(function, "origin", None)
    if isinstance(own, Origin):
        return own
    while isinstance(function, functools.partial):
        function = function.func
    found = _origin_of_module(str(getattr(function, "__module__", "")))
    if application is None:
        return found
    return Origin(application, module=found.module if found else "", distribution=application)


@functools.cache
def _origin_of_module(name: str) -> Origin | None:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    path = Path(os.path.abspath(file))
    if name == "__main__":
        spec = getattr(module, "__spec__", None)
        name = spec.name if spec is not None else path.stem
    if INSTALLED.intersection(path.parts):
        distribution = _distribution_of(name)
        return Origin(f"{distribution}:{name}", module=name, distribution=distribution)
    for folder in path.parents:
        if project := _project_in(folder):
            inside = path.relative_to(folder).as_posix()
            return Origin(f"{project}:{inside}", module=name, distribution=project, file=inside)
    return Origin(str(path), module=name, file=str(path))


def _distribution_of(module: str) -> str:
    """A package that several distributions share goes by its own name."""
    package = module.partition(".")[0]
    found = sorted(set(_distributions().get(package, ())))
    return found[0] if len(found) == 1 else package


@functools.cache
def _distributions() -> Any:
    return importlib.metadata.packages_distributions()


@functools.cache
def _project_in(folder: Path) -> str | None:
    """What the project is called whose source tree this is."""
    with suppress(OSError, ValueError):
        table = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        for path in (("project",), ("tool", "poetry")):
            found: Any = table
            for key in (*path, "name"):
                found = found.get(key, {}) if isinstance(found, dict) else {}
            if found and isinstance(found, str):
                return found
    return None
