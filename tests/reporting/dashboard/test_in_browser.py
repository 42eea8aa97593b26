# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real browser: it lists runs, follows a live one, and hostile names stay text."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from browser import CHROMIUM, WITHOUT, Browser

from feddag.reporting.dashboard.app import make_app
from feddag.reporting.dashboard.serve import _listen
from feddag.reporting.dashboard.watch import Watch
from tests.reporting.payloads import PAYLOADS
from tests.reporting.run_folders import FolderMaker, run_folder

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=WITHOUT)


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """The address of a dashboard that runs in this process."""
    listener = _listen("127.0.0.1", 0)
    host = f"127.0.0.1:{listener.getsockname()[1]}"
    # In the past of this clock every log is new, so a run stays live on a slow machine.
    config = uvicorn.Config(
        make_app(Watch(root, lambda: 1e9), "secret", [host]), log_level="error", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://{host}/?token=secret"
    finally:
        server.should_exit = True
        thread.join()


def wait_for(page, expression: str, value) -> None:
    """Until the page shows it; a page that never does is stopped by a very long limit."""
    limit = time.monotonic() + 600
    while page.run(expression) != value and time.monotonic() < limit:
        time.sleep(0.05)
    assert page.run(expression) == value


def test_the_page_lists_runs_follows_a_live_one_and_runs_no_name(tmp_path: Path) -> None:
    run_folder(tmp_path / "done" / "a", clients=PAYLOADS[:12], method=PAYLOADS[0], classes=PAYLOADS[:3])
    live = FolderMaker(tmp_path / "live" / "b", clients=PAYLOADS[:12], rounds=3, method=PAYLOADS[1])
    live.start()
    live.round(1)
    newest = "page.find(plot => plot.key === 'accuracy-against-rounds')?.data.at(-1).x.at(-1)"
    with serving(tmp_path) as address, Browser() as browser:
        page = browser.open(address)
        wait_for(page, "document.querySelectorAll('#runs td input').length", 2)
        wait_for(page, newest, 1)  # the live run is opened first
        live.round(2)
        wait_for(page, newest, 2)
        wait_for(page, "document.querySelector('#runs tr.running').cells[6].textContent", "2 of 3")
        assert page.run("document.querySelector('#runs tr.running').cells[3].textContent") == PAYLOADS[1]
        page.run("document.querySelectorAll('#runs td input:not(:checked)')[0].click()")
        wait_for(page, "page.find(plot => plot.key === 'accuracy-against-rounds').data.length", 2)
        page.run("get('filter').value = 'done'; get('filter').dispatchEvent(new Event('input'))")
        assert page.run("document.querySelectorAll('#runs td input').length") == 1
        assert page.run("location.search") == ""
        assert page.run("window.hit === undefined")
        assert page.problems == []
        host = address.split("/?")[0]
        assert [url for url in page.requests if not url.startswith((host, "data:", "blob:"))] == []
