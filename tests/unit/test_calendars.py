"""Calendars: where their days come from, what they leave out, and that what is stored needs no library."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from fencepost import Calendar, ConfigurationError, at, cron, every
from fencepost.model.triggers import Foreign, stored_trigger, trigger_from_json

ZURICH = ZoneInfo("Europe/Zurich")
MAY = datetime(2026, 5, 12, tzinfo=UTC)
HOLIDAYS = Calendar("zurich", holidays="CH-ZH", years=(2025, 2039))
OFFICE = Calendar("office", holidays="CH-ZH", weekend="sat,sun", years=(2025, 2039))


def local(trigger, after: datetime, count: int) -> list[str]:
    return [f"{fire.astimezone(ZURICH):%a %d %b %H:%M}" for fire in islice(trigger.after(after), count)]


def left(trigger, after: datetime, days: float) -> list[str]:
    return [f"{each.at:%d %b} {each}" for each in trigger.left_out(after, after + timedelta(days=days))]


class TestLeftOut:
    def test_a_holiday_by_its_name(self) -> None:
        mornings = cron("0 8 * * mon-fri", "Europe/Zurich", calendar=HOLIDAYS)
        assert local(mornings, MAY, 3) == ["Tue 12 May 08:00", "Wed 13 May 08:00", "Fri 15 May 08:00"]
        assert left(mornings, MAY, 7) == ["14 May left out: Ascension Day"]
        assert mornings.describe() == "cron 0 8 * * mon-fri in Europe/Zurich; left out when zurich is closed"

    def test_the_first_of_the_month_moves_to_the_next_open_day(self) -> None:
        rent = cron("0 8 1 * *", "Europe/Zurich", calendar=OFFICE, closed="shift")
        july = datetime(2026, 7, 2, tzinfo=UTC)
        # 1 August is the National Day and a Saturday, 1 November a Sunday.
        assert local(rent, july, 4) == [
            "Mon 03 Aug 08:00",
            "Tue 01 Sep 08:00",
            "Thu 01 Oct 08:00",
            "Mon 02 Nov 08:00",
        ]
        assert left(rent, july, 40) == ["01 Aug moved to 2026-08-03 06:00:00Z: National Day"]

    def test_moved_onto_a_fire_it_is_one_fire(self) -> None:
        daily = cron("0 8 * * *", "Europe/Zurich").on(OFFICE, "shift")
        assert local(daily, MAY, 4) == [
            "Tue 12 May 08:00",
            "Wed 13 May 08:00",
            "Fri 15 May 08:00",
            "Mon 18 May 08:00",
        ]

    def test_moved_fires_may_change_their_order(self) -> None:
        closed = Calendar("c", dates=["2026-05-13", "2026-05-14"])
        trigger = (cron("0 18 13 5 *") | cron("0 9 14 5 *") | cron("0 12 15 5 *")).on(closed, "shift")
        assert [f"{fire:%d %H}" for fire in islice(trigger.after(MAY), 3)] == ["15 09", "15 12", "15 18"]

    def test_a_blackout_leaves_out_what_is_in_it(self) -> None:
        freeze = Calendar("c", blackouts=[(MAY + timedelta(hours=2), MAY + timedelta(hours=4), "freeze")])
        hourly = cron("0 * * * *", calendar=freeze)
        assert [fire.hour for fire in islice(hourly.after(MAY), 3)] == [1, 4, 5]
        assert [each.why for each in hourly.left_out(MAY, MAY + timedelta(hours=9))] == ["freeze", "freeze"]

    def test_a_dense_grid_leaps_over_a_closed_week(self) -> None:
        week = Calendar("c", dates={"2026-05-12/2026-05-18": "works holidays"})
        steps = every(seconds=0.01, anchor=MAY - timedelta(days=1)).on(week)
        assert steps.next_after(MAY) == MAY + timedelta(days=7)

    def test_days_are_those_of_the_calendars_zone_or_else_of_the_triggers(self) -> None:
        closed = {"2026-05-13": "closed"}
        tokyo = Calendar("tokyo", dates=closed, tz="Asia/Tokyo")
        at_noon = MAY + timedelta(hours=12)
        assert cron("0 16 * * *").on(tokyo).next_after(at_noon) == MAY + timedelta(days=1, hours=16)
        assert cron("0 16 * * *").on(Calendar("utc", dates=closed)).next_after(at_noon) == MAY + timedelta(
            hours=16
        )

    def test_a_moment_of_at_is_left_out_too(self) -> None:
        feast = datetime(2026, 5, 14, 8, tzinfo=ZURICH)
        moments = at(feast, feast + timedelta(days=1))
        later = feast + timedelta(days=30)
        calendar = Calendar("c", dates=["2026-05-14"], tz="Europe/Zurich")
        assert moments.on(calendar).listed_until(later) == moments.moments[1:]
        assert moments.on(calendar, "shift").listed_until(later) == moments.moments[1:]
        assert at(feast).on(calendar, "shift").listed_until(later) == moments.moments[1:]

    def test_what_is_always_closed_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="never fires: all its days are closed"):
            cron("0 8 * * sun", calendar=Calendar("c", weekend="sat,sun"))
        with pytest.raises(ConfigurationError, match="leave one open"):
            Calendar("c", weekend="mon,tue,wed,thu,fri,sat,sun")

    def test_what_is_too_often_is_not_moved(self) -> None:
        with pytest.raises(ConfigurationError, match=r'too often to be moved.*closed="exclude"'):
            every(seconds=30).on(OFFICE, "shift")


class TestSources:
    def test_names_do_not_depend_on_the_language_of_the_host(self) -> None:
        code = "from fencepost import Calendar; print(Calendar('c', holidays='CH', years=(2026, 2026)).days[0][1])"
        env = {"LANGUAGE": "fr", "LANG": "fr", "LC_ALL": "fr"}
        found = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert found.stdout == "New Year's Day\n"

    def test_in_a_language(self) -> None:
        german = Calendar("c", holidays="CH-ZH", years=(2026, 2026), language="de")
        assert dict(german.days)[date(2026, 5, 14)] == "Auffahrt"
        with pytest.raises(ConfigurationError, match=r"not known in 'tlh'; use one of de, en_US"):
            Calendar("c", holidays="CH", language="tlh")

    def test_stock_exchanges(self) -> None:
        exchange = Calendar("nyse", holidays="XNYS", years=(2026, 2026))
        assert dict(exchange.days)[date(2026, 4, 3)] == "Good Friday"

    def test_several_and_own_days_which_name_a_day_anew(self) -> None:
        both = Calendar(
            "both",
            holidays=["CH-ZH", "DE-BY"],
            dates={"12-24": "Christmas Eve", "2026-05-14": "Party"},
            years=(2026, 2027),
        )
        days = dict(both.days)
        assert days[date(2026, 5, 14)] == "Party"
        assert days[date(2026, 12, 24)] == days[date(2027, 12, 24)] == "Christmas Eve"
        assert days[date(2026, 10, 3)] == "German Unity Day"

    def test_the_years_reach_ten_ahead_and_stay_for_five(self, monkeypatch) -> None:
        class Clock:
            def wall(self) -> datetime:
                return datetime(year, 12, 31, tzinfo=UTC)

        monkeypatch.setattr("fencepost.model.triggers.closures.SystemClock", Clock)
        found = {}
        for year in range(2025, 2032):
            found[year] = Calendar("c", dates={"01-01": "New Year"}).years
        assert {found[year] for year in range(2025, 2030)} == {(2025, 2039)}
        assert {found[year] for year in range(2030, 2032)} == {(2030, 2044)}

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"holidays": "XX"}, r"holidays='XX'.*give an ISO code"),
            ({"holidays": "CH-QQ"}, "subdivision QQ"),
            ({"holidays": [5]}, "5 is not a code"),
            ({"dates": "2026-12-24"}, "are not dates"),
            ({"dates": ["soon"]}, "'soon' is not a date.*write 2026-12-24"),
            ({"dates": ["13-40"]}, "'13-40' is not a date"),
            ({"dates": ["2026-12-24/2026-12-01"]}, "ends before it begins"),
            ({"dates": {"2026-12-24": 7}}, "7 does not say why"),
            (
                {"dates": [f"{year}-01-01/{year}-12-31" for year in range(1950, 1990)]},
                "at most 4000 closed days",
            ),
            ({"weekend": "caturday"}, "'caturday' is not a day of the week"),
            ({"blackouts": [(MAY, MAY)]}, "end it after it starts"),
            ({"blackouts": [(MAY, MAY + timedelta(days=400))]}, "within a year"),
            ({"blackouts": [(datetime(2026, 1, 1), MAY)]}, "is naive"),
            ({"blackouts": [5]}, "5 is not a blackout"),
            ({"tz": "Mars"}, "not a known time zone"),
            ({"years": (2026, 2099)}, "give the first and the last"),
            ({"years": 2026}, "give the first and the last"),
            ({"ics": "nowhere.ics"}, "cannot read the calendar nowhere.ics"),
        ],
    )
    def test_what_is_wrong_is_said(self, given, message) -> None:
        with pytest.raises(ConfigurationError, match=message):
            Calendar("c", **given)
        with pytest.raises(ConfigurationError, match="no name for a calendar"):
            Calendar("no name")

    def test_without_the_library_the_extra_is_named(self, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "holidays", None)
        with pytest.raises(ConfigurationError, match=r"fencepost\[calendars\]"):
            Calendar("c", holidays="CH")


ICS = """\
BEGIN:VCALENDAR
VERSION:2.0
BEGIN:VTIMEZONE
TZID:Europe/Zurich
BEGIN:STANDARD
DTSTART:19701025T030000
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
UID:1
DTSTART;VALUE=DATE:20260413
DTEND;VALUE=DATE:20260415
SUMMARY:Sechselaeuten\\, and the
  day after
END:VEVENT
BEGIN:VEVENT
UID:2
DTSTART;VALUE=DATE:20200910
SUMMARY:Knabenschiessen
RRULE:FREQ=YEARLY;BYMONTH=9;BYDAY=2MO;UNTIL=20280101
EXDATE;VALUE=DATE:20270913
END:VEVENT
BEGIN:VEVENT
UID:3
DTSTART;TZID="Europe/Zurich":20260420T220000
DURATION:PT8H
SUMMARY:Move
RRULE:FREQ=WEEKLY;COUNT=3
END:VEVENT
BEGIN:VEVENT
UID:3
RECURRENCE-ID;TZID=Europe/Zurich:20260427T220000
DTSTART:20260428T100000Z
DTEND:20260428T110000Z
SUMMARY:Move by day
END:VEVENT
BEGIN:VEVENT
UID:4
DTSTART;VALUE=DATE:20260601
STATUS:CANCELLED
SUMMARY:Nothing
END:VEVENT
END:VCALENDAR
"""


class TestFiles:
    def test_days_windows_rules_and_exceptions(self, tmp_path: Path) -> None:
        path = tmp_path / "closed.ics"
        path.write_text(ICS.replace("\n", "\r\n"))
        found = Calendar("c", ics=path, years=(2026, 2028))
        assert found.days == (
            (date(2026, 4, 13), "Sechselaeuten, and the day after"),
            (date(2026, 4, 14), "Sechselaeuten, and the day after"),
            (date(2026, 9, 14), "Knabenschiessen"),
        )
        windows = [(f"{each.start:%d %b %H}", f"{each.end:%d %b %H}", each.why) for each in found.blackouts]
        assert windows == [
            ("20 Apr 20", "21 Apr 04", "Move"),
            ("28 Apr 10", "28 Apr 11", "Move by day"),
            ("04 May 20", "05 May 04", "Move"),
        ]

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("BEGIN:VCALENDAR", "BEGIN:VCARD", "END:VCALENDAR without its BEGIN"),
            ("END:VCALENDAR\n", "", "not a whole iCalendar file"),
            ("VALUE=DATE:20260413", "VALUE=DATE:20261341", "line 11: DTSTART '20261341' is neither"),
            ("20260415", "20260401", "line 9: the event lasts -12 days"),
            ("FREQ=YEARLY", "FREQ=OFTEN", "line 16: RRULE.*no FREQ that is known"),
            ("FREQ=WEEKLY", "FREQ=HOURLY", "recurs within a day"),
            ("BYMONTH=9;BYDAY=2MO", "BYMONTH=2;BYMONTHDAY=30", "no occurrence"),
            ('"Europe/Zurich"', "W. Europe Standard Time", "'W. Europe Standard Time' is not an IANA zone"),
            ("PT8H", "P8", "is not a duration"),
            ("SUMMARY:Move\n", "SUMMARY\n", "is not NAME:value"),
        ],
    )
    def test_the_line_that_is_wrong_is_named(self, tmp_path: Path, old, new, message) -> None:
        path = tmp_path / "closed.ics"
        assert old in ICS
        path.write_text(ICS.replace(old, new))
        with pytest.raises(ConfigurationError, match=f"closed.ics, line .*{message}|closed.ics, {message}"):
            Calendar("c", ics=path, years=(2026, 2028))

    def test_a_large_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "closed.ics"
        path.write_bytes(b" " * 2_000_001)
        with pytest.raises(ConfigurationError, match="larger than"):
            Calendar("c", ics=path)

    def test_load(self, tmp_path: Path) -> None:
        (tmp_path / "closed.ics").write_text(ICS)
        (tmp_path / "fencepost.toml").write_text("""
[calendars.zurich]
holidays = "CH-ZH"
ics = "closed.ics"
weekend = "sat,sun"
years = [2026, 2028]
dates = { "12-24" = "Christmas Eve" }
blackouts = [{ from = 2026-12-28T00:00:00+01:00, until = 2027-01-04T00:00:00+01:00, why = "freeze" }]
[calendars.bad]
holiday = "CH"
""")
        found = Calendar.load("zurich", tmp_path)
        assert found.name == "zurich"
        assert found.closed_day(date(2026, 4, 13)) == "Sechselaeuten, and the day after"
        assert found.closed_day(date(2026, 12, 24)) == "Christmas Eve"
        assert found.closed_day(date(2026, 5, 14)) == "Ascension Day"
        assert found.closed_day(date(2026, 5, 16)) == "Saturday"
        assert found.blackouts[-1].why == "freeze"
        with pytest.raises(ConfigurationError, match="no calendar 'zurch'; did you mean 'zurich'"):
            Calendar.load("zurch", tmp_path)
        with pytest.raises(ConfigurationError, match="there is no 'holiday'; did you mean 'holidays'"):
            Calendar.load("bad", tmp_path)


class TestStored:
    TRIGGER = cron("0 8 * * *", "Europe/Zurich", calendar=OFFICE, closed="shift")

    def test_json(self) -> None:
        value = json.loads(json.dumps(self.TRIGGER.to_json()))
        assert trigger_from_json(value) == self.TRIGGER
        assert hash(trigger_from_json(value)) == hash(self.TRIGGER)
        assert value["calendar"]["days"]["Ascension Day"].startswith("2025-05-29 2026-05-14 ")
        assert value["calendar"]["weekend"] == "sat sun"
        assert len(json.dumps(value)) < 2_500

    def test_another_list_is_another_trigger(self) -> None:
        one_more = Calendar(
            "office", holidays="CH-ZH", weekend="sat,sun", dates=["2026-06-05"], years=(2025, 2039)
        )
        assert cron("0 8 * * *", "Europe/Zurich", calendar=one_more, closed="shift") != self.TRIGGER

    def test_a_host_without_the_libraries_computes_the_same(self) -> None:
        code = """
import sys, json
from datetime import datetime, UTC
from itertools import islice
sys.modules["holidays"] = sys.modules["dateutil"] = None
from fencepost.model.triggers import stored_trigger
trigger = stored_trigger(json.loads(sys.stdin.read()))
print([str(fire) for fire in islice(trigger.after(datetime(2026, 5, 12, tzinfo=UTC)), 300)])
"""
        found = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(self.TRIGGER.to_json()),
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == str([str(fire) for fire in islice(self.TRIGGER.after(MAY), 300)])

    @pytest.mark.parametrize(
        "change",
        [
            {"closed": "maybe"},
            {"calendar": 5},
            {"calendar": {}},
            {"calendar": {"name": "c", "days": []}},
            {"calendar": {"name": "c", "days": {"x": 5}}},
            {"calendar": {"name": "c", "days": {"x": "2026-99-01"}}},
            {"calendar": {"name": "c", "weekend": 5}},
            {"calendar": {"name": "c", "blackouts": [5]}},
            {"calendar": {"name": "c", "blackouts": [{"from": "2026"}]}},
            {"calendar": {"name": "c", "years": [1]}},
            {"calendar": {"name": "c", "years": ["a", "b"]}},
            {"calendar": {"name": "c", "tz": "Mars"}},
            {"calendar": {"name": "c", "moon": "full"}},
            {"of": {"type": "cron"}},
            {"more": 1},
        ],
    )
    def test_bad_json_is_refused_and_kept_as_of_another_host(self, change) -> None:
        value = {**self.TRIGGER.to_json(), **change}
        with pytest.raises(ConfigurationError):
            trigger_from_json(value)
        kept = stored_trigger(value)
        assert isinstance(kept, Foreign)
        assert kept.to_json() == value
