# SPDX-License-Identifier: Apache-2.0
"""Privacy: what leaves a client, protected how, at which price; see docs/privacy.md."""
