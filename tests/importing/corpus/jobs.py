"""Jobs of APScheduler of the kinds that projects hold."""

import os.path
from datetime import datetime, timedelta
from os import getpid as process_id

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

scheduler = BackgroundScheduler(timezone="Europe/Zurich")
NIGHT = 2


def work(n=0, *, region="ch"):
    return n, region


async def wait():
    pass


@scheduler.scheduled_job("cron", id="decorated", hour=NIGHT, minute=30)
def decorated():
    pass


@scheduler.scheduled_job(IntervalTrigger(minutes=7), id="decorated-interval")
async def decorated_interval():
    pass


scheduler.add_job(work, "cron", id="hourly", minute=0)
scheduler.add_job(work, "cron", id="every-second")
scheduler.add_job(work, "cron", id="monthly", month="*")
scheduler.add_job(work, "cron", id="quarter-hours", minute="*/15")
scheduler.add_job(work, "cron", id="fives-from-two", minute="2/5")
scheduler.add_job(work, "cron", id="office", day_of_week="mon-fri", hour="8-17", minute="0,30")
scheduler.add_job(work, "cron", id="sundays", day_of_week=6, hour=3)
scheduler.add_job(work, "cron", id="even-weekdays", day_of_week="*/2", hour=3)
scheduler.add_job(work, "cron", id="first", day=1, hour=4)
scheduler.add_job(work, "cron", id="odd-days", day="*/2", hour=4)
scheduler.add_job(work, "cron", id="last-day", day="last", hour=23, minute=50)
scheduler.add_job(work, "cron", id="second-friday", day="2nd fri", hour=9)
scheduler.add_job(work, "cron", id="last-sunday", day="last sun", hour=9)
scheduler.add_job(work, "cron", id="first-and-third-monday", day="1st mon,3rd mon", hour=9)
scheduler.add_job(work, "cron", id="first-mondays", day="1-7", day_of_week="mon", hour=9)
scheduler.add_job(work, "cron", id="summer", month="6-8", hour=12)
scheduler.add_job(work, "cron", id="months-by-name", month="jan,jul", day=15)
scheduler.add_job(work, "cron", id="seconds", second="*/20")
scheduler.add_job(work, "cron", id="at-ten-seconds", minute="*/30", second=10)
scheduler.add_job(work, "cron", id="in-2027", year=2027, month="*/4", day=1, hour=6)
scheduler.add_job(work, "cron", id="bounded", hour=6, start_date="2026-04-01", end_date="2026-04-20 07:00:00")
scheduler.add_job(work, CronTrigger(hour=5, timezone="America/New_York"), id="new-york")
scheduler.add_job(work, CronTrigger.from_crontab("0 9 * * 0", timezone="UTC"), id="crontab-monday-is-0")
scheduler.add_job(work, "interval", [3], {"region": "de"}, "positional", hours=2, max_instances=3)
scheduler.add_job(work, "interval", id="anchored", minutes=40, start_date="2026-03-01 00:00:00")
scheduler.add_job(work, IntervalTrigger(seconds=90), id="ninety", misfire_grace_time=600)
scheduler.add_job(work, "date", id="once", run_date=datetime(2026, 12, 24, 18, 0))
scheduler.add_job(work, DateTrigger("2026-12-31 23:59:00", timezone="UTC"), id="new-year")
scheduler.add_job(wait, "interval", id="coroutine", minutes=1)
scheduler.add_job("os:getcwd", "interval", id="by-text", minutes=1)
scheduler.add_job(process_id, "interval", id="imported", minutes=1)
scheduler.add_job(os.path.getmtime, "interval", ["/"], id="of-a-module", minutes=1)
scheduler.add_job(work, "cron", id="jittered", hour=1, jitter=120)
# What cannot be carried over.
scheduler.add_job(work, "cron", id="week-of-the-year", week="1-10", day_of_week="mon")
scheduler.add_job(work, "cron", id="friday-the-13th", day=13, day_of_week="fri")
scheduler.add_job(work, OrTrigger([CronTrigger(hour=2), CronTrigger(hour=3)]), id="either")
scheduler.add_job(work, "cron", id="not-plain", args=[timedelta(1)], hour=1)
