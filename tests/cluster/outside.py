"""What goes out into the world from a test is seen: a proxy on loopback lets nothing through."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def seen_outside() -> Iterator[tuple[dict[str, str], list[str]]]:
    """An environment whose programs find the world behind a proxy, and what they asked it for."""
    asked: list[str] = []

    class Refusing(BaseHTTPRequestHandler):
        def refuse(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_error(403)

        do_CONNECT = do_GET = do_HEAD = do_POST = do_PUT = refuse

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        proxy = f"http://127.0.0.1:{server.server_address[1]}"
        names = [n for name in ("http_proxy", "https_proxy") for n in (name, name.upper())]
        here = {"no_proxy": "127.0.0.1,localhost,::1", "NO_PROXY": "127.0.0.1,localhost,::1"}
        yield {**dict.fromkeys(names, proxy), **here}, asked
        server.shutdown()
