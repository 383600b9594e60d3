"""Schedules of other systems as Fencepost's jobs: crontab, systemd timers, APScheduler, Celery beat, Kubernetes.

Each reader (`crontab.py`, `systemd.py`, …) makes `Carried` and `LeftOut` entries of a file. An entry holds the old
calendar, read by the rules of the old system (`walk.py`), and the new trigger; `compare.py` compares their fires, and
`write.py` writes the jobs as Python or TOML. Nothing here prints, reads a clock or opens a store.
"""
