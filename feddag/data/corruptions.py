# SPDX-License-Identifier: Apache-2.0
"""Corruptions."""

CORRUPTIONS: dict[str, str] = {}
