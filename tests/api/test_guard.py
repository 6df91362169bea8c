"""The door: keys, hosts, origins, request ids."""

import re

import pytest

from tests.api.conftest import Connect
from tests.api.fakes import body

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/sprout", "/v1/nothing"])
def test_without_keys_everything_is_open(connect: Connect, path: str) -> None:
    assert connect().get(path, headers={"Authorization": "Bearer anything"}).status_code in (200, 404)


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic sk-a"}, {"x-api-key": ""}]
)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/nothing"])
def test_a_key_is_needed(connect: Connect, path: str, headers: dict[str, str]) -> None:
    response = connect(api_key=("sk-a", "sk-b")).get(path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    "headers", [{"Authorization": "Bearer sk-a"}, {"authorization": "bearer sk-b"}, {"x-api-key": "sk-b"}]
)
def test_any_of_the_keys_will_do(connect: Connect, headers: dict[str, str]) -> None:
    client = connect(api_key=("sk-a", "sk-b"))
    assert client.post(CHAT, json=body(), headers=headers).status_code == 200
    assert client.post(CHAT, json=body()).status_code == 401


def test_a_key_that_is_not_ascii_is_just_wrong(connect: Connect) -> None:
    assert connect(api_key=("sk-a",)).get("/v1/models", headers=[(b"x-api-key", b"\xff\xe4")]).status_code == 401


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/version", "/metrics"])
def test_health_needs_no_key(connect: Connect, path: str) -> None:
    assert connect(api_key=("sk-a",)).get(path).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:1",
        "LOCALHOST:8000",
        "app.localhost",
        "127.0.0.1:9",
        "10.1.2.3",
        "[::1]:8000",
        "named.lan:80",
    ],
)
def test_hosts_that_cannot_be_rebound_are_allowed(connect: Connect, host: str) -> None:
    assert connect(allowed_hosts=("Named.lan",)).get("/version", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["example.com", "localhost.example.com", "127.0.0.1.nip.io", "[::1].example.com", ""])
def test_other_hosts_are_not(connect: Connect, host: str) -> None:
    response = connect(allowed_hosts=("named.lan",)).get("/health", headers={"Host": host})
    assert response.status_code == 403
    assert "--allowed-hosts" in response.json()["error"]["message"]


def test_all_hosts_can_be_allowed(connect: Connect) -> None:
    assert connect(allowed_hosts=("*",)).get("/health", headers={"Host": "example.com"}).status_code == 200


@pytest.mark.parametrize(
    ("allowed", "origin", "status"),
    [
        ((), "http://localhost:8000", 200),
        ((), "http://localhost:3000", 403),
        ((), "https://localhost.example.com", 403),
        (("https://chat.example",), "https://chat.example", 200),
        (("https://chat.example",), "https://other.example", 403),
        (("*",), "https://other.example", 200),
    ],
)
def test_origins(connect: Connect, allowed: tuple[str, ...], origin: str, status: int) -> None:
    client = connect(allowed_origins=allowed)
    assert client.post(CHAT, json=body(), headers={"Origin": origin}).status_code == status


def test_cors_is_off_unless_asked_for(connect: Connect) -> None:
    preflight = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
    assert connect().options(CHAT, headers=preflight).status_code == 403
    allowed = connect(allowed_origins=("https://chat.example",), api_key=("sk-a",)).options(CHAT, headers=preflight)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://chat.example"
    assert "access-control-allow-credentials" not in allowed.headers


def test_a_page_can_read_the_error(connect: Connect) -> None:
    client = connect(allowed_origins=("https://chat.example",), api_key=("sk-a",))
    response = client.post(CHAT, json=body(), headers={"Origin": "https://chat.example"})
    assert response.status_code == 401
    assert response.headers["access-control-allow-origin"] == "https://chat.example"


def test_a_request_id_is_echoed_or_made(connect: Connect) -> None:
    client = connect()
    assert client.get("/version", headers={"X-Request-Id": "abc-123"}).headers["x-request-id"] == "abc-123"
    made = [client.get(path).headers["x-request-id"] for path in ("/version", "/nope", "/version")]
    assert len(set(made)) == 3
    assert all(re.fullmatch(r"req_[0-9a-f]{32}", id_) for id_ in made)
    for bad in ("a" * 200, "a b", 'a"b'):
        assert client.get("/version", headers={"X-Request-Id": bad}).headers["x-request-id"] != bad
