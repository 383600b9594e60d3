"""Checks that every fire that was due is accounted for exactly once, from the recorded history.

    report = await audit(store, since=monday)
    assert report.clean, report.findings

The calendars are expanded again from the definitions as they were recorded, and laid beside the ledger, job by
job, in the order of time. Neither is held as a whole: the ledger is read in pages, a calendar is a stream.
"""

from fencepost import moved_names
from fencepost.insight.audit.report import AuditFinding, AuditResult, Kind
from fencepost.insight.audit.walk import audit

__all__ = ["AuditFinding", "AuditResult", "Kind", "audit"]

__getattr__ = moved_names("fencepost.insight.audit.report", Finding="AuditFinding", Report="AuditResult")
