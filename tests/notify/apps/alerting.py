"""Ten jobs that fail when they are triggered, and the channels that the test chose."""

from __future__ import annotations

import json
import os
import time
from functools import partial

from fencepost import Scheduler, cron
from fencepost.notify import email, failed, healthchecks, lost, missed, sentry, webhook

given = json.loads(os.environ["CHANNELS"])
scheduler = Scheduler(leader_ttl="3s", heartbeat="500ms", run_ttl="3s")


def fail(seconds: float) -> None:
    time.sleep(seconds)
    raise RuntimeError("on purpose")


for number in range(10):
    scheduler.job(cron("0 4 1 1 *"), id=f"job-{number}")(partial(fail, 0.4 * number))

if "webhook" in given:
    scheduler.notify(webhook(given["webhook"], secret="s" * 32), on=failed | missed | lost)
if "smtp" in given:
    mail = email(
        "ops@example.com", sender="f@example.com", host="127.0.0.1", port=given["smtp"], security="none"
    )
    scheduler.notify(mail, on=failed | missed | lost)
if "sentry" in given:
    scheduler.notify(sentry(given["sentry"]))
if "healthchecks" in given:
    scheduler.notify(healthchecks(given["healthchecks"], create=True))
