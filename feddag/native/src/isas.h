// SPDX-License-Identifier: Apache-2.0
// The instruction sets, best first: ISA(name, usable on this processor). build.py gives each its flags.
// (No include guard: api.cpp reads this list twice.)
#if defined(__x86_64__)
ISA(avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
ISA(avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#endif
ISA(generic, true)  // 4 lanes: SSE2, NEON
#ifdef FEDDAG_TEST_LANES
ISA(generic16, true)  // 16 lanes on any processor: slow, for testing the code of avx512
#endif
