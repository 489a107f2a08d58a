"""How a session's replies are planned: with decisions of a thread, or of the language model."""

from __future__ import annotations

from collections.abc import Sequence

from avatar_server.avatar_routes import read_routes
from avatar_server.clock import Clock
from avatar_server.inference.llm.responder import Responder
from avatar_server.inference.llm.router import Decision, LearningRouter, LlmRouter, Route, Turn
from avatar_server.inference.llm.tools import ToolCaller
from avatar_server.inference.planning import Decide, Planner
from avatar_server.inference.workers import EngineWorker, Workers
from avatar_server.protocol.messages import JobTiming, OpenSession


async def build_planner(
    opened: OpenSession,
    responder: Responder,
    router: LearningRouter | LlmRouter | None,
    workers: Workers,
    tools: ToolCaller,
    clock: Clock,
) -> Planner:
    """The planner of a session. Raises `ValueError` for routes that cannot be used."""
    routes, decide = read_routes(opened.routes), None
    if router is not None:
        known = [Route(spec.name, spec.description, spec.examples) for spec in routes]
        decide = await _decide(opened.session, router, known, workers["route"], clock)
    return Planner(
        opened.session,
        opened.avatar,
        responder,
        workers["retrieve"],
        tools,
        language=opened.language,
        decide=decide,
        slow=isinstance(router, LlmRouter),
        routes=routes,
    )


async def _decide(
    session: str,
    router: LearningRouter | LlmRouter,
    routes: Sequence[Route],
    worker: EngineWorker,
    clock: Clock,
) -> Decide:
    """Decisions of `session`, whose operator's `routes` are learnt first."""
    if isinstance(router, LlmRouter):
        asked = router.with_routes(routes) if routes else router

        async def by_model(
            text: str, history: Sequence[Turn], due: float
        ) -> tuple[Decision, JobTiming]:
            del due  # The engine puts a decision before all replies.
            began = clock.now()
            decision = await asked.decide(text, history)
            return decision, JobTiming(ran=clock.now() - began)

        return by_model
    learning = router
    taught = learning
    if routes:
        taught, _ = await worker.call(session, lambda: learning.with_routes(routes))

    async def on_thread(
        text: str, history: Sequence[Turn], due: float
    ) -> tuple[Decision, JobTiming]:
        return await worker.call(session, lambda: taught.decide(text, history), deadline=due)

    return on_thread
