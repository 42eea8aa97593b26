# SPDX-License-Identifier: Apache-2.0
"""`python -m feddag` is the command line."""

from feddag.cli.main import main

main()
