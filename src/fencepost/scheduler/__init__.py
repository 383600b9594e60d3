"""The public face: declare, start, stop, act.

declare → scheduler → handle, manual (act) → single_instance, signals, shutdown (stop) · jobfile: jobs without code
"""

from fencepost import moved_names

__getattr__ = moved_names("fencepost.scheduler.scheduler", "Scheduler")
