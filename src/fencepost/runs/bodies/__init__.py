"""Bodies that run in a process of their own, so that they can be ended: functions and commands."""
