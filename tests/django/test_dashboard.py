"""The service mounted in the site: Django's users and permissions decide, under WSGI and ASGI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.django.site import Site

pytestmark = pytest.mark.cluster

CODE = """
import asyncio, re
from django.contrib.auth.models import Permission, User
from django.test import AsyncClient, Client
from fencepost.django import scheduler

users = {name: User.objects.create_user(name) for name in ("nobody", "viewer", "operator")}
for name, permission in (("viewer", "view"), ("operator", "operate")):
    users[name].user_permissions.add(
        Permission.objects.get(codename=permission, content_type__app_label="fencepost")
    )
users["root"] = User.objects.create_superuser("root")

def signed_in(kind, name):
    client = kind()
    if name:
        client.force_login(users[name])
    return client

def look(name):
    return signed_in(Client, name).get("/fencepost/api/v1/jobs").status_code

def pause(name):
    url = "/fencepost/api/v1/jobs/tick/pause"
    return signed_in(Client, name).post(url, "{}", content_type="application/json").status_code

with scheduler.background():
    pass  # the jobs are stored: from now on this process only looks
answer["look"] = [look(name) for name in (None, "nobody", "viewer", "operator", "root")]
answer["pause"] = [pause(name) for name in (None, "nobody", "viewer", "operator", "root")]
page = Client().get("/fencepost/api/v1/jobs", headers={"accept": "text/html"})
answer["page"] = [page.status_code, page["Location"]]
browser = {"accept": "text/html", "sec-fetch-site": "same-origin"}
overview = signed_in(Client, "viewer").get("/fencepost/", headers=browser)
answer["overview"] = [overview.status_code, overview["content-type"], "/fencepost/jobs" in overview.content.decode()]
style = re.search(r'href="(/fencepost/[^"]+[.]css)"', overview.content.decode())[1]
answer["style"] = Client().get(style).status_code
operator = signed_in(Client, "operator")
theme = operator.post("/fencepost/preferences", "theme=dark", headers=browser,
    content_type="application/x-www-form-urlencoded")
answer["theme"] = [theme.status_code, [cookie["path"] for cookie in theme.cookies.values()]]
answer["probe"] = Client().get("/fencepost/livez").status_code
events = signed_in(Client, "viewer").get("/fencepost/api/v1/events")
answer["polled"] = [events.status_code, events["content-type"], events.content.decode().startswith("retry:")]

viewer = signed_in(AsyncClient, "viewer")

async def stream(client=viewer):
    response = await client.get("/fencepost/api/v1/events")
    async for part in response.streaming_content:
        if b"event: hello" in part:
            return [response.status_code, response.streaming]

async def asks(client=viewer):
    return (await client.get("/fencepost/api/v1/jobs")).status_code

answer["asgi"] = asyncio.run(asks())
answer["streamed"] = asyncio.run(stream())
"""


def test_permissions_decide(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.manage("migrate", "-v0")
    found = site.shell(CODE)
    assert found["look"] == [401, 403, 200, 200, 200]
    assert found["pause"] == [401, 403, 403, 200, 200]
    assert found["page"] == [302, "/admin/login/?next=/fencepost/api/v1/jobs"]
    assert found["overview"] == [200, "text/html; charset=utf-8", True]
    assert found["style"] == 200
    assert found["theme"] == [303, ["/fencepost"]]
    assert found["probe"] == 200
    assert found["polled"] == [200, "text/event-stream; charset=utf-8", True]
    assert found["asgi"] == 200
    assert found["streamed"] == [200, True]
