"""Errors as RFC 9457 problem documents, each with a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

PROBLEM_TYPE = "application/problem+json"
MOST_ERRORS = 10
"""Of one request that are told: a body of nonsense must not be answered by a longer one."""
MOST_PLACE_CHARS = 100


class ProblemError(HTTPException):
    """Raised anywhere below a route; becomes a problem document.

    `code` is a stable word for programs (the document's `type` is `urn:avatar-server:<code>`),
    `detail` a sentence for people. `retry_after_s` becomes the `Retry-After` header. `more` are
    further members of the document.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        title: str | None = None,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.code = code
        self.more = dict(more or {})
        self.title = title or HTTPStatus(status).phrase
        self.retry_after_s = retry_after_s
        all_headers = dict(headers or {})
        if retry_after_s is not None:
            all_headers["Retry-After"] = str(retry_after_s)
        super().__init__(status, detail, all_headers)


class ProblemResponse(JSONResponse):
    """A problem document."""

    media_type = PROBLEM_TYPE


def problem_body(status: int, code: str, title: str, detail: str, **more: Any) -> dict[str, Any]:
    """The members of a problem document."""
    kind = f"urn:avatar-server:{code}" if code else "about:blank"
    return {"type": kind, "title": title, "status": status, "detail": detail, **more}


def problems(**statuses: str) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of a route's refusals: `problems(s404="…")`."""
    content: dict[str, Any] = {"content": {PROBLEM_TYPE: {}}}
    return {int(key[1:]): {**content, "description": text} for key, text in statuses.items()}


def problem_response(error: ProblemError) -> ProblemResponse:
    """The response for a `ProblemError`."""
    more = {} if error.retry_after_s is None else {"retry_after_s": error.retry_after_s}
    more |= error.more
    body = problem_body(error.status_code, error.code, error.title, error.detail, **more)
    return ProblemResponse(body, error.status_code, headers=error.headers)


_GENERIC = {
    400: "The request could not be read. Compare it with /docs.",
    404: "There is nothing at this address. The addresses are listed at /docs.",
    405: "This address does not take this method; the Allow header names those it does.",
    413: "The request is too large.",
}


async def _on_http_error(request: Request, error: Exception) -> ProblemResponse:
    if isinstance(error, ProblemError):
        return problem_response(error)
    assert isinstance(error, HTTPException)
    status = error.status_code
    title = HTTPStatus(status).phrase
    detail = _GENERIC.get(status, f"{title}. Compare the request with /docs.")
    code = title.lower().replace(" ", "-")
    return ProblemResponse(problem_body(status, code, title, detail), status, headers=error.headers)


async def _on_invalid(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)
    wrong = error.errors()
    found = [f"{_place(item['loc'])}: {item['msg']}" for item in wrong[:MOST_ERRORS]]
    if len(wrong) > MOST_ERRORS:
        found.append(f"and {len(wrong) - MOST_ERRORS} more")
    detail = "The request cannot be used: " + "; ".join(found) + ". Compare it with /docs."
    body = problem_body(
        422, "invalid-request", HTTPStatus.UNPROCESSABLE_ENTITY.phrase, detail, errors=found
    )
    return ProblemResponse(body, 422)


async def _on_bug(request: Request, error: Exception) -> ProblemResponse:
    body = problem_body(
        500,
        "internal",
        HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
        "The server made a mistake; its log says which. Try again.",
    )
    return ProblemResponse(body, 500)


def _place(location: tuple[int | str, ...]) -> str:
    parts = [str(part) for part in location if part not in ("body", "query", "path")]
    place = ".".join(parts) or str(location[0] if location else "request")
    return place if len(place) <= MOST_PLACE_CHARS else place[:MOST_PLACE_CHARS] + "…"


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error of `app`, the framework's own included, a problem document."""
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(Exception, _on_bug)
