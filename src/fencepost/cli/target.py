"""Targets: `module:attribute`, as uvicorn has them, or `fencepost.toml`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from fencepost.errors import ConfigurationError, FencepostError, UsageError
from fencepost.runs.importing import refusing_starts
from fencepost.scheduler.scheduler import Scheduler
from fencepost.settings import did_you_mean


def load(target: str) -> Scheduler:
    """The scheduler a target names: a module's attribute, or a file with commands."""
    if target.endswith(".toml"):
        from fencepost.scheduler.jobfile import scheduler_from

        return scheduler_from(Path(target))
    found = attribute_of(target)
    if not isinstance(found, Scheduler):
        raise UsageError(f"{target} is a {type(found).__name__}, not a Scheduler")
    return found


def attribute_of(target: str) -> object:
    """What `module:attribute` names. The module is imported, so its code runs."""
    module_name, separator, attribute = target.partition(":")
    if not separator or not module_name or not attribute:
        raise UsageError(
            f"target {target!r} must be module:attribute, as in app:scheduler, or fencepost.toml"
        )
    found: object = _module(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = did_you_mean(part, [name for name in dir(found) if not name.startswith("_")])
            raise UsageError(f"module {module_name!r} has no attribute {attribute!r}{near}")
        found = getattr(found, part)
    return found


def _module(name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        with refusing_starts(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"there is no module {name!r} here; run from the folder that holds {name.split('.')[0]}.py"
            ) from None
        raise ConfigurationError(f"module {name!r} needs {error.name!r}, which is not installed") from None
    except FencepostError:
        raise
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigurationError(
            f"module {name!r} cannot be imported: {type(error).__name__}: {error} "
            f"({Path(last.filename).name}, line {last.lineno})"
        ) from None
