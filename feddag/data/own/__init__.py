# SPDX-License-Identifier: Apache-2.0
"""Your own data: read from files that may be odd or hostile, checked as a whole, made into one dataset."""
