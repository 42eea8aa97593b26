# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs: links out of docs/ (to examples, code, the changelog) become plain names of files.

In the repository they are links that can be followed; on the site there is nothing to follow.
"""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)#]+?)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links that leave the folder docs/."""
    depth = page.file.src_uri.count("/")

    def plain(match: re.Match[str]) -> str:
        leaves = match[0].count("../") > depth
        return f"{match[1]} (`{match[2]}`)" if leaves else match[0]

    return OUTSIDE.sub(plain, markdown)
