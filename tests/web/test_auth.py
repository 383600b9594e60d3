"""Who is let in, and what another site can make a browser do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from fencepost import ConfigurationError, Settings
from fencepost.runs.masking import mask_for
from fencepost.web.api import ENDPOINTS
from fencepost.web.auth import Caller, check_address
from fencepost.web.gate import PROBES
from fencepost.web.peer import Proxies, is_loopback
from tests.web.sample import ended, sample, triggered
from tests.web.serving import service

OPERATE, READ = "the token of an operator", "the token of a reader"


@pytest.fixture(scope="module")
def guarded() -> Iterator[httpx2.Client]:
    with service(sample(auth_token=OPERATE, read_token=READ)) as client:
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with service(sample()) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def filled(path: str) -> str:
    return path.replace("{id}", "report").replace("{key}", "report!none")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *((each.method, each.path) for each in ENDPOINTS if each.path not in PROBES),
        ("GET", "/api/v1/openapi.json"),
        ("GET", "/"),
        ("GET", "/nothing"),
        ("PUT", "/api/v1/status"),
    ],
)
def test_nothing_but_the_probes_is_open(guarded: httpx2.Client, method: str, path: str) -> None:
    for headers in (
        {},
        bearer("wrong"),
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {OPERATE}"},
        bearer(OPERATE[:-1]),
    ):
        answer = guarded.request(method, filled(path), headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="fencepost"'
        assert answer.headers["content-type"] == "application/problem+json"


def test_the_widgets_script_needs_no_token(guarded: httpx2.Client) -> None:
    assert guarded.get("/widget.js").status_code == 200


def test_a_refusal_can_be_quiet_where_the_widget_asks(guarded: httpx2.Client) -> None:
    for path in ("/api/system/pipeline_status", "/api/v1/events"):
        answer = guarded.get(path, params={"quiet": "1"})
        assert (answer.status_code, answer.content) == (204, b"")
        assert guarded.get(path, params={"quiet": "yes"}).status_code == 401
    assert guarded.get("/api/v1/fires", params={"quiet": "1"}).status_code == 401
    assert guarded.post("/api/v1/jobs/report/trigger?quiet=1", json={}).status_code == 401


@pytest.mark.parametrize("path", PROBES)
def test_probes_need_no_token_and_tell_nothing(guarded: httpx2.Client, path: str) -> None:
    answer = guarded.get(path)
    assert answer.status_code == 200
    assert answer.json() in ({"alive": True}, {"ready": True})


def test_a_reader_looks_and_an_operator_acts(guarded: httpx2.Client) -> None:
    assert guarded.get("/api/v1/status", headers=bearer(READ)).status_code == 200
    assert guarded.get("/metrics", headers=bearer(READ)).status_code == 200
    refused = guarded.post("/api/v1/jobs/report/trigger", headers=bearer(READ))
    assert refused.status_code == 403
    assert "takes the role operate" in refused.json()["detail"]
    assert guarded.post("/api/v1/jobs/report/trigger", headers=bearer(OPERATE)).status_code == 202


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Sec-Fetch-Site": "same-origin", "Content-Type": "application/json; charset=utf-8"}, 202),
        ({"Sec-Fetch-Site": "none"}, 202),
        ({}, 202),
    ],
)
def test_what_another_site_made_a_browser_send_is_refused(
    client: httpx2.Client, headers: dict[str, str], status: int
) -> None:
    assert client.post("/api/v1/jobs/report/trigger", headers=headers).status_code == status
    own = {"Origin": str(client.base_url).rstrip("/")}
    assert client.post("/api/v1/jobs/report/trigger", headers=own).status_code == 202


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example"},
        {"Host": "rebound.example:8787"},
        {"Host": "127.0.0.1.rebound.example"},
        {"Host": "["},
        {"X-Forwarded-For": "203.0.113.9"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"X-Forwarded-Proto": "https"},
        {"X-Forwarded-Anything": "x"},
        {"Forwarded": "for=203.0.113.9"},
        {"CF-Connecting-IP": "203.0.113.9"},
        {"True-Client-IP": "203.0.113.9"},
        {"X-Client-IP": "203.0.113.9"},
        {"X-Real-IP": "203.0.113.9"},
        {"Via": "1.1 proxy"},
    ],
)
def test_without_a_token_only_this_machine_is_let_in(client: httpx2.Client, headers: dict[str, str]) -> None:
    assert client.get("/api/v1/status").status_code == 200
    answer = client.get("/api/v1/status", headers=headers)
    assert answer.status_code == 401
    assert "FENCEPOST_AUTH_TOKEN" in answer.json()["detail"]


def test_logs_that_hide_tokens_do_not_hide_what_to_do(guarded: httpx2.Client, client: httpx2.Client) -> None:
    for answer in (
        guarded.get("/api/v1/status"),
        client.get("/api/v1/status", headers={"Via": "1.1 proxy"}),
    ):
        remedy = answer.json()["detail"]
        assert "`Authorization`" in remedy
        assert mask_for({})(remedy) == remedy


def test_the_hosts_own_sign_in_decides() -> None:
    async def authorize(request: Request) -> Caller | None:
        user = request.headers.get("X-User")
        return Caller("operate" if user == "ada" else "read", user) if user else None

    with service(sample(auth_token=OPERATE), authorize=authorize) as client:
        assert client.get("/api/v1/status", headers=bearer(OPERATE)).status_code == 401
        assert client.post("/api/v1/jobs/report/trigger", headers={"X-User": "bob"}).status_code == 403
        client.headers["X-User"] = "ada"
        assert ended(client, triggered(client, "report"))["by"] == "ada"


NO_ROLES: tuple[Any, ...] = (False, True, 0, 1, "", "root", "READ", object(), {"role": "read"}, ["read"])


def test_an_answer_of_the_hosts_that_is_no_role_lets_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    said: list[Any] = [None]

    async def later(known: Any) -> Any:
        return known

    with service(sample(), authorize=lambda _: said[0]) as client:
        for known in NO_ROLES:
            answers: list[Any] = [
                *(lambda said: said, later, Caller, lambda jobs: Caller("read", "ada", jobs)),
                lambda name: Caller("read", name),
            ]
            for answer in answers[:4] if isinstance(known, str) else answers:
                for request in (("GET", "/api/v1/fires"), ("POST", "/api/v1/jobs/report/trigger")):
                    said[0] = answer(known)
                    assert client.request(*request).status_code == 401, (known, request)
    assert "authorize returned bool; return a Caller, one of" in caplog.text


def asked(peer: str, **headers: str) -> Request:
    raw = {"host": "127.0.0.1:8787", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Request(
        {
            "type": "http",
            "client": (peer, 5000),
            "server": ("127.0.0.1", 8787),
            "headers": [(name.encode(), value.encode()) for name, value in raw.items()],
        }
    )


@pytest.mark.parametrize(
    ("peer", "headers", "client", "local"),
    [
        ("127.0.0.1", {}, "127.0.0.1", True),
        ("127.0.0.1", {"x_forwarded_for": "127.0.0.1"}, "127.0.0.1", True),
        ("127.0.0.1", {"x_forwarded_for": "127.0.0.1", "x_forwarded_proto": "https"}, "127.0.0.1", True),
        ("127.0.0.1", {"x_forwarded_for": "203.0.113.9"}, "203.0.113.9", False),
        ("127.0.0.1", {"x_forwarded_for": "127.0.0.1, 203.0.113.9"}, "203.0.113.9", False),
        ("127.0.0.1", {"x_forwarded_for": "203.0.113.9, 10.1.2.3"}, "203.0.113.9", False),
        ("127.0.0.1", {"forwarded": 'for="[2001:db8::1]:80";proto=https'}, "2001:db8::1", False),
        ("127.0.0.1", {"x_forwarded_for": "127.0.0.1", "forwarded": "for=203.0.113.9"}, "127.0.0.1", False),
        ("127.0.0.1", {"x_forwarded_for": "127.0.0.1", "true_client_ip": "127.0.0.1"}, "127.0.0.1", False),
        ("127.0.0.1", {"x_forwarded_for": "nonsense"}, "127.0.0.1", False),
        ("127.0.0.1", {"x_forwarded_proto": "https"}, "127.0.0.1", False),
        (
            "127.0.0.1",
            {"x_forwarded_for": "127.0.0.1", "x_forwarded_host": "app.example"},
            "127.0.0.1",
            False,
        ),
        ("10.1.2.3", {"x_forwarded_for": "127.0.0.1"}, "127.0.0.1", False),
        ("203.0.113.9", {"x_forwarded_for": "127.0.0.1"}, "203.0.113.9", False),
    ],
)
def test_only_a_trusted_proxy_may_speak_for_others(
    peer: str, headers: dict[str, str], client: str, local: bool
) -> None:
    proxies = Proxies(["127.0.0.1", "10.0.0.0/8"])
    request = asked(peer, **headers)
    assert (proxies.client(request), proxies.is_local(request)) == (client, local)
    assert Proxies().is_local(request) is (peer == "127.0.0.1" and not headers)


def test_the_setting_names_the_trusted_proxies() -> None:
    assert Settings.load(env={"FENCEPOST_TRUSTED_PROXIES": "10.0.0.0/8, ::1"}).trusted_proxies == (
        "10.0.0.0/8",
        "::1",
    )
    with pytest.raises(ConfigurationError, match="neither an address nor a network"):
        Settings.load(env={"FENCEPOST_TRUSTED_PROXIES": "proxy.example"})
    with service(sample(trusted_proxies="127.0.0.1")) as client:
        for address, status in (("127.0.0.1", 200), ("203.0.113.9", 401)):
            answer = client.get("/api/v1/status", headers={"X-Forwarded-For": address})
            assert answer.status_code == status


def test_behind_a_trusted_proxy_the_origin_is_compared_with_the_host_it_was_asked_for() -> None:
    headers = {"X-Forwarded-Host": "app.example", "Origin": "https://app.example", **bearer(OPERATE)}
    for trusted, status in (((), 403), (("127.0.0.1",), 202)):
        with service(sample(auth_token=OPERATE, trusted_proxies=trusted)) as client:
            assert client.post("/api/v1/jobs/report/trigger", headers=headers).status_code == status


def test_an_address_that_others_reach_demands_a_token() -> None:
    with pytest.raises(ConfigurationError, match="FENCEPOST_AUTH_TOKEN"):
        check_address(Settings.load(env={}, host="0.0.0.0"))
    check_address(Settings.load(env={}, host="0.0.0.0", auth_token=OPERATE))
    with pytest.raises(ConfigurationError, match="fewer than 16 characters"):
        check_address(Settings.load(env={}, host="0.0.0.0", auth_token=OPERATE, read_token="fifteen letters"))
    check_address(Settings.load(env={}, host="127.0.0.1", auth_token="short"))
    check_address(Settings.load(env={}, host="::1"))
    assert not is_loopback("")
    assert not is_loopback("10.0.0.1")


def test_a_short_token_counts_on_this_machine_only() -> None:
    with service(sample(auth_token="short")) as client:
        assert client.get("/api/v1/status", headers=bearer("short")).status_code == 200
        for elsewhere in ({"X-Forwarded-For": "203.0.113.9"}, {"Host": "app.example"}):
            refused = client.get("/api/v1/status", headers={**bearer("short"), **elsewhere})
            assert (refused.status_code, "this machine only" in refused.json()["detail"]) == (401, True)


def test_a_short_token_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        sample(auth_token="abc").asgi()
    assert "can be guessed" in caplog.text
    assert "abc" not in caplog.text
