"""Write the alert rules and the dashboard: `make deploy`. A test fails while they are out of date.

python -m deploy.generate [--runbooks URL] [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import yaml
from deploy.alerts import ALERTS, Alert
from deploy.dashboard import dashboard

HERE = Path(__file__).parent
RUNBOOKS = "docs/runbooks/"
"""Where alerts point to: a path in this project, unless `--runbooks` names an address."""
NOTE = "# Made by `make deploy` from src/fencepost/insight/metrics/definitions.py and deploy/alerts.py: change those.\n"


def groups(runbooks: str) -> dict[str, object]:
    return {"groups": [{"name": "fencepost", "rules": [_rule(alert, runbooks) for alert in ALERTS]}]}


def operator_rules(runbooks: str) -> dict[str, object]:
    """The same for the Prometheus operator of Kubernetes."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "fencepost"},
        "spec": groups(runbooks),
    }


def _yaml(content: object) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False, width=10_000)
    return NOTE + text


def _rule(alert: Alert, runbooks: str) -> dict[str, object]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.wait,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{runbooks.rstrip('/')}/{alert.page}",
        },
    }


def files(runbooks: str = RUNBOOKS) -> dict[Path, str]:
    rules = _yaml(groups(runbooks))
    return {
        HERE / "prometheus" / "fencepost-rules.yml": rules,
        HERE
        / "helm"
        / "fencepost"
        / "rules"
        / "fencepost-rules.yml": rules,  # a chart reads its own files only
        HERE / "prometheus" / "fencepost-prometheusrule.yml": _yaml(operator_rules(runbooks)),
        HERE / "grafana" / "fencepost.json": json.dumps(dashboard(), indent=2) + "\n",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runbooks", default=RUNBOOKS, help="where the runbooks are published")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    asked = parser.parse_args()
    stale = [
        path for path, text in files(asked.runbooks).items() if not path.exists() or path.read_text() != text
    ]
    for path in stale:
        sys.stderr.write(f"{path.relative_to(HERE.parent)} is out of date\n")
        if not asked.check:
            path.write_text(files(asked.runbooks)[path])
    return 1 if asked.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
