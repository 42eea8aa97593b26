# SPDX-License-Identifier: Apache-2.0
"""feddag: clustered federated learning, from a laptop run to a deployment, with one algorithm code."""

__version__ = "0.1.0"
