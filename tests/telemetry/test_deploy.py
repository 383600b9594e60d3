"""The alert rules and the dashboard: up to date, about metrics that exist, and read by Prometheus' own tool."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml
from deploy.alerts import ALERTS, Alert
from deploy.dashboard import dashboard, queries
from deploy.generate import HERE, files

from fencepost.insight.metrics.definitions import METRICS, Metric

ROOT = HERE.parent
RULES = HERE / "prometheus" / "fencepost-rules.yml"
SERIES: dict[str | None, Metric] = {name: metric for metric in METRICS for name in metric.series}
TARGET_LABELS = {"job", "instance", "le"}
"""What Prometheus adds by itself; and the bound of a bucket."""
UNPACKED = Path(sys.prefix) / "prometheus" / "usr" / "bin" / "promtool"
PROMTOOL = shutil.which("promtool") or (str(UNPACKED) if UNPACKED.exists() else None)
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="there is no promtool; `make promtool` fetches it"
)


def promtool(*words: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_are_those_that_would_be_made_now() -> None:
    for path, text in files().items():
        assert path.read_text() == text, f"{path.name} is out of date: run `make deploy`"


def test_the_files_say_what_they_were_made_of() -> None:
    rules = yaml.safe_load(RULES.read_text())
    assert yaml.safe_load((HERE / "prometheus" / "fencepost-prometheusrule.yml").read_text())["spec"] == rules
    [group] = rules["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [alert.name for alert in ALERTS]
    assert json.loads((HERE / "grafana" / "fencepost.json").read_text()) == dashboard()


@pytest.mark.parametrize("expr", [*(alert.expr for alert in ALERTS), *queries()])
def test_expressions_are_about_metrics_and_labels_that_exist(expr: str) -> None:
    selectors = list(_selectors(promql_parser.parse(expr)))
    assert selectors
    for selector in selectors:
        metric = SERIES[selector.name]
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= {*metric.labels, *TARGET_LABELS}, f"{selector.name} has no label {asked}"


def test_the_dashboard_shows_every_metric() -> None:
    shown = {each.name for expr in queries() for each in _selectors(promql_parser.parse(expr))}
    assert {SERIES[name].name for name in shown} == {metric.name for metric in METRICS}


@needs_promtool
def test_prometheus_reads_the_rules_and_the_queries(tmp_path: Path) -> None:
    promtool("check", "rules", str(RULES))
    recorded = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(queries())]
    panels = tmp_path / "panels.yml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    promtool("check", "rules", str(panels))


@needs_promtool
def test_each_rule_fires_when_it_should_and_only_then() -> None:
    tests = HERE / "prometheus" / "fencepost-rules-test.yml"
    promtool("test", "rules", str(tests))
    told = {
        each["alertname"]
        for test in yaml.safe_load(tests.read_text())["tests"]
        for each in test["alert_rule_test"]
        if each.get("exp_alerts")
    }
    assert told == {alert.name for alert in ALERTS}, "each is seen to fire"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_each_alert_has_a_runbook(alert: Alert) -> None:
    page = (ROOT / "docs" / "runbooks" / alert.page).read_text()
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert headings == [
        f"# {alert.name}",
        "## Symptom",
        "## What it means",
        "## What to type",
        "## How it ends",
    ]
    assert alert.page in (ROOT / "docs" / "runbooks" / "README.md").read_text()


def _selectors(expr: object) -> Iterator[promql_parser.VectorSelector]:
    if isinstance(expr, promql_parser.VectorSelector):
        yield expr
        return
    for part in ("lhs", "rhs", "expr", "args", "vector_selector", "selector"):
        found = getattr(expr, part, None)
        for each in found if isinstance(found, list) else [found]:
            if each is not None:
                yield from _selectors(each)
