"""The OpenAPI document is true: schemathesis makes requests of it and checks every answer against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from schemathesis import GenerationMode, checks

from fencepost.web.api import ENDPOINTS
from fencepost.web.gate import PROBES
from fencepost.web.openapi import document
from tests.web.sample import ended, sample, triggered
from tests.web.serving import service

TOKEN = "a token of sufficient length"
SIGNED = {"Authorization": f"Bearer {TOKEN}"}
STREAM = "/api/v1/events"
"""Has no end; its own tests are in test_events.py."""

SCHEMA = schemathesis.openapi.from_dict(document(ENDPOINTS, ""))
OPERATIONS: list[Any] = [
    operation
    for found in SCHEMA.get_all_operations()
    if (operation := found.ok()).path != STREAM  # type: ignore[union-attr]
]
TAKING = [operation for operation in OPERATIONS if operation.path not in PROBES]
KNOWN = {"id": "report", "key": "report!a", "backfill": "none", "rule": "none"}
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
    checks.ignored_auth,
]
FRAMING = {"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}
"""Headers that the server itself reads: with nonsense in them a request never reaches the application."""
BOUNDED = settings(
    max_examples=20, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with service(sample(auth_token=TOKEN)) as client:
        client.headers.update(SIGNED)
        ended(client, triggered(client, "report", idempotency_key="a"))
        ended(client, triggered(client, "nasty", idempotency_key="b"))
        yield str(client.base_url)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_answer_is_as_documented(operation: Any, url: str) -> None:
    """Of what is there, too: few invented ids would be."""

    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE), known=booleans())
    @BOUNDED
    def ask(case: schemathesis.Case, known: bool) -> None:
        if known:
            case.path_parameters.update({name: KNOWN[name] for name in case.path_parameters})
        case.call_and_validate(base_url=url, headers=SIGNED, checks=CHECKS)

    ask()


@pytest.mark.parametrize("operation", TAKING, ids=lambda operation: operation.label)
def test_what_does_not_fit_is_refused_as_documented(operation: Any, url: str) -> None:
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    @BOUNDED
    def ask(case: schemathesis.Case) -> None:
        query = case.query or {}
        if not FRAMING.isdisjoint(name.lower() for name in case.headers or {}):
            return
        if "" in query or query.get("quiet") == "1" or not isinstance(query.get("tag", []), list):
            # A parameter without a name is never sent; `quiet` asks for 204 in place of 401; and whatever stands for a
            # tag is sent as a text, which may well be one.
            return
        case.call_and_validate(base_url=url, headers=SIGNED, checks=CHECKS)

    ask()
