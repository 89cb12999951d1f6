"""The end of a spot machine is read from the cloud's metadata, and Ray hears of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cluster.spot_notice import (
    Notice,
    aws_notice,
    drain,
    fetcher,
    find_raylet,
    gcp_notice,
    main,
    watch,
)
from tests.cluster.loopback_head import MARK, marked, ray_head

AT_S = 1_800_000_000.0
AWS_PATH = "/latest/meta-data/spot/instance-action"
GCP_PATH = "/computeMetadata/v1/instance/preempted"
SPOT = '{"action": "terminate", "time": "2027-01-15T08:02:00Z"}'  # two minutes after AT_S


class Metadata(BaseHTTPRequestHandler):
    """Answers as the clouds do: with a token first, or a header of their own."""

    entries: Mapping[str, str] = {}

    def do_PUT(self) -> None:
        known = self.path == "/latest/api/token"
        self._answer(200 if known and self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else 400)

    def do_GET(self) -> None:
        is_aws = self.headers["X-aws-ec2-metadata-token"] == "token"
        if not is_aws and self.headers["Metadata-Flavor"] != "Google":
            return self._answer(401)
        return self._answer(200 if self.path in self.entries else 404)

    def _answer(self, code: int) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(self.entries.get(self.path, "token").encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def metadata(entries: Mapping[str, str]) -> Iterator[str]:
    """The address of a server with these entries."""
    handler = type("Entries", (Metadata,), {"entries": entries})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_aws_says_when_the_machine_goes() -> None:
    with metadata({AWS_PATH: SPOT}) as base:
        assert aws_notice(fetcher(base), AT_S) == Notice(120.0, SPOT)
        assert aws_notice(fetcher(base), AT_S + 500.0) == Notice(0.0, SPOT)


@pytest.mark.parametrize("text", ["soon", "[]", '{"action": "stop"}', '{"time": "soon"}'])
def test_a_notice_that_is_not_understood_is_one_all_the_same(text: str) -> None:
    with metadata({AWS_PATH: text}) as base:
        assert aws_notice(fetcher(base), AT_S) == Notice(0.0, text)


def test_google_says_that_the_machine_goes() -> None:
    with metadata({GCP_PATH: "TRUE"}) as base:
        assert gcp_notice(fetcher(base), AT_S) == Notice(30.0, "preempted")


def test_mostly_there_is_no_notice() -> None:
    with metadata({GCP_PATH: "FALSE"}) as base:
        assert gcp_notice(fetcher(base), AT_S) is None
        assert aws_notice(fetcher(base), AT_S) is None


def test_metadata_that_refuses_is_no_news() -> None:
    with metadata({}) as base, pytest.raises(OSError, match="401"):
        fetcher(base)("GET", AWS_PATH, {})


def watched(
    *answers: Notice | OSError | None, takes: tuple[bool, ...] = (True,)
) -> tuple[bool, list[Notice]]:
    """Watch while there are answers; whether the node was drained, and what Ray was told."""
    waiting, told, taken = list(answers), list[Notice](), list(takes)

    def ask() -> Notice | None:
        answer = waiting.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def drained(notice: Notice) -> bool:
        told.append(notice)
        return taken.pop(0)

    return watch(ask, lambda: bool(waiting), drained, sleep=lambda: None), told


NOTICE = Notice(120.0, "terminate")


def test_ray_is_told_once_there_is_a_notice() -> None:
    assert watched(None, None, NOTICE, None) == (True, [NOTICE])


def test_ray_is_told_again_until_it_has_taken_it() -> None:
    later = Notice(110.0, "terminate")
    assert watched(NOTICE, later, None, takes=(False, True)) == (True, [NOTICE, later])


def test_silence_is_no_notice_and_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    silence = OSError("unreachable")
    assert watched(silence, silence, None) == (False, [])
    assert capsys.readouterr().out.count("unreachable") == 1


def test_without_a_ray_there_is_nothing_to_watch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cluster.spot_notice.find_raylet", lambda: None)
    monkeypatch.setattr("cluster.spot_notice._RAYLET_START_S", 0.0)
    assert main(["aws"]) == 1
    assert "no Ray here" in capsys.readouterr().out
    assert find_raylet([]) is None


@pytest.mark.ray
@pytest.mark.slow
def test_a_node_of_ray_that_has_no_work_leaves_when_it_is_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ray_head() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        raylet = find_raylet(marked(environment[MARK]))
        assert raylet is not None
        assert raylet.alive()
        assert raylet.gcs_address == environment["RAY_ADDRESS"]
        assert drain(raylet, NOTICE)
        raylet.process.wait(30)  # a node that is drained and has no work leaves by itself
        assert not raylet.alive()
