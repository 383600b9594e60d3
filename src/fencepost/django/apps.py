"""The app, as Django loads it."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class FencepostConfig(AppConfig):  # type: ignore[misc]
    name = "fencepost.django"
    label = "fencepost"
    verbose_name = "Fencepost"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from fencepost.django.checks import check_deployment, check_project
        from fencepost.django.discovery import discover

        checks.register(check_project, "fencepost")
        checks.register(check_deployment, "fencepost", deploy=True)
        discover()
