"""The site: `make docs` builds it from the Markdown of the repository, without network.

The source folder is the checkout's root, so that links between pages, and to examples and tests,
are the very ones that work in a checkout: files that are no pages are copied beside them.
"""

from __future__ import annotations

from pathlib import Path

from tuner import __version__

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "docs/**.md",
    "benchmarks/*.md",
    *(f"{n}.md" for n in ("README", "CHANGELOG", "CONTRIBUTING")),
]

project = "elastic-tuner"
version = release = __version__
html_title = f"{project} {version}"
copyright = "the authors of elastic-tuner, Apache-2.0"

extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "benchmarks/*.md", "[A-Z]*.md"]
# Folders of the checkout that hold no pages, pruned so that they are not walked.
exclude_patterns = [
    *(path.name for path in ROOT.glob(".*")),
    *("actors", "build", "cluster", "dist", "examples", "runs", "spaces", "tests", "tuner"),
    *("benchmarks/coverage", "benchmarks/recordings", "benchmarks/results"),
]

myst_enable_extensions = ["colon_fence", "html_image"]
myst_heading_anchors = 6

html_theme = "furo"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "to_docs.html"}
templates_path = ["site"]
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_show_sphinx = False
pygments_style = "default"
pygments_dark_style = "github-dark"
copybutton_exclude = ".linenos, .gp, .go"
