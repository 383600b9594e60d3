"""A diagnosis as JSON, and its verdict in a sentence."""

from __future__ import annotations

from fencepost.insight.doctor.diagnosis import Diagnosis
from fencepost.insight.views.shapes import Shape


def diagnosis_shape(found: Diagnosis) -> Shape:
    return {
        "ok": not found.problems,
        "store": found.store,
        "findings": [
            {"section": section, "level": finding.level, "what": finding.what, "remedy": finding.remedy}
            for section, findings in found.sections.items()
            for finding in findings
        ],
    }


def verdict(found: Diagnosis) -> str:
    problems, warnings = found.problems, found.warnings
    doubtful = f"{warnings} thing{' is' if warnings == 1 else 's are'} doubtful"
    if problems:
        wrong = f"{problems} thing{' is' if problems == 1 else 's are'} wrong"
        return f"{wrong}, {doubtful}." if warnings else f"{wrong}."
    return f"Nothing is wrong, {doubtful}." if warnings else "Nothing is wrong."
