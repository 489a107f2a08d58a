"""`/docs`: the HTTP API as a page made here, since the usual one loads scripts from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse

from avatar_server.gateway.openapi import REFUSALS

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:54rem;margin:2rem auto;padding:0 1rem;
color:#1c2430;background:#fff}
h2{font-size:1.05rem;margin:2rem 0 .3rem;border-top:1px solid #d8dee6;padding-top:1rem}
code{font-family:ui-monospace,monospace}
.method{display:inline-block;min-width:4.5rem;font-weight:700}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.2rem .8rem .2rem 0;vertical-align:top}
@media (prefers-color-scheme:dark){body{color:#e4e9f0;background:#12161c}h2{border-color:#333c48}}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'"


def docs_routes(app: FastAPI) -> APIRouter:
    """The page; the document itself is at `/openapi.json`."""
    router = APIRouter()

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()), headers={"Content-Security-Policy": POLICY})

    return router


def docs_page(document: dict[str, Any]) -> str:
    """An OpenAPI document as HTML."""
    title = html.escape(f"{document['info']['title']} {document['info']['version']}")
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>The machine-readable description is at "
        '<a href="/openapi.json">/openapi.json</a>. Errors are problem documents (RFC 9457) whose '
        "<code>detail</code> says what to do. What follows may be the answer anywhere, and is not "
        f"repeated:</p>{_table(REFUSALS.items())}"
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(method.upper(), path, operation, document))
    return "".join(parts) + "</body></html>"


def _operation(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    rows = []
    for parameter in operation.get("parameters", []):
        text = parameter.get("description") or parameter["schema"].get("description", "")
        rows.append((f"{parameter['in']} {parameter['name']}", text))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        rows.append(("body", kind))
        rows += _fields(content.get("schema", {}), document)
    for status, response in operation["responses"].items():
        if (text := response.get("description", "")) != REFUSALS.get(status):
            rows.append((status, text))
    return (
        f'<h2><span class="method">{method}</span><code>{html.escape(path)}</code></h2>'
        f"<p>{html.escape(operation.get('summary', ''))}</p>{_table(rows)}"
    )


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = (
        f"<tr><td><code>{html.escape(name)}</code></td><td>{html.escape(text)}</td></tr>"
        for name, text in rows
    )
    return f"<table>{''.join(cells)}</table>"


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> list[tuple[str, str]]:
    if reference := schema.get("$ref"):
        schema = document["components"]["schemas"][reference.rsplit("/", 1)[1]]
    return [
        (f"· {name}", field.get("description", ""))
        for name, field in schema.get("properties", {}).items()
    ]
