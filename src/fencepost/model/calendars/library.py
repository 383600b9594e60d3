"""Public holidays and the holidays of stock exchanges, by the `holidays` library."""

from __future__ import annotations

import logging
import warnings
from datetime import date
from typing import Any

from fencepost.errors import ConfigurationError

log = logging.getLogger("fencepost")

PREFERRED_LANGUAGE = "en_US"


def public_holidays(code: str, years: range, language: str | None = None) -> dict[date, str]:
    """`CH`, `CH-ZH`: of a country, or a part of one. `XNYS`: of a stock exchange."""
    if not isinstance(code, str):
        raise ConfigurationError(f'holidays={code!r} is not a code; give a text like "CH" or "CH-ZH".')
    try:
        import holidays
    except ImportError:
        raise ConfigurationError(
            f"the holidays of {code} need the holidays library: pip install 'fencepost[calendars]'"
        ) from None
    country, _, part = code.partition("-")
    try:
        if country in holidays.list_supported_financial() and not part:
            find: Any = holidays.financial_holidays
            options: dict[str, Any] = {}
        else:
            find, options = holidays.country_holidays, {"subdiv": part or None}
        known = find(country, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = find(country, years=years, language=_language(known, language), **options)
    except NotImplementedError as problem:
        raise ConfigurationError(
            f'holidays={code!r}: {problem}; give an ISO code such as "CH", "CH-ZH" or "US-NY", or an exchange '
            'such as "XNYS".'
        ) from None
    for text in {str(warning.message) for warning in caught}:  # some are known for a few years only
        log.warning("holidays of %s: %s", code, text)
    return {day: str(name) for day, name in sorted(found.items())}


def _language(known: Any, wanted: str | None) -> str | None:
    """Always one by name: otherwise the library takes it from the environment, and names, which are stored, would
    differ from host to host."""
    supported = tuple(known.supported_languages)
    if wanted is not None and wanted not in supported:
        raise ConfigurationError(
            f"the holidays of {known.country if hasattr(known, 'country') else known.market} are not known in "
            f"{wanted!r}; use one of {', '.join(supported) or 'the library, by leaving language out'}."
        )
    if wanted is not None:
        return wanted
    return PREFERRED_LANGUAGE if PREFERRED_LANGUAGE in supported else known.default_language
