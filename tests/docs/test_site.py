# SPDX-License-Identifier: Apache-2.0
"""The documentation builds as a site without a warning, and neither needs nor asks for a network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("material")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there_and_links_lead_somewhere(site: Path) -> None:
    sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    pages = {p.with_name("index.html") if p.stem == "README" else p.with_suffix(".html") for p in sources}
    made = {path.relative_to(site) for path in site.rglob("*.html")}
    assert pages <= made
    for page in made - {Path("404.html")}:
        for link in re.findall(r'<a [^>]*href="([^"#]+)', (site / page).read_text()):
            if not re.match(r"[a-z]+:", link):
                assert (site / page.parent / link).exists(), (page, link)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="?([^" >]+)', text)
        loaded += re.findall(r'<link[^>]*rel="?(?:stylesheet|preconnect)[^>]* href="?([^" >]+)', text)
        loaded += re.findall(r'<link[^>]*href="?([^" >]+)[^>]*rel="?(?:stylesheet|preconnect)', text)
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], page
