"""The OpenAPI document: what FastAPI makes of the routes, and what the whole server may refuse.

Authentication, rate limits, size limits and foreign pages are dealt with around the routes, so that
no route tells of them by itself. Errors are problem documents, which FastAPI does not know of.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from avatar_server.gateway.access import NEEDS, Need
from avatar_server.gateway.problems import PROBLEM_TYPE

REFUSALS = {
    "400": "The request cannot be read.",
    "401": "No credential, or one that is not valid (any more).",
    "403": "The credential is good for something else, or a page of another site asks.",
    "413": "The body has more than 64 KiB.",
    "422": "The request cannot be used; `errors` says what is wrong.",
    "429": "Too many requests from this address; Retry-After says when.",
    "503": "The server cannot read its keys.",
}
"""What any route may answer for reasons that are not its own."""

PROBLEM = {
    "type": "object",
    "title": "Problem",
    "description": "A problem document (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "urn:avatar-server:<a stable word>"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string", "description": "A sentence that says what to do."},
        "retry_after_s": {"type": "integer", "minimum": 0, "description": "As Retry-After."},
        "errors": {"type": "array", "items": {"type": "string"}},
    },
}
BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key of an operator, or the token of a join link.",
}
_REFERENCE = {"$ref": "#/components/schemas/Problem"}
_CHANGING = ("post", "put", "patch", "delete")


def install_openapi(app: FastAPI) -> None:
    """Give `app` this document, made when it is first asked for."""

    def document() -> dict[str, Any]:
        if not app.openapi_schema:
            app.openapi_schema = complete(
                get_openapi(title=app.title, version=app.version, routes=app.routes)
            )
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """The same document with what holds for all routes."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = PROBLEM
    # FastAPI's own error bodies: nothing of ours looks like that.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = {"bearer": BEARER}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(method, path, operation)
    return document


def _complete(method: str, path: str, operation: dict[str, Any]) -> None:
    need = NEEDS.get((method.upper(), path), Need.OPERATE)
    responses = operation["responses"]
    if "application/json" in responses.get("422", {}).get("content", {}):
        del responses["422"]  # FastAPI's
    statuses = {"429"}
    if need is not Need.NOTHING:
        operation["security"] = [{"bearer": []}]
        if need is Need.START:
            # Where the operator lets anybody start a session.
            operation["security"].append({})
        statuses |= {"401", "403", "503"}
    if method in _CHANGING:
        statuses.add("403")
    if operation.get("parameters"):
        statuses.add("422")
    if "requestBody" in operation:
        statuses |= {"400", "413", "422"}
    for status in statuses:
        responses.setdefault(status, {"description": REFUSALS[status]})
    for status, response in responses.items():
        content = response.get("content", {})
        if status[0] in "45" and (not content or PROBLEM_TYPE in content):
            response["content"] = {**content, PROBLEM_TYPE: {"schema": _REFERENCE}}
    operation["responses"] = dict(sorted(responses.items()))
