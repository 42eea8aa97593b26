# SPDX-License-Identifier: Apache-2.0
"""The report of runs: one page, one file per section."""
