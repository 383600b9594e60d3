"""The OpenAPI document, made of the endpoints themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from fencepost import __version__
from fencepost.web.answers import ProblemShape
from fencepost.web.endpoint import Endpoint
from fencepost.web.gate import PROBES, QUIET
from fencepost.web.models import ID, KEY

REF = "#/components/schemas/{model}"
SUFFIX = "Model"
"""Of models that show a value: it keeps the names of classes apart, and is not part of the document."""
ALWAYS = (400, 401, 422, 431, 503)
"""What any route but a probe may answer: no HTTP, not known, does not fit, headers too long, no store."""
ON_WRITES = (403, 413, 415)

Document = dict[str, Any]


def document(endpoints: Sequence[Endpoint], root: str) -> Document:
    models: dict[str, type[BaseModel]] = {"ProblemShape": ProblemShape}
    for endpoint in endpoints:
        for model in (endpoint.gives, endpoint.body, endpoint.query):
            if model is not None:
                models[model.__name__] = model
    _, schemas = models_json_schema(
        [(model, "validation") for _, model in sorted(models.items())], ref_template=REF
    )
    paths: Document = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fencepost", "version": __version__},
        "servers": [{"url": root or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": _public(schemas["$defs"]),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint) -> Document:
    operation: Document = {
        "summary": endpoint.summary,
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").rstrip("_"),
        "parameters": [*_in_path(endpoint), *_in_query(endpoint), *_in_headers(endpoint)],
        "responses": _responses(endpoint),
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": _ref(endpoint.body)}}}
    if endpoint.path in PROBES:
        operation["security"] = []
    return operation


def _responses(endpoint: Endpoint) -> Document:
    good: Document = {"description": HTTPStatus(endpoint.status).phrase}
    if endpoint.media_type == "application/json":
        good["content"] = {endpoint.media_type: {"schema": _ref(endpoint.gives)}}
    else:
        good["content"] = {endpoint.media_type: {"schema": {"type": "string"}}}
    responses: Document = {str(endpoint.status): good}
    if endpoint.path in PROBES:
        responses["503"] = good if endpoint.path != "/livez" else _problem(503)
        responses["431"] = _problem(431)
        return responses
    if endpoint.path in QUIET:
        responses["204"] = {"description": "The caller is not known, and asked with `quiet`"}
    writes = ON_WRITES if endpoint.method != "GET" else ()
    for status in sorted({*ALWAYS, *writes, *endpoint.errors}):
        responses[str(status)] = {"description": "Unchanged"} if status == 304 else _problem(status)
    return responses


def _problem(status: int) -> Document:
    schema = {"application/problem+json": {"schema": _ref(ProblemShape)}}
    return {"description": HTTPStatus(status).phrase, "content": schema}


def _in_path(endpoint: Endpoint) -> list[Document]:
    patterns = {"id": ID, "key": KEY, "backfill": ID, "rule": ID}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": patterns[name]},
        }
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]


def _in_query(endpoint: Endpoint) -> list[Document]:
    if endpoint.query is None:
        return []
    schema = endpoint.query.model_json_schema(ref_template=REF)
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(each)}
        for name, each in schema["properties"].items()
    ]


def _in_headers(endpoint: Endpoint) -> list[Document]:
    return [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string", "pattern": pattern}}
        for name, pattern in endpoint.headers.items()
    ]


def _without_null(schema: Document) -> Document:
    """A parameter is there or not; it is never null."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default", "title")}
    return {**rest, **kinds[0]} if len(kinds) == 1 else rest


def _ref(model: type[BaseModel]) -> Document:
    return {"$ref": REF.format(model=model.__name__.removesuffix(SUFFIX))}


def _public(schema: Any) -> Any:
    """Under the names that clients know."""
    if isinstance(schema, list):
        return [_public(each) for each in schema]
    if isinstance(schema, str):
        return schema.removesuffix(SUFFIX)
    if isinstance(schema, dict):
        return {name.removesuffix(SUFFIX): _public(each) for name, each in schema.items()}
    return schema
