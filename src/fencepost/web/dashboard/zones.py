"""In which zone times are shown: UTC, one that was chosen, or each job's own. The choice stands in the URL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from fencepost.errors import ConfigurationError
from fencepost.insight.views.words import length, when
from fencepost.model.triggers import Trigger, zone

OF_THE_JOB = "job"
LONGEST_NAME = 64


@dataclass(frozen=True)
class Zones:
    """`name`: `UTC`, an IANA name, or `job`."""

    name: str = "UTC"

    @classmethod
    def asked(cls, text: str) -> Zones:
        """A zone that is not known is UTC: a link from elsewhere is no reason to show nothing."""
        if text == OF_THE_JOB:
            return cls(OF_THE_JOB)
        try:
            return cls(zone(text).key) if 0 < len(text) <= LONGEST_NAME else cls()
        except (ConfigurationError, KeyError, ValueError, OSError):  # what zoneinfo says to odd names
            return cls()

    @property
    def in_words(self) -> str:
        return "each job's zone" if self.name == OF_THE_JOB else self.name

    def of(self, job_zone: str | None = None) -> tzinfo:
        name = (job_zone or "UTC") if self.name == OF_THE_JOB else self.name
        return UTC if name == "UTC" else zone(name)

    def text(self, moment: datetime, job_zone: str | None = None) -> str:
        """`2026-11-17 03:00:00 CET`"""
        local = moment.astimezone(self.of(job_zone))
        return f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()}"

    def exact(self, moment: datetime, job_zone: str | None = None) -> str:
        local = moment.astimezone(self.of(job_zone))
        return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03} {local.tzname()}"

    def clock(self, moment: datetime, job_zone: str | None = None) -> str:
        """`03:00:00`"""
        return f"{moment.astimezone(self.of(job_zone)):%H:%M:%S}"


def zone_of(trigger: Trigger | None) -> str | None:
    """The zone that a trigger's clock is in."""
    return None if trigger is None else trigger.local_zone


__all__ = ["OF_THE_JOB", "Zones", "length", "when", "zone_of"]
