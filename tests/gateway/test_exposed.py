"""A server that others can reach: TLS, keys, and what it refuses to do without them."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from avatar_server.security import KeyStore, Scope
from tests.gateway.serving import StartServer, run_cli


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "http.allow_plain=true"),
        (("--set", "http.allow_plain=true"), "avatar-server keys create NAME"),
        (("--set", "http.tls_certificate=/nowhere/c.pem"), "tls_key both, or neither"),
    ],
)
def test_it_refuses_to_be_open_to_strangers_and_says_what_to_do(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, output = run_cli(tmp_path, "serve", "--host", "0.0.0.0", *arguments)
    assert code == 2, output
    assert words in output
    assert "Traceback" not in output


def test_over_tls_with_a_key_it_serves_operators_and_nobody_else(
    tmp_path: Path, start: StartServer
) -> None:
    cert, key = certificate(tmp_path)
    _, text = KeyStore(tmp_path / "data" / "api-keys.json").create("ops", Scope.OPERATE)
    server = start(
        "--host", "0.0.0.0",
        "--set", f"http.tls_certificate={cert}",
        "--set", f"http.tls_key={key}",
    )  # fmt: skip
    assert server.url.startswith("https://")
    assert "avatar-server keys" not in server.text()
    trust = ssl.create_default_context(cafile=str(cert))
    with httpx.Client(base_url=server.url, verify=trust, timeout=30) as http:
        assert http.get("/healthz").status_code == 200
        assert http.post("/v1/sessions", json={"avatar": "good"}).status_code == 401
        bearer = {"Authorization": f"Bearer {text}"}
        made = http.post("/v1/sessions", json={"avatar": "good"}, headers=bearer)
        assert made.status_code == 201, made.text
        assert http.get("/metrics").status_code == 401
    assert text not in server.text()


def test_forwarded_addresses_are_believed_of_trusted_proxies_only(
    tmp_path: Path, start: StartServer
) -> None:
    _, text = KeyStore(tmp_path / "data" / "api-keys.json").create("ops", Scope.OPERATE)
    claim = {"Authorization": f"Bearer {text}", "X-Forwarded-For": "198.51.100.1"}
    behind = start("--set", "http.trusted_proxies=[127.0.0.1]")
    alone = start("--set", "security.require_key=always")
    audit = tmp_path / "data" / "audit.jsonl"
    for server, address in ((behind, "198.51.100.1"), (alone, "127.0.0.1")):
        made = httpx.post(
            f"{server.url}/v1/sessions", json={"avatar": "good"}, headers=claim, timeout=30
        )
        assert made.status_code == 201, made.text
        assert f'"address":"{address}"' in audit.read_text().splitlines()[-1]


def test_keys_are_made_listed_and_revoked_from_the_command_line(tmp_path: Path) -> None:
    code, output = run_cli(tmp_path, "keys", "create", "ops", "--scope", "operate")
    assert code == 0
    assert output.startswith("avs_")
    code, output = run_cli(tmp_path, "keys", "list")
    assert "ops" in output
    assert "avs_" not in output
    assert run_cli(tmp_path, "keys", "create", "ops")[0] == 2
    assert run_cli(tmp_path, "keys", "revoke", "ops")[0] == 0
    code, output = run_cli(tmp_path, "keys", "revoke", "ops")
    assert code == 2
    assert "There is no key" in output
