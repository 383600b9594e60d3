"""The one scheduler of the project, made from its settings."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import django
from django.apps import apps
from django.core import mail
from django.core.exceptions import ImproperlyConfigured

from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.django.schedulers import ProjectScheduler

TARGET = "fencepost.django:scheduler"
"""What the commands of Fencepost are told."""

_lock = threading.RLock()
_made: ProjectScheduler | None = None


def project_scheduler() -> ProjectScheduler:
    """Raises `ConfigurationError`. Nothing has set Django up outside of `manage.py` and of servers, as in
    `fencepost status fencepost.django:scheduler`."""
    global _made
    if not apps.ready and not apps.loading:
        _set_up()
    with _lock:
        if _made is None:
            from fencepost.django.configuration import make_scheduler

            _made = make_scheduler()
        return _made


def is_testing() -> bool:
    """Between Django's `setup_test_environment` and `teardown_test_environment`. Then no process takes part: jobs would
    change the test's data."""
    return hasattr(mail, "outbox")


def _set_up() -> None:
    try:
        django.setup()
    except ImproperlyConfigured as error:
        raise ConfigurationError(f"Django cannot be set up: {error}") from None
