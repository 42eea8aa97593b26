// SPDX-License-Identifier: Apache-2.0
// The instruction sets, best first: ISA(name, can this processor run it?). build.py has the compiler flags.
// There is no include guard, because api.cpp includes this list twice.
#if defined(__x86_64__)
ISA(avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
ISA(avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#endif
ISA(generic, true)  // 4 lanes: SSE2, NEON
#ifdef FEDDAG_TEST_LANES
ISA(generic16, true)  // 16 lanes on every processor; slow; the tests use it to check the 16-lane code
#endif
