"""From a decision to an action: taken where it is sure, asked back where it matters."""

from __future__ import annotations

from avatar_server.avatar_routes import DEFAULT_ROUTES, RouteSpec
from avatar_server.inference.llm.choice import RouteTable
from avatar_server.inference.llm.router import Decision

ORDER = RouteSpec.model_validate(
    {
        "name": "order",
        "examples": ["a", "b", "c"],
        "min_confidence": 0.6,
        "tool": {"url": "https://shop.example/"},
    }
)
PRICES = RouteSpec.model_validate(
    {"name": "prices", "examples": ["d", "e", "f"], "answer": {"prompt": "Be exact."}}
)
TABLE = RouteTable([ORDER, PRICES])


def decided(**chances: float) -> Decision:
    best = max(chances, key=lambda name: chances[name])
    return Decision(best, chances[best], False, "x", probabilities=chances)


def name_of(spec: RouteSpec | None) -> str | None:
    return spec.name if spec else None


def test_between_routes_that_are_all_answered_nothing_is_asked() -> None:
    spec = TABLE.choose(decided(question=0.3, command=0.28, small_talk=0.22, stop=0.2), True)
    assert name_of(spec) == "question"


def test_the_sure_route_is_taken() -> None:
    assert name_of(TABLE.choose(decided(stop=0.8, question=0.2), True)) == "stop"
    assert name_of(TABLE.choose(decided(order=0.7, question=0.3), True)) == "order"
    assert name_of(TABLE.choose(decided(prices=0.7, question=0.3), True)) == "prices"


def test_an_unsure_tool_is_asked_for_and_not_called() -> None:
    unsure = decided(order=0.55, question=0.45)
    assert TABLE.choose(unsure, may_ask=True) is None
    # The second time the viewer gets an answer.
    assert name_of(TABLE.choose(unsure, may_ask=False)) == "question"


def test_an_unsure_stop_is_answered() -> None:
    assert name_of(TABLE.choose(decided(stop=0.4, repeat=0.3, question=0.3), True)) == "question"


def test_what_is_clearly_unclear_is_asked_back_once() -> None:
    unclear = decided(unclear=0.9, small_talk=0.1)
    assert TABLE.choose(unclear, may_ask=True) is None
    assert name_of(TABLE.choose(unclear, may_ask=False)) == "small_talk"


def test_what_may_be_clear_is_answered() -> None:
    assert name_of(TABLE.choose(decided(unclear=0.45, question=0.3, stop=0.25), True)) == "question"


def test_an_operator_decides_what_a_built_in_route_does() -> None:
    table = RouteTable([RouteSpec(name="unclear", say="Pardon?")])
    spec = table.choose(decided(unclear=0.9, question=0.1), True)
    assert spec is not None
    assert spec.say == "Pardon?"
    assert RouteTable()["unclear"] is DEFAULT_ROUTES["unclear"]
