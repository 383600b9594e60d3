"""What is right, doubtful and wrong with a set-up: the settings, the store, the clocks, the cluster, the jobs.

It only looks. Nothing is written to the store, nobody joins, and a store that is not there is not made.
"""

from fencepost.insight.doctor.diagnosis import Diagnosis, diagnose
from fencepost.insight.doctor.finding import Finding, Level

__all__ = ["Diagnosis", "Finding", "Level", "diagnose"]
