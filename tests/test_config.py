"""Settings: where they come from, what is refused, and in which words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from avatar_server.config import ConfigError, Settings, load_settings
from avatar_server.paths import configs_dir


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("AVATAR_SERVER_"):
            monkeypatch.delenv(name)


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from leaves(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


ALL = dict(leaves(Settings))


def nested(key: str, value: object) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def value_at(settings: BaseModel, key: str) -> object:
    value: object = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", sorted(path.stem for path in configs_dir().glob("*.yaml")))
def test_every_shipped_configuration_loads(name: str) -> None:
    assert isinstance(load_settings(name), Settings)


def test_the_default_needs_no_gpu_and_the_h100_configuration_is_what_it_says() -> None:
    assert load_settings() == load_settings("cpu")
    assert load_settings().stt.device == load_settings().tts.device == "cpu"
    large = load_settings("h100")
    assert large.sessions.max_sessions == 4
    assert large.llm.engine == "vllm"
    assert large.llm.model == "qwen3.6-35b-a3b-fp8"
    assert large.stt.model == "whisper-large-v3-turbo"
    assert large.tts.device == "cuda"
    assert large.inference.nice == 0


@pytest.mark.parametrize("key", ALL)
def test_every_setting_says_what_it_is(key: str) -> None:
    assert ALL[key].description, f"{key} has no docstring"


@pytest.mark.parametrize("key", ALL)
def test_every_setting_can_be_set_to_its_default_on_its_own(key: str) -> None:
    default = ALL[key].default
    assert value_at(load_settings("cpu", nested(key, default)), key) == default


@pytest.mark.parametrize("key", ALL)
def test_a_value_of_the_wrong_kind_is_refused_by_the_settings_name(key: str) -> None:
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        load_settings("cpu", nested(key, {"wrong": ["kind"]} if "options" not in key else 7))


def test_later_sources_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "http: {port: 1111, host: 0.0.0.0}\nsessions: {max_sessions: 7}\n")
    assert load_settings(path).http.port == 1111
    monkeypatch.setenv("AVATAR_SERVER_HTTP__PORT", "2222")
    from_environment = load_settings(path)
    assert from_environment.http.port == 2222
    assert from_environment.http.host == "0.0.0.0"
    from_command_line = load_settings(path, {"http": {"port": 3333}})
    assert from_command_line.http.port == 3333
    assert from_command_line.sessions.max_sessions == 7


def test_a_secret_is_read_from_the_environment_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AVATAR_SERVER_LLM__API_KEY", "s3cret")
    settings = load_settings("cpu", {"http": {"port": 1}})
    assert settings.llm.api_key is not None
    assert settings.llm.api_key.get_secret_value() == "s3cret"
    assert "s3cret" not in f"{settings!r} {settings} {settings.model_dump()}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http: {prot: 1}", "http.prot"),
        ("htpt: {port: 1}", "htpt"),
        ("http: {port: 99999}", "http.port"),
        ("- a\n- b\n", "must be a mapping"),
        ("a: [", "is not YAML"),
        ("llm: {engine: openai}", "llm.base_url"),
        ("turns: {end_ms: 100}", "turns.pause_ms"),
        ("media: {video: {width: 1281}}", "media.video.width"),
        ("media: {udp_ports: 50100-50000}", "media.udp_ports: Value error, '50100-50000'"),
        ("media: {udp_ports: many}", "write it like 50000-50100"),
        ("media: {public_address: example.org}", "media.public_address"),
        ("media: {turn_secret: ''}", "media.turn_secret"),
        ("media: {ice_servers: [{urls: ['http://a.example']}]}", "media.ice_servers.0"),
        ("media: {ice_servers: [{urls: []}]}", "urls is empty"),
        ("media: {ice_servers: [{urls: ['stun:a.example:99999']}]}", "no STUN or TURN address"),
        ("media: {ice_servers: [{urls: ['turn:a.example']}]}", "turn_secret"),
        ("media: {ice_servers: [{urls: ['turn:a.example'], username: u}]}", "both, or neither"),
    ],
)
def test_files_that_cannot_be_used_are_refused_in_words(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(write(tmp_path, text))
    assert words in str(caught.value)
    assert "mine.yaml" in str(caught.value)


def test_the_ways_to_write_ports_and_addresses(tmp_path: Path) -> None:
    text = "media: {udp_ports: 50000, public_address: [203.0.113.7, '2001:db8::7']}"
    media = load_settings(write(tmp_path, text)).media
    assert media.udp_ports == "50000"
    assert media.public_address == "203.0.113.7, 2001:db8::7"


def test_no_error_and_no_print_shows_a_turn_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AVATAR_SERVER_MEDIA__TURN_SECRET", "shar3d")
    server = "{urls: ['turn:a.example:3478?transport=udp', 'turn:[2001:db8::1]:3478']}"
    settings = load_settings(write(tmp_path, f"media: {{ice_servers: [{server}]}}"))
    assert settings.media.turn_secret is not None
    assert settings.media.turn_secret.get_secret_value() == "shar3d"
    assert "shar3d" not in f"{settings!r} {settings} {settings.model_dump()}"
    wrong = "{urls: ['turn:a.example'], username: u, credential: w0rd, realm: x}"
    with pytest.raises(ConfigError) as refused:
        load_settings(write(tmp_path, f"media: {{ice_servers: [{wrong}]}}"))
    told = f"{refused.value} {refused.value.__cause__}"
    assert "realm" in told
    assert "w0rd" not in told
    assert "shar3d" not in told


def test_files_that_cannot_be_read_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a file, or one of"):
        load_settings("no-such-configuration")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not YAML"):
        load_settings(binary)


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    empty = load_settings(write(tmp_path, ""))
    assert {key: value_at(empty, key) for key in ALL} == {key: f.default for key, f in ALL.items()}


def test_variables_that_name_no_setting_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVATAR_SERVER_CACHE", "/somewhere")
    load_settings()
    monkeypatch.setenv("AVATAR_SERVER_HTPT__PORT", "1")
    with pytest.raises(ConfigError, match="AVATAR_SERVER_HTPT__PORT"):
        load_settings()


def test_a_section_given_as_one_variable_must_be_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVATAR_SERVER_HTTP", "9000")
    with pytest.raises(ConfigError, match="http"):
        load_settings()
    monkeypatch.setenv("AVATAR_SERVER_HTTP", "port 9000")
    with pytest.raises(ConfigError, match="AVATAR_SERVER_HTTP__PORT"):
        load_settings()
    monkeypatch.setenv("AVATAR_SERVER_HTTP", '{"port": 9000}')
    assert load_settings().http.port == 9000
