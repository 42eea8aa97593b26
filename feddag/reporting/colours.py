# SPDX-License-Identifier: Apache-2.0
"""The colours of clusters, the same in every picture and on every page."""

PALETTE = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#994455", "#117733",
    "#ddaa33", "#332288", "#88ccee", "#999933",
)  # fmt: skip
GREY = "#bbbbbb"  # for clients in no cluster


def cluster_colour(z: int) -> str:
    """The colour of cluster z. Colours repeat after twelve clusters; -1 means no cluster."""
    return GREY if z < 0 else PALETTE[z % len(PALETTE)]


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"
