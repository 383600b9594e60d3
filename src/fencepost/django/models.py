"""No table: the permissions that decide in the dashboard and the API. What Fencepost stores, its store creates."""

from __future__ import annotations

from django.db import models


class Scheduler(models.Model):  # type: ignore[misc]
    class Meta:
        managed = False
        default_permissions = ()
        permissions = (
            ("view", "Can see jobs and fires"),
            ("operate", "Can trigger, retry, cancel, pause and resume"),
            ("admin", "Can define and remove jobs"),
        )
