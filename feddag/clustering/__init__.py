# SPDX-License-Identifier: Apache-2.0
"""Clustering by class-wise subspaces and update directions: arrays in, arrays out."""
