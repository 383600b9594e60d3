"""The widget as a tag of Django's templates.

    TEMPLATES = [{…, "OPTIONS": {"libraries": {"fencepost": "fencepost.web.widget.django"}}}]
    FENCEPOST = {"SCHEDULER": "project.jobs:scheduler"}

    {% load fencepost %}{% fencepost_status job="stops" %}

The language is the request's, the time zone Django's current one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from django import template
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone, translation

from fencepost.scheduler.scheduler import Scheduler
from fencepost.web.widget.render import Html
from fencepost.web.widget.tag import StatusTag

register = template.Library()


@register.simple_tag  # type: ignore[untyped-decorator]
def fencepost_status(
    job: str | None = None, status: Mapping[str, Any] | None = None, **attributes: Any
) -> Html:
    """`status`: a document that the view has read, as an async view must."""
    attributes.setdefault("lang", translation.get_language())
    if settings.USE_TZ:
        attributes.setdefault("time_zone", timezone.get_current_timezone_name())
    return _tag(job)(status, **attributes)


@cache
def _tag(job: str | None) -> StatusTag:
    named: Any = getattr(settings, "FENCEPOST", {}).get("SCHEDULER")
    if named is None and apps.is_installed("fencepost.django"):
        named = "fencepost.django:scheduler"
    if isinstance(named, str) and ":" in named:
        module, _, attribute = named.partition(":")
        named = getattr(import_module(module), attribute)
    if not isinstance(named, Scheduler):
        raise ImproperlyConfigured(
            'FENCEPOST["SCHEDULER"] of the settings must name the scheduler: "project.jobs:scheduler"'
        )
    return StatusTag(named, job)
