# SPDX-License-Identifier: Apache-2.0
"""The dashboard: a local page that follows running and finished runs. It only reads."""
