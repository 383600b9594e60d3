"""What a guarded job is called in the store: the same on every replica."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model import checked_id
from fencepost.model.triggers import Trigger

_MADE_UP = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")
_FITS = re.compile(r"[A-Za-z0-9_.:-]{1,200}")


def is_made_up(id: str) -> bool:
    """Whether APScheduler made this id up because none was given: then each process has another."""
    return _MADE_UP.fullmatch(id) is not None


def given_name(id: str) -> str:
    """An id chosen by the user. One that does not fit is shortened, and made unique by a digest."""
    if _FITS.fullmatch(id):
        return id
    return checked_id(f"{re.sub(r'[^A-Za-z0-9_.:-]', '_', id)[:180]}-{_digest(id)}", "job id")


def derived_name(job: Any, trigger: Trigger) -> str:
    """From function, trigger and arguments, which are the same wherever the same code runs."""
    if job.func_ref is None:
        raise ConfigurationError(
            f"job {job.name!r} runs {job.func!r}, which has no name that other processes could know it by; "
            "give the job an id=, or define the function at the top of a module"
        )
    arguments = [_described(value, job) for value in job.args]
    named = {name: _described(value, job) for name, value in job.kwargs.items()}
    identity = json.dumps([trigger.to_json(), arguments, named], sort_keys=True)
    return given_name(f"{_reference(job)}-{_digest(identity)}")


def _reference(job: Any) -> str:
    """`module:function`. What a script calls `__main__` has another name for those who import it."""
    module, _, name = str(job.func_ref).partition(":")
    if module != "__main__":
        return f"{module}:{name}"
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m package.module
        return f"{spec.name.removesuffix('.__main__')}:{name}"
    file = getattr(main, "__file__", None)
    return f"{Path(file).stem if file else module}:{name}"


def _described(value: Any, job: Any) -> Any:
    """An argument as text that is the same in every process."""
    if isinstance(value, Mapping):
        return sorted([_described(key, job), _described(each, job)] for key, each in value.items())
    if isinstance(value, set | frozenset):
        return sorted(_described(each, job) for each in value)
    if isinstance(value, list | tuple):
        return [_described(each, job) for each in value]
    text = repr(value)
    if " at 0x" in text:
        raise ConfigurationError(
            f"job {job.name!r} has the argument {text}, whose text differs in every process, so no name can be "
            "made for the job; give it an id="
        )
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
