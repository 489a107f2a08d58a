"""The HTTP application: routes, problem documents and guards put together."""

from __future__ import annotations

from fastapi import Depends, FastAPI
from starlette.middleware import Middleware

import avatar_server
from avatar_server.clock import MonotonicClock
from avatar_server.gateway.access import Access
from avatar_server.gateway.capacity_routes import capacity_routes
from avatar_server.gateway.control import Control
from avatar_server.gateway.docs import docs_routes
from avatar_server.gateway.guards import Guards, is_loopback
from avatar_server.gateway.links import link_routes
from avatar_server.gateway.logring import LogRing
from avatar_server.gateway.openapi import install_openapi
from avatar_server.gateway.operations import operation_routes
from avatar_server.gateway.pages import STATIC_DIR, PageFiles, page_routes
from avatar_server.gateway.previews import Previews
from avatar_server.gateway.problems import install_problem_handlers
from avatar_server.gateway.recordings import recording_routes
from avatar_server.gateway.reload import Reloader
from avatar_server.gateway.sessions import session_routes
from avatar_server.security import RateLimiter


def create_app(
    control: Control,
    previews: Previews,
    access: Access | None = None,
    ring: LogRing | None = None,
    reloader: Reloader | None = None,
) -> FastAPI:
    """The application; whoever calls this starts and stops `control` and `previews`.

    `ring` is where log lines are kept for operators.
    """
    http, security = control.settings.http, control.settings.security
    access = access or Access(control.settings)
    app = FastAPI(
        title="avatar_server",
        version=avatar_server.__version__,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(access.check)],
        middleware=[
            Middleware(
                Guards,
                metrics=control.metrics,
                loopback_only=is_loopback(http.host),
                allowed_origins=http.allowed_origins,
                limiter=RateLimiter(
                    security.requests_per_minute, security.request_burst, MonotonicClock()
                ),
            )
        ],
    )
    install_problem_handlers(app)
    app.include_router(page_routes(control, previews, access))
    app.include_router(session_routes(control, access))
    app.include_router(link_routes(control, access))
    app.include_router(capacity_routes(control))
    app.include_router(
        operation_routes(control, access, ring, reloader or Reloader(control, previews, None))
    )
    app.include_router(recording_routes(control.settings.recording, access))
    app.include_router(docs_routes(app))
    install_openapi(app)
    app.mount("/static", PageFiles(directory=STATIC_DIR, check_dir=False), name="static")
    return app
