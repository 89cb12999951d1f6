"""The site that `make docs` builds: whole, strict, and made and shown without network."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DRAWINGS = sorted((DOCS / "drawings").glob("*.svg"))
_OFFLINE = """
import runpy, sys
def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        print("network:", event, args, file=sys.stderr)
        raise OSError("no network here")
sys.addaudithook(refuse)
runpy.run_module("sphinx", run_name="__main__", alter_sys=True)
"""
_LOADS = {"script", "img", "iframe", "source", "video", "audio", "embed", "object", "use", "image"}
"""Elements whose address is fetched when the page is shown; of links, those below."""
_LOADED_LINKS = {
    "stylesheet",
    "icon",
    "preload",
    "prefetch",
    "preconnect",
    "manifest",
    "modulepreload",
}


class Page(HTMLParser):
    """The addresses in a page: where it leads, what it loads, what it can be linked by."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        address = [given[name] for name in ("href", "src", "data", "xlink:href") if name in given]
        address += [part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()]
        if tag == "a":
            self.leads += address
        elif tag in _LOADS or (tag == "link" and set(given["rel"].split()) & _LOADED_LINKS):
            self.loads += address
        self.loads += in_style(given.get("style", ""))


def in_style(text: str) -> list[str]:
    """What a style sheet loads."""
    return re.findall(r"url\(\s*[\"']?([^\"')]+)", text) + re.findall(
        r"@import\s+[\"']([^\"']+)", text
    )


@cache
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}


def broken(site: Path) -> Iterator[str]:
    """Links between pages that lead nowhere."""
    known = pages(site)
    for path, page in known.items():
        for link in [*page.leads, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            is_page = target in known and parts.fragment
            if not target.is_file():
                yield f"{path.name}: {link}"
            elif is_page and unquote(parts.fragment) not in known[target].anchors:
                yield f"{path.name}: {link} (no such heading)"


def loaded_from_outside(site: Path) -> Iterator[str]:
    """What pages, their styles and their drawings fetch from other hosts when they are shown."""
    found = {path: page.loads for path, page in pages(site).items()}
    for path in site.rglob("*.html"):
        found[path] += in_style("".join(re.findall(r"<style.*?</style>", path.read_text(), re.S)))
    found |= {path: in_style(path.read_text()) for path in site.rglob("*.css")}
    for path in site.rglob("*.svg"):
        found[path] = [*Page(path.read_text()).loads, *in_style(path.read_text())]
    for path, addresses in found.items():
        for address in addresses:
            parts = urlsplit(address)
            if parts.netloc or parts.scheme not in ("", "data"):
                yield f"{path.name}: {address}"


def arguments(out: Path) -> list[str]:
    """What `make docs` gives to Sphinx, with another folder."""
    (line,) = re.findall(r"-m sphinx (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return shlex.split(line.replace("$(SITE)", str(out)))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "docs"
    done = subprocess.run(
        [sys.executable, "-c", _OFFLINE, *arguments(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return out


def test_it_is_built_strictly_and_without_network(site: Path) -> None:
    assert "--fail-on-warning" in arguments(site)
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(ROOT).with_suffix(".html")).is_file()
    assert 'url=docs/index.html"' in (site / "index.html").read_text()


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    assert sum(len(page.leads) for page in pages(site).values()) > 1000
    assert list(broken(site)) == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert sum(len(page.loads) for page in pages(site).values()) > 100
    assert list(loaded_from_outside(site)) == []


def test_a_search_finds_pages_without_a_server(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    assert index.startswith("Search.setIndex(")
    assert "docs/guides/quick-start" in index


def test_what_is_broken_or_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        '@import "https://fonts.test/a.css"; b { background: url(b.png) }'
    )
    (tmp_path / "b.html").write_text(
        '<h1 id="here"></h1><a href="#here"></a><a href="#gone"></a><a href="c.html"></a>'
        '<script src="//cdn.test/x.js"></script><a href="https://out.test"></a>'
        '<link rel="preload stylesheet" href="http://out.test/x.css">'
        "<style>a{src:url(ftp://f)}</style>"
    )
    assert list(broken(tmp_path)) == ["b.html: #gone (no such heading)", "b.html: c.html"]
    assert sorted(loaded_from_outside(tmp_path)) == [
        "a.css: https://fonts.test/a.css",
        "b.html: //cdn.test/x.js",
        "b.html: ftp://f",
        "b.html: http://out.test/x.css",
    ]


def test_the_front_page_leads_to_every_page_for_users() -> None:
    front = (DOCS / "index.md").read_text()
    linked = set(re.findall(r"\]\(([\w./-]+\.md)\)", front))
    listed = {f"{name}.md" for name in re.findall(r"^([\w./-]+)$", front, re.MULTILINE)}
    own = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    assert own <= linked
    assert own <= listed


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_has_words_for_those_who_cannot_see_it_and_dark_colours(drawing: Path) -> None:
    text = drawing.read_text()
    tree = ElementTree.fromstring(text)
    names = [element.tag.rpartition("}")[2] for element in tree]
    assert names[:2] == ["title", "desc"]
    assert "@media (prefers-color-scheme: dark)" in text
    width = float(tree.get("viewBox", "").split()[2])
    for element in tree.iter("{http://www.w3.org/2000/svg}rect"):
        assert 0 <= float(element.get("x", "0")) <= width - float(element.get("width", "0"))
