"""Words, `H`, recurrence rules, combinations and spread: what they mean, how they are stored, what is refused."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr

from fencepost import ConfigurationError, Scheduler, at, cron, every, rrule
from fencepost.model.triggers import Foreign, stored_trigger, trigger_from_json

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
ZURICH = ZoneInfo("Europe/Zurich")
FRIDAY = datetime(2026, 11, 27, 17, tzinfo=ZURICH)


def fires(trigger, count: int, after: datetime = NOON) -> list[str]:
    return [f"{fire:%d %b %H:%M}" for fire in islice(trigger.after(after), count)]


def draw_rule(chance: random.Random, freq: str) -> str:
    parts = [f"FREQ={freq}", f"INTERVAL={chance.choice([1, 1, 2, 3, 7, 10])}"]

    def perhaps(name: str, low: int, high: int, *, from_end: bool = False, often: float = 0.3) -> None:
        if chance.random() < often:
            numbers = {chance.randint(low, high) for _ in range(chance.randint(1, 4))}
            signs = [-1, 1] if from_end else [1]
            parts.append(
                f"{name}={','.join(str(number * chance.choice(signs)) for number in sorted(numbers))}"
            )

    perhaps("BYMONTH", 1, 12)
    if freq != "WEEKLY":
        perhaps("BYMONTHDAY", 1, 31, from_end=True)
    if freq in ("YEARLY", "DAILY", "HOURLY"):
        perhaps("BYYEARDAY", 1, 366, from_end=True, often=0.1)
    if chance.random() < 0.3:
        parts.append(f"BYDAY={','.join(chance.sample(['MO', 'TU', 'WE', 'TH', 'FR', 'SA', 'SU'], 4))}")
    perhaps("BYHOUR", 0, 23)
    perhaps("BYMINUTE", 0, 59)
    perhaps("BYSECOND", 0, 59)
    if freq != "WEEKLY":  # there dateutil counts in what is left of the first week
        perhaps("BYSETPOS", 1, 3, from_end=True, often=0.2)
    return ";".join([*parts, *chance.choice([[], ["WKST=SU"], ["COUNT=25"]])])


@pytest.mark.parametrize(
    ("word", "expression"),
    [("@hourly", "0 * * * *"), ("@DAILY", "0 0 * * *"), ("@weekly", "0 0 * * 0"), ("@yearly", "0 0 1 1 *")],
)
def test_a_word_is_what_it_stands_for(word: str, expression: str) -> None:
    assert cron(word, "Europe/Zurich") == cron(expression, "Europe/Zurich")


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="did you mean '@weekly'"):
        cron("@weakly")
    with pytest.raises(ConfigurationError, match="call the function where the program starts"):
        cron("@reboot")


class TestHashes:
    def test_they_are_numbers_of_the_jobs_own_that_stay(self) -> None:
        nightly = cron("H H(1-4) * * *", "Europe/Zurich")
        assert nightly.bound("billing").to_json()["expression"] == "14 3 * * *"
        assert nightly.bound("reports").to_json()["expression"] == "42 1 * * *"
        assert not nightly.is_bound
        assert nightly.bound("billing").bound("reports") == nightly.bound("billing")

    def test_jobs_are_spread_evenly(self) -> None:
        minutes = Counter(
            cron("H * * * *").bound(f"job-{n}").to_json()["expression"].split()[0] for n in range(6_000)
        )
        assert len(minutes) == 60
        assert max(minutes.values()) < 150

    @pytest.mark.parametrize(
        ("field", "low", "high"),
        [
            ("H * * * *", 0, 59),
            ("0 H * * *", 0, 23),
            ("0 0 H * *", 1, 28),
            ("0 0 1 H *", 1, 12),
            ("0 0 * * H", 0, 6),
        ],
    )
    def test_the_range_of_each_field(self, field: str, low: int, high: int) -> None:
        place = field.split().index("H")
        found = {
            int(cron(field).bound(f"job-{n}").to_json()["expression"].split()[place]) for n in range(1_000)
        }
        assert found == set(range(low, high + 1))

    def test_steps_start_at_a_number_of_the_jobs_own(self) -> None:
        quarters = cron("H/15 9-17 * * MON-THU").bound("job")
        first, _, rest = quarters.to_json()["expression"].split()[0].partition("-")
        assert int(first) < 15
        assert rest == "59/15"

    def test_the_seconds_field_changes_no_other(self) -> None:
        with_seconds, without = (cron(text).bound("job").to_json() for text in ("0 H H * * *", "H H * * *"))
        assert with_seconds["expression"] == "0 " + without["expression"]

    @pytest.mark.parametrize("field", ["H(5-70)", "H(9-3)", "H/0", "H/61", "H5", "H(1)", "Hx", "h", "*/H"])
    def test_bad_ones(self, field: str) -> None:
        with pytest.raises(ConfigurationError):
            cron(f"{field} * * * *")

    def test_by_itself_it_has_no_fires(self) -> None:
        with pytest.raises(ConfigurationError, match=r"call bound\(job_id\)"):
            cron("H * * * *").next_after(NOON)

    def test_the_job_binds_it_wherever_it_is(self) -> None:
        scheduler = Scheduler("memory://")

        @scheduler.job((cron("H 3 * * *") | cron("0 12 * * *")) - cron("H 4 * * *"), id="report")
        def report(): ...

        trigger = scheduler.jobs["report"].trigger
        assert trigger is not None
        assert trigger.is_bound
        assert "H" not in json.dumps(trigger.to_json()).replace("UTC", "")


class TestSpread:
    def test_every_job_has_an_offset_of_its_own_that_stays(self) -> None:
        scheduler = Scheduler("memory://")
        for id in ("a", "b"):
            scheduler.command(["true"], cron("0 3 * * *"), id=id, spread="10m")
        a, b = (scheduler.jobs[id].trigger for id in ("a", "b"))
        assert a is not None
        assert b is not None
        assert a.to_json() == {
            "type": "spread",
            "of": {"type": "cron", "expression": "0 3 * * *", "tz": "UTC"},
            "within": 600,
            "offset": 392,
        }
        assert a.describe() == "cron 0 3 * * * in UTC, 6 minutes 32 seconds later (spread over 10 minutes)"
        assert a.next_after(NOON) != b.next_after(NOON)
        assert trigger_from_json(a.to_json()) == a

    def test_offsets_are_spread_evenly(self) -> None:
        offsets = Counter(every(hours=1).spread("1m", f"job-{n}").offset for n in range(6_000))
        assert set(offsets) == {timedelta(seconds=second) for second in range(60)}
        assert max(offsets.values()) < 150

    def test_an_open_anchor_and_listed_moments_are_those_of_the_trigger(self) -> None:
        grid = every(hours=1).spread("10m", "a")
        assert grid.resolved(NOON).next_after(NOON) == NOON + timedelta(hours=1) + grid.offset
        moments = at(NOON).spread("10m", "a")
        assert moments.listed_until(NOON) == ()
        assert moments.listed_until(NOON + moments.offset) == (NOON + moments.offset,)
        assert moments.count_after(NOON, NOON + timedelta(hours=1)) == 1

    @pytest.mark.parametrize("within", ["0s", "0.5s", "25h", "soon", -1])
    def test_bad_ones(self, within) -> None:
        with pytest.raises(ConfigurationError):
            every(hours=1).spread(within, "a")

    @pytest.mark.parametrize(
        "change", [{"offset": 600}, {"offset": -1}, {"within": 0}, {"offset": True}, {"of": 5}]
    )
    def test_bad_json(self, change) -> None:
        with pytest.raises(ConfigurationError):
            trigger_from_json({**cron("0 3 * * *").spread("10m", "a").to_json(), **change})


class TestCombinations:
    def test_or(self) -> None:
        twice = cron("0 9 * * *") | cron("0 9,18 * * *")
        assert fires(twice, 3) == ["15 Nov 18:00", "16 Nov 09:00", "16 Nov 18:00"]
        assert twice == cron("0 9,18 * * *") | (cron("0 9 * * *") | cron("0 9 * * *"))
        assert twice.describe() == "cron 0 9 * * * in UTC; or cron 0 9,18 * * * in UTC"

    def test_and(self) -> None:
        mondays = cron("0 9 * * *") & cron("* * * * MON")
        assert fires(mondays, 2) == ["16 Nov 09:00", "23 Nov 09:00"]
        assert mondays.describe() == "cron * * * * MON in UTC; only together with cron 0 9 * * * in UTC"

    def test_except(self) -> None:
        days = cron("0 * * * *") - cron("* 0-7,19-23 * * *")
        assert fires(days, 8)[-2:] == ["16 Nov 08:00", "16 Nov 09:00"]
        assert days.describe() == "cron 0 * * * * in UTC; except cron * 0-7,19-23 * * * in UTC"
        [left] = (cron("0 9 * * *") - cron("0 9 * * MON")).left_out(NOON, NOON + timedelta(days=2))
        assert str(left) == "left out: except cron 0 9 * * MON in UTC"

    def test_brackets(self) -> None:
        both = (cron("0 9 * * *") | cron("0 18 * * *")) - (cron("0 9 * * MON") | cron("0 18 * * SUN"))
        assert fires(both, 3) == ["16 Nov 18:00", "17 Nov 09:00", "17 Nov 18:00"]
        assert both.describe().startswith("(cron 0 18 * * * in UTC; or cron 0 9 * * * in UTC); except (cron")

    def test_listed_moments_are_those_that_fire(self) -> None:
        first, second = NOON, NOON + timedelta(minutes=1)
        assert (at(first) | at(second)).listed_until(second) == (first, second)
        assert (at(first, second) & cron("0 * * * *")).listed_until(second) == (first,)
        assert (at(first, second) - cron("0 * * * *")).listed_until(second) == (second,)

    def test_an_open_grid_may_be_joined_but_not_compared(self) -> None:
        joined = every(hours=5) | cron("0 9 * * *")
        assert fires(joined.resolved(NOON), 4) == [
            "15 Nov 17:00",
            "15 Nov 22:00",
            "16 Nov 03:00",
            "16 Nov 08:00",
        ]
        with pytest.raises(ConfigurationError, match=r"give every\(…, anchor=…\)"):
            every(minutes=5) & cron("0 9 * * *")
        with pytest.raises(ConfigurationError, match=r"give every\(…, anchor=…\)"):
            cron("0 9 * * *") - every(minutes=5)

    def test_what_never_fires_is_refused_in_bounded_time(self) -> None:
        begun = process_time()
        with pytest.raises(ConfigurationError, match="never fires: no fire that all of them have"):
            every(seconds=1, anchor=NOON) & every(seconds=1, anchor=NOON + timedelta(milliseconds=1))
        with pytest.raises(ConfigurationError, match="never fires: the second has all fires of the first"):
            cron("0 9 * * *") - cron("* * * * *")
        with pytest.raises(ConfigurationError, match="never fires"):
            at(NOON) & cron("0 9 * * *")
        assert process_time() - begun < 5

    def test_a_search_that_finds_nothing_more_ends(self) -> None:
        grid, beside = (every(seconds=1, anchor=NOON + timedelta(milliseconds=n)) for n in (0, 1))
        once = (grid | at(NOON)) & (beside | at(NOON))
        assert list(once.after(NOON - timedelta(days=1))) == [NOON]
        assert once.next_after(datetime.max.replace(tzinfo=UTC)) is None
        assert once.next_after(datetime.min.replace(tzinfo=UTC)) == NOON

    def test_json(self) -> None:
        for trigger in (
            cron("0 9 * * *") | every(hours=5),
            cron("0 9 * * *") & cron("* * * * MON"),
            (cron("0 9 * * *") - cron("0 9 * * MON")) | at(NOON),
        ):
            value = json.loads(json.dumps(trigger.to_json()))
            assert trigger_from_json(value) == trigger
            assert hash(trigger_from_json(value)) == hash(trigger)
        resolved = (cron("0 9 * * *") | every(hours=5)).resolved(NOON)
        assert trigger_from_json(resolved.to_json()) == resolved

    @pytest.mark.parametrize(
        "value",
        [
            {"type": "any", "members": []},
            {"type": "any", "members": 5},
            {"type": "any", "members": [5]},
            {"type": "all"},
            {"type": "except", "of": {"type": "at", "moments": []}, "without": {}},
            {"type": "except", "of": {}, "more": 1},
            {"type": "any", "members": [cron(f"{n} * * * *").to_json() for n in range(51)]},
        ],
    )
    def test_bad_json(self, value) -> None:
        with pytest.raises(ConfigurationError):
            trigger_from_json(value)

    @pytest.mark.parametrize("depth", [12, 5_000])
    def test_deep_json_is_refused(self, depth: int) -> None:
        value = cron("0 9 * * *").to_json()
        for number in range(depth):
            value = {"type": "except", "of": value, "without": cron(f"{number % 60} 3 * * *").to_json()}
        with pytest.raises(ConfigurationError, match="in one another"):
            trigger_from_json(value)

    def test_another_type_is_no_trigger(self) -> None:
        with pytest.raises(TypeError):
            cron("0 9 * * *") | "0 9 * * *"

    def test_one_that_this_host_does_not_know_makes_all_unknown(self) -> None:
        value = {"type": "any", "members": [cron("0 9 * * *").to_json(), {"type": "moon", "phase": "full"}]}
        kept = stored_trigger(value)
        assert isinstance(kept, Foreign)
        assert kept.to_json() == value


class TestRRule:
    def test_the_last_friday_keeps_its_time_of_day(self) -> None:
        last_friday = rrule("FREQ=MONTHLY;BYDAY=-1FR", start=FRIDAY)
        found = [fire.astimezone(ZURICH) for fire in islice(last_friday.after(NOON), 12)]
        assert [f"{fire:%a %H:%M}" for fire in found] == ["Fri 17:00"] * 12
        assert (found[0], found[-1].date().isoformat()) == (FRIDAY, "2027-10-29")
        assert last_friday.describe() == (
            "rrule FREQ=MONTHLY;BYDAY=-1FR in Europe/Zurich, from 2026-11-27 17:00:00"
        )

    def test_json(self) -> None:
        trigger = rrule("RRULE:freq=daily;count=3", start=FRIDAY, end=FRIDAY + timedelta(days=9))
        assert trigger.to_json() == {
            "type": "rrule",
            "rule": "FREQ=DAILY;COUNT=3",
            "first": "2026-11-27T17:00:00",
            "tz": "Europe/Zurich",
            "end": "2026-12-06T16:00:00.000000Z",
        }
        assert trigger_from_json(json.loads(json.dumps(trigger.to_json()))) == trigger
        assert fires(trigger, 9) == ["27 Nov 16:00", "28 Nov 16:00", "29 Nov 16:00"]

    def test_until_is_an_instant_or_a_local_time(self) -> None:
        for until in ("20261129T160000Z", "20261129T170000"):
            assert len(fires(rrule(f"FREQ=DAILY;UNTIL={until}", start=FRIDAY), 9)) == 3

    def test_clock_changes(self) -> None:
        """29 March 2026: 02:00 becomes 03:00 in Zurich. 25 October: 03:00 becomes 02:00."""
        start = datetime(2026, 3, 1, 2, 30, tzinfo=ZURICH)
        daily, hourly = rrule("FREQ=DAILY", start=start), rrule("FREQ=HOURLY", start=start)
        spring, autumn = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
        assert fires(daily, 2, spring) == ["29 Mar 01:00", "30 Mar 00:30"]
        assert fires(daily, 2, autumn) == ["25 Oct 00:30", "26 Oct 01:30"]
        spring, autumn = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)
        assert fires(hourly, 3, spring) == [
            "29 Mar 00:30",
            "29 Mar 01:30",
            "29 Mar 02:30",
        ]
        assert fires(hourly, 3, autumn) == [
            "25 Oct 00:30",
            "25 Oct 01:30",
            "25 Oct 02:30",
        ]

    @pytest.mark.parametrize(
        "freq", ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]
    )
    def test_random_rules_are_as_dateutil_counts_them(self, freq: str) -> None:
        """dateutil from the first occurrence on; ours entered at any of them."""
        chance = random.Random(freq)
        compared = 0
        while compared < 12:
            text, start = (
                draw_rule(chance, freq),
                datetime(2020, chance.randint(1, 12), 28, 5, 17, 3, tzinfo=UTC),
            )
            try:
                trigger = rrule(text, start=start)
            except ConfigurationError:
                continue
            expected = list(islice(rrulestr(text, dtstart=start), 40))
            assert list(islice(trigger.after(start - timedelta(days=1)), 40)) == expected, text
            place = chance.randrange(len(expected))
            later = list(islice(trigger.after(expected[place]), len(expected) - place - 1))
            assert later == expected[place + 1 :], text
            compared += 1

    def test_positions_count_in_the_whole_week(self) -> None:
        """The Saturday of the first week is the second day of its set, although the Monday is before the start."""
        mondays = rrule("FREQ=WEEKLY;BYDAY=MO,SA;BYSETPOS=1", start=FRIDAY)
        assert fires(mondays, 2) == fires(mondays, 2, FRIDAY) == ["30 Nov 16:00", "07 Dec 16:00"]
        assert fires(mondays, 1, FRIDAY + timedelta(days=8)) == ["07 Dec 16:00"]

    def test_where_it_counts_from(self) -> None:
        assert fires(rrule("FREQ=DAILY", start=FRIDAY, tz="Asia/Tokyo"), 1) == ["27 Nov 16:00"]
        in_the_gap = rrule("FREQ=DAILY", start=datetime(2026, 3, 29, 2, 30, tzinfo=ZURICH))
        assert fires(in_the_gap, 2, datetime(2026, 3, 1, tzinfo=UTC)) == ["29 Mar 01:00", "30 Mar 00:30"]
        with pytest.raises(ConfigurationError, match="names no zone; add tz="):
            rrule("FREQ=DAILY", start=FRIDAY.astimezone(timezone(timedelta(hours=1))))
        with pytest.raises(ConfigurationError, match="fraction of a second"):
            rrule("FREQ=DAILY", start=FRIDAY.replace(microsecond=1))

    def test_far_from_its_start_it_is_as_quick(self) -> None:
        minutely = rrule("FREQ=MINUTELY;INTERVAL=7", start=datetime(1971, 1, 1, tzinfo=UTC))
        begun = process_time()
        for _ in range(50):
            assert minutely.next_after(NOON) is not None
        assert process_time() - begun < 5  # from its start on it would be 4 million steps each

    @pytest.mark.parametrize(
        ("rule", "message"),
        [
            ("", "is not a recurrence rule"),
            ("x" * 501, "is not a recurrence rule"),
            ("DAILY", "'DAILY' in 'DAILY' is not known"),
            ("FREQ=SOMETIMES", "no FREQ that is known"),
            ("FREQ=DAILY;FREQ=DAILY", "is twice"),
            ("FREQ=DAILY;BYEASTER=0", "'BYEASTER=0' in .* is not known"),
            ("FREQ=DAILY;INTERVAL=0", "INTERVAL=0 does not fit; use 1 to 3653"),
            ("FREQ=YEARLY;INTERVAL=11", "use 1 to 10"),
            ("FREQ=DAILY;COUNT=10001", "use 1 to 10000"),
            ("FREQ=DAILY;COUNT=3;UNTIL=20300101T000000Z", "has COUNT and UNTIL"),
            ("FREQ=DAILY;UNTIL=20300101", "UNTIL=20300101 is not a time; write it like"),
            ("FREQ=DAILY;UNTIL=20301301T000000Z", "not a time that exists"),
            ("FREQ=DAILY;UNTIL=20200101T000000Z", "no occurrence"),
            ("FREQ=DAILY;BYHOUR=24", "use 0 to 23"),
            ("FREQ=DAILY;BYHOUR=a", "does not fit"),
            ("FREQ=MONTHLY;BYMONTHDAY=-32", "use ±1 to 31"),
            ("FREQ=MONTHLY;BYDAY=FRI", "BYDAY=FRI is not a day"),
            ("FREQ=WEEKLY;BYDAY=2FR", "FREQ=MONTHLY or YEARLY only"),
            ("FREQ=WEEKLY;WKST=X", "WKST=X is not a day"),
            ("FREQ=MONTHLY;BYWEEKNO=3", "BYWEEKNO goes with FREQ=YEARLY only"),
            ("FREQ=HOURLY;INTERVAL=2;BYHOUR=2", "no occurrence; correct"),
            ("FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30", "no occurrence; correct"),
            ("FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30", "no occurrence; correct"),
            ("FREQ=SECONDLY;INTERVAL=2;BYSECOND=1", "no occurrence; correct"),
            ("FREQ=DAILY;INTERVAL=7;BYDAY=MO", "no occurrence; correct"),
            ("FREQ=DAILY;BYHOUR=5;BYSETPOS=2", "no occurrence; correct"),
        ],
    )
    def test_bad_rules_are_refused_in_bounded_time(self, rule: str, message: str) -> None:
        begun = process_time()
        with pytest.raises(ConfigurationError, match=message):
            rrule(rule, start=FRIDAY)
        assert process_time() - begun < 5

    @pytest.mark.parametrize(
        "change", [{"first": "noon"}, {"first": 5}, {"tz": "Mars"}, {"rule": 5}, {"start": 1}]
    )
    def test_bad_json(self, change) -> None:
        with pytest.raises(ConfigurationError):
            trigger_from_json({**rrule("FREQ=DAILY", start=FRIDAY).to_json(), **change})

    def test_without_dateutil_the_extra_is_named_and_what_is_stored_is_of_another_host(
        self, monkeypatch
    ) -> None:
        value = rrule("FREQ=DAILY", start=FRIDAY - timedelta(days=1)).to_json()
        from fencepost.model.calendars import rules

        rules.parsed.cache_clear()
        for name in [name for name in sys.modules if name.split(".")[0] == "dateutil"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "dateutil", None)
        with pytest.raises(ConfigurationError, match=r"fencepost\[calendars\]"):
            trigger_from_json(value)
        kept = stored_trigger(value)
        assert isinstance(kept, Foreign)
        assert "fencepost[calendars]" in kept.foreign
