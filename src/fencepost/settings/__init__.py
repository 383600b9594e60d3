"""The settings of a process: `settings.py` has them, `values.py` what each may be, `places.py` where they come from,
and `store_urls.py` the addresses of stores."""

from fencepost.settings.places import Sources, reserved_table, sources, variable_hint
from fencepost.settings.settings import DEFAULT_STORE, Settings
from fencepost.settings.store_urls import (
    ON_A_SERVER,
    QUOTE_IT,
    REDIS_SCHEMES,
    SCHEMES,
    checked_store_url,
    redacted,
    scheme_of,
)
from fencepost.settings.values import LONGEST_DURATION, did_you_mean, duration

__all__ = [
    "DEFAULT_STORE",
    "LONGEST_DURATION",
    "ON_A_SERVER",
    "QUOTE_IT",
    "REDIS_SCHEMES",
    "SCHEMES",
    "Settings",
    "Sources",
    "checked_store_url",
    "did_you_mean",
    "duration",
    "redacted",
    "reserved_table",
    "scheme_of",
    "sources",
    "variable_hint",
]
