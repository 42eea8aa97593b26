#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the kernels' tests with AddressSanitizer and UndefinedBehaviorSanitizer: a build of its own, whose
# violations end the test process. Usage: tests/native/sanitize.sh [python] [pytest arguments]
set -eu
python=${1:-python}
[ $# -gt 0 ] && shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m feddag.native.build --sanitize --output "$folder/_kernels.so"
runtime=$(${CXX:-c++} -print-file-name=libasan.so)
export FEDDAG_NATIVE_LIBRARY="$folder/_kernels.so" LD_PRELOAD="$runtime"
# Python and torch keep memory until the end of the process: only the kernels' own errors count.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export OMP_NUM_THREADS=1
"$python" -m pytest -q -p no:cacheprovider tests/native/test_gradients.py tests/native/test_training.py \
  -k "not ctrl_c" "$@"
