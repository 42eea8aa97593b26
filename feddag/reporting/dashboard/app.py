# SPDX-License-Identifier: Apache-2.0
"""The dashboard's server: read-only, for one user of this machine.

Every request must carry the token that was printed at the start (the first address sets it as a cookie), must
name a host that the server listens on, and must not come from another site's page.
"""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from feddag.reporting.dashboard.watch import Watch
from feddag.reporting.pages.render import plotly_script, plots_json, render, render_text, static
from feddag.reporting.pages.report.run_data import RunData
from feddag.reporting.pages.report.write import SECTIONS, numbered_plots
from feddag.reporting.pages.section import Block, Section

MOST_CHOSEN = 8  # runs side by side
LINES_SHOWN = 200
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(watch: Watch, token: str, hosts: Sequence[str]) -> Starlette:
    """The server's application; `hosts` are the values of Host that it answers to, with the port."""
    cookie = cookie_name(hosts)

    async def first_page(request: Request) -> Response:
        answer = HTMLResponse(render("dashboard.html", {"root": str(watch.root)}))
        answer.set_cookie(cookie, token, httponly=True, samesite="strict")
        return answer

    async def runs(request: Request) -> Response:
        since = request.query_params.get("since", "0")
        return JSONResponse(watch.news(int(since) if since.isdecimal() and len(since) < 16 else 0))

    async def sections(request: Request) -> Response:
        ids = request.query_params.get("ids", "").split(",")[:MOST_CHOSEN]
        return JSONResponse(await run_in_threadpool(page_of, watch, ids))

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            return PlainTextResponse("there is no such file", 404)
        kind, text = FILES[name]
        return Response(text(), media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    routes = [Route("/", first_page), Route("/api/runs", runs), Route("/api/sections", sections)]
    app = Starlette(routes=[*routes, Route("/static/{name}", file)])
    return _guarded(app, token, hosts)


FILES: dict[str, tuple[str, Callable[[], str]]] = {
    "plotly.js": ("text/javascript", plotly_script),
    "plots.js": ("text/javascript", lambda: static("plots.js")),
    "dashboard.js": ("text/javascript", lambda: static("dashboard.js")),
    "page.css": ("text/css", lambda: static("page.css")),
}


def page_of(watch: Watch, ids: Sequence[str]) -> dict[str, Any]:
    """The sections about some runs as escaped HTML, and their plots."""
    runs = [run for id_ in dict.fromkeys(ids) if (run := watch.data(id_)) is not None]
    if not runs:
        return {"html": "", "plots": []}
    makers = [maker for maker in SECTIONS if maker.key != "runs"]
    made = [section for maker in makers if (section := maker.section(runs)) is not None]
    made.append(Section("log", "Log", [_log(run, len(runs) > 1) for run in runs]))
    plots, first_plots = numbered_plots(made)
    html = render_text("sections.html", {"sections": made, "first_plots": first_plots})
    return {"html": html, "plots": plots_json(plots)}


def _log(run: RunData, several: bool) -> Block:
    newest = "\n".join(run.log.lines[: -LINES_SHOWN - 1 : -1])
    return Block(["The newest line comes first."], code=newest, heading=run.label if several else "")


def _guarded(app: Starlette, token: str, hosts: Sequence[str]) -> Starlette:
    """Refuse foreign hosts, foreign origins, other methods and requests without the token."""

    async def guard(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        reason = refusal(request, token, hosts)
        answer = PlainTextResponse(*reason) if reason else await call(request)
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    app.add_middleware(BaseHTTPMiddleware, dispatch=guard)
    return app


def cookie_name(hosts: Sequence[str]) -> str:
    """Cookies are shared by all ports of a host: each dashboard has its own."""
    return f"feddag-dashboard-{hosts[0].rpartition(':')[2]}"


def refusal(request: Request, token: str, hosts: Sequence[str]) -> tuple[str, int] | None:
    """Why a request is not answered, and the status; None for a request that is."""
    host = request.headers.get("host", "").lower()
    if host not in hosts or len(request.headers.getlist("host")) != 1:
        return "this host is not served here", 421
    origin = request.headers.get("origin")
    if origin is not None and (urlsplit(origin).scheme != "http" or urlsplit(origin).netloc.lower() != host):
        return "requests from other sites are refused", 403
    opened = request.url.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"  # a link
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not opened:
        return "requests from other sites are refused", 403
    if request.method not in ("GET", "HEAD"):
        return "the dashboard only reads: GET is expected", 405
    given = request.query_params.get("token") or request.cookies.get(cookie_name(hosts), "")
    if not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
        return "open the address that feddag dashboard printed: it holds the token", 403
    return None
