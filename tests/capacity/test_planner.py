"""The planner: shapes, memory, speed and verdicts, against what publishers and others state."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from avatar_server import cli
from avatar_server.capacity.planner import (
    PRECISIONS,
    PlanError,
    Workload,
    checks,
    find_gpu,
    find_model,
    gpus,
    language_models,
    make_plan,
    measurements,
    typical_error,
)
from avatar_server.capacity.planner.roofline import Roofline

GIB = 2**30


@pytest.mark.parametrize("name", sorted(language_models()))
def test_the_shapes_give_the_published_number_of_weights(name: str) -> None:
    model = language_models()[name]
    assert model.parameters / 1e9 == pytest.approx(model.published_params_b, rel=0.03)
    if model.published_active_b is not None:
        assert model.active_parameters / 1e9 == pytest.approx(model.published_active_b, rel=0.1)


def test_the_product_model_weighs_what_its_files_weigh() -> None:
    _, model, precision = find_model("qwen3.6-35b-a3b-fp8")
    stored = model.weight_bytes(PRECISIONS[precision]) + model.beside_bytes(PRECISIONS[precision])
    assert stored / GIB == pytest.approx(34.6, rel=0.02)


def test_only_full_attention_layers_keep_keys_and_values() -> None:
    _, hybrid, _ = find_model("qwen3.6-35b-a3b")
    # 10 layers, 2 heads of 256, keys and values, 2 bytes.
    assert hybrid.kv_bytes_per_token() == 20_480
    # 30 layers: 32 matrices of 128x128 in 4 bytes, 3 past inputs of 8,192 channels in 2 bytes.
    assert hybrid.state_bytes() == 30 * (32 * 128 * 128 * 4 + 8_192 * 3 * 2)


def test_a_mixture_reads_more_experts_for_more_tokens_but_never_more_than_there_are() -> None:
    experts = find_model("qwen3.6-35b-a3b")[1].experts
    assert experts is not None
    assert experts.touched(1) == pytest.approx(8)
    assert experts.touched(4) == pytest.approx(30.5, abs=0.1)
    assert experts.touched(10_000) == pytest.approx(256)


def test_time_a_token_is_predicted_within_a_twentieth_where_the_constants_were_fitted() -> None:
    fitted = [c for c in checks() if c.fitted and c.quantity == "decode"]
    assert len(fitted) >= 5
    assert all(abs(c.error) < 0.05 for c in fitted), [(c.measurement, c.error) for c in fitted]


def test_other_engines_are_predicted_within_a_third_and_never_slower_than_measured() -> None:
    other = [c for c in checks() if not c.fitted]
    assert len(other) >= 6
    # Older kernels of another engine: the roofline must not promise less than they reached.
    assert all(-0.34 < c.error <= 0.02 for c in other), [(c.measurement, c.error) for c in other]


def test_there_are_enough_measurements_and_each_has_a_source() -> None:
    assert len(measurements()) >= 8
    assert all(len(m.source) > 20 for m in measurements())
    assert typical_error(checks()) < 0.6


def test_active_weights_decide_speed_and_all_weights_decide_fit() -> None:
    mixture = make_plan("h200", "qwen3-30b-a3b-bf16", search=False)
    dense = make_plan("h200", "qwen3.6-27b-bf16", search=False)
    assert mixture.memory_gib["weights"] > dense.memory_gib["weights"]
    assert mixture.tokens_per_second > 1.5 * dense.tokens_per_second


def test_the_product_runs_four_sessions_on_one_h100_in_8_bits_and_not_in_16() -> None:
    eight = make_plan("h100", "qwen3.6-35b-a3b-fp8", Workload(sessions=4))
    assert (eight.fits, eight.usable, eight.reasons) == (True, True, [])
    assert eight.sessions_max is not None
    assert eight.sessions_max >= 4
    sixteen = make_plan("h100", "qwen3.6-35b-a3b-bf16", Workload(sessions=4))
    assert (sixteen.fits, sixteen.usable, sixteen.sessions_max) == (False, False, 0)
    assert sixteen.binding == "gpu memory"
    assert "GiB are needed" in sixteen.reasons[0]


def test_what_fits_need_not_be_usable() -> None:
    plan = make_plan("l40s", "qwen3.6-27b-fp8", Workload(sessions=4))
    assert plan.fits
    assert not plan.usable
    assert "over the budget of 800 ms" in plan.reasons[0]


def test_the_most_sessions_is_the_last_count_that_is_usable() -> None:
    plan = make_plan("h100", "qwen3.6-35b-a3b-fp8")
    assert plan.sessions_max is not None
    at = make_plan("h100", "qwen3.6-35b-a3b-fp8", Workload(sessions=plan.sessions_max))
    beyond = make_plan("h100", "qwen3.6-35b-a3b-fp8", Workload(sessions=plan.sessions_max + 1))
    assert at.usable
    assert not beyond.usable


def test_the_cost_is_shared_by_the_avatars() -> None:
    plan = make_plan("h100", "qwen3-8b-fp8", Workload(sessions=4), search=False)
    assert plan.cost_per_avatar_month(2.0) == pytest.approx(2.0 * 730 / 4)


@given(
    gpu=st.sampled_from(sorted(gpus())),
    model=st.sampled_from(sorted(language_models())),
    precision=st.sampled_from(sorted(PRECISIONS)),
    sessions=st.integers(1, 40),
)
def test_more_sessions_never_need_less(gpu: str, model: str, precision: str, sessions: int) -> None:
    name = f"{model}-{precision}"
    fewer = make_plan(gpu, name, Workload(sessions=sessions), search=False)
    more = make_plan(gpu, name, replace(fewer.workload, sessions=sessions + 1), search=False)
    assert sum(more.memory_gib.values()) > sum(fewer.memory_gib.values())
    assert more.voice_to_voice_ms > fewer.voice_to_voice_ms
    assert more.tokens_per_second <= fewer.tokens_per_second
    assert more.cpu_cores > fewer.cpu_cores
    assert not (more.usable and not fewer.usable)


@given(prompt=st.integers(1, 20_000), cached=st.integers(0, 4_000))
def test_a_longer_prompt_never_answers_sooner(prompt: int, cached: int) -> None:
    _, model, precision = find_model("qwen3.6-35b-a3b-fp8")
    roofline = Roofline(model, precision, find_gpu("h100"))
    assert roofline.first_token_ms(prompt + 1, cached) >= roofline.first_token_ms(prompt, cached)


@pytest.mark.parametrize("wrong", ["h1000", ""])
def test_unknown_names_are_refused_with_those_known(wrong: str) -> None:
    with pytest.raises(PlanError, match="there are: h100"):
        find_gpu(wrong)
    with pytest.raises(PlanError, match=r"qwen3\.6-35b-a3b, .*-fp8"):
        find_model(wrong)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(cli.app, ["plan", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_the_command_writes_its_figures(tmp_path: Path) -> None:
    file, diagram = tmp_path / "plan.json", tmp_path / "plan.png"
    arguments = ("--compare", "qwen3.6-27b-fp8,l40s,l4:qwen3-8b-fp8", "--json", str(file))
    code, output = run(*arguments, "--plot", str(diagram), "--price", "3", "--validate")
    assert code == 0, output
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert figures["fits"] is True
    assert figures["usable"] is True
    assert set(figures["latency_ms"]) == {"endpoint", "stt", "route", "llm", "tts", "media"}
    assert {"weights", "kv_cache", "linear_attention_state", "stt", "tts"} <= set(
        figures["memory_gib"]
    )
    assert figures["cost_per_avatar_month"] == pytest.approx(547.5)
    assert figures["binding"] == "voice-to-voice latency"
    assert [one["gpu"] for one in figures["compared"]] == [
        "NVIDIA H100 SXM 80 GB",
        "NVIDIA L40S 48 GB",
        "NVIDIA L4 24 GB",
    ]
    assert diagram.read_bytes().startswith(b"\x89PNG")
    assert "tenstorrent/tt-inference-server" in output


def test_an_unusable_plan_is_exit_code_1_and_says_why() -> None:
    code, output = run("--gpu", "l4")
    assert code == 1
    assert "it does not fit" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu", "h1000"), "no GPU 'h1000' is known"),
        (("--model", "gpt"), "no model 'gpt' is known"),
        (("--compare", "l40s:gpt"), "no model 'gpt' is known"),
        (("--json", "/nowhere/x.json"), "there is no folder /nowhere"),
        (("--plot", "x.docx"), "cannot write the diagram x.docx"),
        (("--sessions", "0"), "--sessions"),
    ],
)
def test_wrong_use_is_exit_code_2_in_words(arguments: tuple[str, ...], words: str) -> None:
    code, output = run(*arguments)
    assert code == 2, output
    assert words in output


def test_the_list_names_gpus_and_models() -> None:
    code, output = run("--list")
    assert code == 0
    assert all(name in output for name in [*gpus(), *language_models()])
