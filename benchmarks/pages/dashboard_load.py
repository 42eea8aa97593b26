# SPDX-License-Identifier: Apache-2.0
"""What the dashboard costs with 50 runs, 5 of them live, and how soon a new round is on the page.

    python -m benchmarks.pages.dashboard_load [SECONDS]

A real `feddag dashboard` runs in its own process and a headless Chromium shows its page, with one of the live
runs opened. Every second each live run gets a new round of 100 clients. Printed are the processor time of the
server as a share of one core, and the time from the writing of a round to its appearance in the list and in
the plot.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.reporting.run_folders import FolderMaker, run_folder
from tests.support.browser import Browser

FINISHED, LIVE, CLIENTS, ROUNDS = 45, 5, 100, 1000
CELLS = "[...document.querySelectorAll('#runs tr.running td:nth-child(7)')]"
IN_LIST = f"{CELLS}.map(cell => parseInt(cell.textContent))"
IN_PLOT = (
    "(page.find(plot => plot.key === 'accuracy-against-rounds') || {data: [{x: [0]}]}).data.at(-1).x.at(-1)"
)


def processor_seconds(pid: int) -> float:
    """Processor time of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Make the runs, start the server, write rounds, measure."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for k in range(FINISHED):
            run_folder(root / "done" / f"run-{k:02d}", clients=CLIENTS, rounds=20, clusters=4, seed=k)
        live = [FolderMaker(root / "live" / f"run-{k}", CLIENTS, ROUNDS, 4, seed=k) for k in range(LIVE)]
        for run in live:
            run.start()
        command = [sys.executable, "-m", "feddag", "dashboard", str(root), "--port", "0"]
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline() + server.stdout.readline())
            assert address is not None
            with Browser() as browser:
                measure(browser, address[0], server.pid, live, seconds)
        finally:
            server.terminate()
            server.wait()


def measure(browser: Browser, address: str, pid: int, live: list[FolderMaker], seconds: float) -> None:
    """Write a round to every live run each second and look until the page shows it."""
    page = browser.open(address)
    while len(page.run(IN_LIST)) < LIVE:
        time.sleep(0.1)
    time.sleep(3)  # everything has been read once
    listed, plotted = [], []
    begun, used = time.perf_counter(), processor_seconds(pid)
    round_ = 0
    while time.perf_counter() - begun < seconds:
        round_ += 1
        for run in live:
            run.round(round_)
        written = time.perf_counter()
        while min(page.run(IN_LIST), default=0) < round_:
            time.sleep(0.02)
        listed.append(time.perf_counter() - written)
        while page.run(IN_PLOT) < round_:
            time.sleep(0.02)
        plotted.append(time.perf_counter() - written)
        time.sleep(max(0.0, 1 - (time.perf_counter() - written)))
    share = (processor_seconds(pid) - used) / (time.perf_counter() - begun)
    print(f"runs {FINISHED + LIVE}, live {LIVE}, rounds written {LIVE * round_}")
    print(f"server, share of a core      {share:.1%}")
    print(f"in the list after, s         mean {sum(listed) / round_:.2f}, most {max(listed):.2f}")
    print(f"in the plot after, s         mean {sum(plotted) / round_:.2f}, most {max(plotted):.2f}")
    print(f"errors on the page           {len(page.problems)}")


if __name__ == "__main__":
    main()
