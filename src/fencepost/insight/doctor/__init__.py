"""What is right, doubtful and wrong with a set-up: the settings, the store, the clocks, the cluster, the jobs.

The doctor only reads: it writes nothing to the store, does not join the cluster, and does not create a missing store.
"""

from fencepost.insight.doctor.diagnosis import Diagnosis, diagnose
from fencepost.insight.doctor.finding import Finding, Level

__all__ = ["Diagnosis", "Finding", "Level", "diagnose"]
