"""The register of stops: a zipped CSV with semicolons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from stop_sync.model import Operator, Stop
from stop_sync.reading.checks import CsvRow, Tally, Unreadable, coordinates, csv_rows, required, text

COLUMNS = (
    "sloid",
    "number",
    "designation",
    "designationOfficial",
    "wgs84North",
    "wgs84East",
    "validTo",
    "uicCountryCode",
    "trafficPointElementType",
    "businessOrganisation",
    "businessOrganisationAbbreviation",
    "businessOrganisationDescription",
)
LANGUAGES = ("En", "De", "Fr", "It")
OTHER_NAMES = {
    "businessOrganisation": ("servicePointBusinessOrganisation",),
    **{
        column: (
            *(f"{column}{language}" for language in LANGUAGES),
            *(f"servicePoint{column[0].upper()}{column[1:]}{language}" for language in LANGUAGES),
        )
        for column in ("businessOrganisationAbbreviation", "businessOrganisationDescription")
    },
}
"""The register as it is published names the organisation of the service point, in four languages."""
PUBLISHED = (
    *COLUMNS[:-3],
    "servicePointBusinessOrganisation",
    "servicePointBusinessOrganisationAbbreviationEn",
    "servicePointBusinessOrganisationDescriptionEn",
)
"""As in the file that is published today."""
SWITZERLAND = "85"
PLATFORM = "BOARDING_PLATFORM"
NUMBER = re.compile(r"[0-9]{7}")


def read_register(archive: Path, on: date, tally: Tally) -> Iterator[tuple[Stop, Operator]]:
    """The platforms in Switzerland that are valid on that day, each with who runs it."""
    for row in csv_rows(archive, "*.csv", COLUMNS, delimiter=";", other_names=OTHER_NAMES):
        try:
            why_not = _passed_over(row, on)
            if why_not is not None:
                tally.passed_over[why_not] += 1
                continue
            yield _stop(row), _operator(row)
        except Unreadable as error:
            tally.unreadable[str(error)] += 1


def _passed_over(row: CsvRow, on: date) -> str | None:
    """Cheapest first. A row that is not ours may be as odd as it likes."""
    if row["uicCountryCode"] != SWITZERLAND:
        return "foreign"
    if row["trafficPointElementType"] != PLATFORM:
        return "no platform"
    try:
        return "expired" if date.fromisoformat(row["validTo"]) < on else None
    except ValueError:
        raise Unreadable("no date in validTo") from None


def _stop(row: CsvRow) -> Stop:
    if not NUMBER.fullmatch(row["number"]):
        raise Unreadable("a number that is no UIC reference")
    latitude, longitude = coordinates(row["wgs84North"], row["wgs84East"])
    return Stop(
        required(row["sloid"], "sloid"),
        row["number"],
        text(row["designation"]),
        required(row["designationOfficial"], "name"),
        latitude,
        longitude,
        text(row["businessOrganisationAbbreviation"]),
    )


def _operator(row: CsvRow) -> Operator:
    return Operator(
        required(row["businessOrganisation"], "business organisation"),
        text(row["businessOrganisationAbbreviation"]),
        text(row["businessOrganisationDescription"]),
    )
