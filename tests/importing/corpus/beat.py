"""A beat schedule of the kinds that projects hold."""

from datetime import timedelta

from celery import Celery
from celery.schedules import crontab, schedule

app = Celery("beat", broker="memory://")
HOUR = 60 * 60
MONDAY = (30, 7, "mon")

app.conf.timezone = "Europe/Zurich"
app.conf.beat_schedule = {
    # Intervals.
    "every-10-seconds": {"task": "shop.tasks.poll", "schedule": 10.0},
    "every-half-minute": {"task": "shop.tasks.poll", "schedule": 30},
    "every-hour": {"task": "shop.tasks.poll", "schedule": HOUR},
    "timedelta": {"task": "shop.tasks.poll", "schedule": timedelta(minutes=5)},
    "timedelta-mixed": {"task": "shop.tasks.poll", "schedule": timedelta(days=1, hours=2)},
    "schedule": {"task": "shop.tasks.poll", "schedule": schedule(run_every=timedelta(seconds=90))},
    "schedule-seconds": {"task": "shop.tasks.poll", "schedule": schedule(45)},
    "relative": {"task": "shop.tasks.poll", "schedule": timedelta(minutes=15), "relative": True},
    # Minutes and hours.
    "every-minute": {"task": "shop.tasks.poll", "schedule": crontab()},
    "quarters": {"task": "shop.tasks.poll", "schedule": crontab(minute="*/15")},
    "sevens": {"task": "shop.tasks.poll", "schedule": crontab(minute="*/7")},
    "minute-list": {"task": "shop.tasks.poll", "schedule": crontab(minute="1,13,30-45,50-59/2")},
    "minute-numbers": {"task": "shop.tasks.poll", "schedule": crontab(minute=[0, 20, 40])},
    "hourly": {"task": "shop.tasks.poll", "schedule": crontab(minute=0)},
    "two-hourly": {"task": "shop.tasks.poll", "schedule": crontab(minute=0, hour="*/2")},
    "three-hourly": {"task": "shop.tasks.poll", "schedule": crontab(minute=0, hour="*/3")},
    "office": {"task": "shop.tasks.poll", "schedule": crontab(minute="*/10", hour="8-17")},
    "over-midnight": {"task": "shop.tasks.poll", "schedule": crontab(minute=0, hour="22-3")},
    "evenings": {"task": "shop.tasks.poll", "schedule": crontab(minute=30, hour="17-23/2")},
    # Days, with the hours that the clock skips and repeats.
    "nightly": {"task": "shop.tasks.report", "schedule": crontab(minute=30, hour=2)},
    "nightly-twice": {"task": "shop.tasks.report", "schedule": crontab(minute="15,45", hour=2)},
    "three-oclock": {"task": "shop.tasks.report", "schedule": crontab(minute=0, hour=3)},
    "daily": {"task": "shop.tasks.report", "schedule": crontab(0, 0)},
    "morning": {"task": "shop.tasks.report", "schedule": crontab(minute=30, hour=7)},
    "text": {"task": "shop.tasks.report", "schedule": crontab.from_string("15 6 * * 1-5")},
    # Weeks, months.
    "mondays": {"task": "shop.tasks.report", "schedule": crontab(hour=7, minute=30, day_of_week=1)},
    "mondays-by-name": {
        "task": "shop.tasks.report",
        "schedule": crontab(*MONDAY),
    },
    "weekdays": {"task": "shop.tasks.report", "schedule": crontab(hour=7, minute=0, day_of_week="mon-fri")},
    "weekend": {"task": "shop.tasks.report", "schedule": crontab(hour=7, minute=0, day_of_week="sat,sun")},
    "even-weekdays": {"task": "shop.tasks.report", "schedule": crontab(hour=7, minute=0, day_of_week="*/2")},
    "first": {"task": "shop.tasks.report", "schedule": crontab(0, 0, day_of_month="1")},
    "even-days": {"task": "shop.tasks.report", "schedule": crontab(0, 0, day_of_month="2-30/2")},
    "thirty-first": {"task": "shop.tasks.report", "schedule": crontab(0, 0, day_of_month=31)},
    "quarterly": {
        "task": "shop.tasks.report",
        "schedule": crontab(0, 0, day_of_month=1, month_of_year="*/3"),
    },
    "eleventh-of-may": {
        "task": "shop.tasks.report",
        "schedule": crontab(0, 0, day_of_month="11", month_of_year="5"),
    },
    "leap-day": {"task": "shop.tasks.report", "schedule": crontab(0, 0, day_of_month=29, month_of_year=2)},
    "first-mondays": {
        "task": "shop.tasks.report",
        "schedule": crontab(0, 9, day_of_week="mon", day_of_month="1-7"),
    },
    "third-weeks": {
        "task": "shop.tasks.report",
        "schedule": crontab(0, 9, day_of_week="1,3", day_of_month="15-21"),
    },
    "first-if-monday": {
        "task": "shop.tasks.report",
        "schedule": crontab(0, 9, day_of_week=1, day_of_month=1),
    },
    "sundays-the-13th": {
        "task": "shop.tasks.report",
        "schedule": crontab(0, 9, day_of_week=0, day_of_month=13),
    },
    "summer": {"task": "shop.tasks.report", "schedule": crontab(0, 12, month_of_year="6-8")},
    # What is sent.
    "everything": {
        "task": "shop.tasks.send",
        "schedule": crontab(minute=5, hour=4),
        "args": (16, "it's", ["a", None, True]),
        "kwargs": {"region": "ch", "deep": {"n": 1.5}},
        "options": {"queue": "slow", "priority": 5, "expires": timedelta(minutes=10)},
    },
    # What cannot be carried over.
    "friday-the-13th": {
        "task": "shop.tasks.report",
        "schedule": crontab(0, 9, day_of_week=5, day_of_month=13),
    },
    "no-task": {"schedule": crontab()},
}
