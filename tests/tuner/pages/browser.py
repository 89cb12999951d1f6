"""Headless Chromium, which opens a page and tells what became of it."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.needed import needed

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--enable-logging=stderr", "--virtual-time-budget=20000"),
)
_PROBE = """
<script>
window.addEventListener("error", (event) => { window.failed = String(event.message); });
setTimeout(() => {
  const told = document.createElement("pre");
  told.id = "probe";
  const labels = [...document.querySelectorAll("figure svg text")].map((e) => e.textContent);
  told.textContent = JSON.stringify({
    drawn: document.body.dataset.drawn, errors: document.body.dataset.errors,
    failed: window.failed || "", svgs: document.querySelectorAll("figure svg").length,
    wide: document.documentElement.scrollWidth, room: document.documentElement.clientWidth,
    ink: getComputedStyle(document.body).color, labels: labels,
  });
  document.body.append(told);
}, 12000);
</script></body>"""


@dataclass(frozen=True, slots=True)
class Seen:
    """A page as a browser has it.

    Attributes:
        svgs: charts that were drawn.
        errors: of charts that could not be, and of scripts.
        console: warnings and errors that were printed.
        overflow: pixels that the page is wider than the window.
        ink: the colour of the text.
        labels: texts in the charts.
    """

    svgs: int
    errors: list[str]
    console: list[str]
    overflow: int
    ink: str
    labels: list[str]


def look(page: Path, *, width: int, dark: bool = False) -> Seen:
    """Open a page in a window of so many pixels, without a network."""
    probed = page.with_name(f"probed-{width}-{dark}.html")
    # The last one: the scripts of the page name it as well.
    head, _, tail = page.read_text().rpartition("</body>")
    probed.write_text(head + _PROBE + tail)
    scheme = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    command = [needed("chromium"), *_FLAGS, *scheme, "--host-resolver-rules=MAP * ~NOTFOUND"]
    profile = page.parent / f"profile-{width}-{dark}"
    told = subprocess.run(
        [
            *(*command, f"--user-data-dir={profile}", f"--window-size={width},900"),
            *("--dump-dom", probed.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    probe = re.search(r'<pre id="probe">(.*?)</pre>', told.stdout, re.DOTALL)
    assert probe is not None, told.stderr[-2000:]
    said = json.loads(probe[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    console = [line for line in told.stderr.splitlines() if "CONSOLE" in line]
    errors = [said["failed"]] if said["failed"] else []
    if said["errors"] != "0" or said["drawn"] != str(said["svgs"]):
        errors.append(f"{said['errors']} of {said['drawn']} charts failed")
    return Seen(
        said["svgs"],
        errors,
        console,
        said["wide"] - said["room"],
        said["ink"],
        said["labels"],
    )
