"""When a job is due: `every`, `cron`, `at`, `rrule`; on open days, combined, spread.

Pure: nothing here reads a clock. A trigger is a value, and the fires it answers are a function of that
value alone, never of the instant of asking: `next_after(t)` is the first element after `t` of one fixed
sequence. That is what lets every replica, and the audit years later, compute the same fire keys.
All fires are aware datetimes in UTC, strictly increasing.
"""

from __future__ import annotations

from fencepost.model.triggers.base import LeftOut, Trigger
from fencepost.model.triggers.calendar import Calendar
from fencepost.model.triggers.closures import Blackout
from fencepost.model.triggers.codec import (
    INTEGRATIONS,
    Foreign,
    converted,
    register_trigger_type,
    stored_trigger,
    trigger_from_json,
)
from fencepost.model.triggers.combined import Difference, Intersection, Union
from fencepost.model.triggers.crontab import Cron, cron
from fencepost.model.triggers.interval import LONGEST_INTERVAL, SHORTEST_INTERVAL, Every, every
from fencepost.model.triggers.moments import MOST_MOMENTS, At, at
from fencepost.model.triggers.open_days import OpenDays
from fencepost.model.triggers.recurrence import RRule, rrule
from fencepost.model.triggers.spread import Staggered
from fencepost.model.triggers.times import (
    EARLIEST,
    LATEST,
    ONE_DAY,
    ONE_MICROSECOND,
    ONE_SECOND,
    as_utc,
    bounds,
    check_keys,
    declared,
    describe_bounds,
    did_you_mean,
    from_iso,
    iso,
    moment_from_json,
    moments_to_json,
    zone,
    zone_name,
)
from fencepost.model.triggers.walls import ClockRule, clock_times, fires_on_the_clock, fixed_times

__all__ = [
    "EARLIEST",
    "INTEGRATIONS",
    "LATEST",
    "LONGEST_INTERVAL",
    "MOST_MOMENTS",
    "ONE_DAY",
    "ONE_MICROSECOND",
    "ONE_SECOND",
    "SHORTEST_INTERVAL",
    "At",
    "Blackout",
    "Calendar",
    "ClockRule",
    "Cron",
    "Difference",
    "Every",
    "Foreign",
    "Intersection",
    "LeftOut",
    "OpenDays",
    "RRule",
    "Staggered",
    "Trigger",
    "Union",
    "as_utc",
    "at",
    "bounds",
    "check_keys",
    "clock_times",
    "converted",
    "cron",
    "declared",
    "describe_bounds",
    "did_you_mean",
    "every",
    "fires_on_the_clock",
    "fixed_times",
    "from_iso",
    "iso",
    "moment_from_json",
    "moments_to_json",
    "register_trigger_type",
    "rrule",
    "stored_trigger",
    "trigger_from_json",
    "zone",
    "zone_name",
]
