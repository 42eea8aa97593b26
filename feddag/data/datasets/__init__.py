# SPDX-License-Identifier: Apache-2.0
"""One file per dataset, each with `load(config) -> Dataset`."""
