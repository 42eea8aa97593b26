// SPDX-License-Identifier: Apache-2.0
// A vector of FEDDAG_LANES floats, written with the vector extensions of GCC and Clang. The compiler makes AVX-512, AVX2,
// SSE or NEON code of the same source, and every number of lanes can be tested on every machine.
//
// Everything here and in the kernels has internal linkage. These files are compiled once per instruction set. If two
// compilations exported the same function, the linker could take the AVX-512 version for processors without AVX-512.
#pragma once
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#ifndef FEDDAG_LANES
#error "the build must define FEDDAG_LANES (4, 8 or 16)"
#endif

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

#if defined(__AVX512F__) || defined(__aarch64__)
#define FEDDAG_REGISTERS 32
#else
#define FEDDAG_REGISTERS 16
#endif

constexpr int LANES = FEDDAG_LANES;
// The number of vectors that a kernel accumulates in registers; the other registers hold operands.
constexpr int ACCUMULATORS = FEDDAG_REGISTERS == 32 && LANES <= 16 ? 24 : 12;

typedef float Vec __attribute__((vector_size(4 * FEDDAG_LANES)));
typedef int32_t IntVec __attribute__((vector_size(4 * FEDDAG_LANES)));
typedef float LooseVec __attribute__((vector_size(4 * FEDDAG_LANES), aligned(4), may_alias));
typedef int32_t LooseIntVec __attribute__((vector_size(4 * FEDDAG_LANES), aligned(4), may_alias));

INLINE Vec load(const float* p) { return *(const LooseVec*)p; }
INLINE void store(float* p, Vec v) { *(LooseVec*)p = v; }
INLINE IntVec load_ints(const int32_t* p) { return *(const LooseIntVec*)p; }
INLINE void store_ints(int32_t* p, IntVec v) { *(LooseIntVec*)p = v; }
INLINE Vec all(float x) { return x - Vec{}; }  // x in every lane (x - 0 is x, bit for bit)
INLINE IntVec all_ints(int32_t x) { return x + IntVec{}; }

// Lane i of the result is lane which[i] of the 2 * LANES lanes of `low` and `high`; only the lowest bits of which[i] count.
INLINE Vec pick(Vec low, Vec high, IntVec which) {
#if defined(__AVX512F__) && FEDDAG_LANES == 16
  return (Vec)_mm512_permutex2var_ps((__m512)low, (__m512i)which, (__m512)high);
#else
  float lanes[2 * LANES];
  store(lanes, low), store(lanes + LANES, high);
  Vec picked;
  UNROLL for (int i = 0; i < LANES; i++) picked[i] = lanes[which[i] & (2 * LANES - 1)];
  return picked;
#endif
}

#if FEDDAG_LANES == 16
constexpr IntVec LANE_NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
constexpr IntVec LANE_NUMBERS{};  // of no use
#endif

// Stores the lanes where `chosen` is -1 (not 0) side by side; returns their number. May write LANES values in any case.
INLINE int store_chosen(IntVec chosen, IntVec ints, Vec floats, int32_t* to_ints, float* to_floats) {
#if defined(__AVX512F__) && FEDDAG_LANES == 16
  const __mmask16 mask = _mm512_test_epi32_mask((__m512i)chosen, (__m512i)chosen);
  store_ints(to_ints, (IntVec)_mm512_maskz_compress_epi32(mask, (__m512i)ints));
  store(to_floats, (Vec)_mm512_maskz_compress_ps(mask, (__m512)floats));
  return __builtin_popcount(mask);
#else
  int count = 0;
  for (int i = 0; i < LANES; i++) {
    to_ints[count] = ints[i], to_floats[count] = floats[i];
    count += chosen[i] != 0;
  }
  return count;
#endif
}

// Stores the first n lanes of v (n < LANES) and does not write to the memory after them.
INLINE void store_first(float* p, Vec v, int n) {
  float lanes[LANES];
  store(lanes, v);
  const float* from = lanes;
  if (LANES > 8 && (n & 8)) { __builtin_memcpy(p, from, 32); p += 8; from += 8; }
  if (LANES > 4 && (n & 4)) { __builtin_memcpy(p, from, 16); p += 4; from += 4; }
  if (n & 2) { __builtin_memcpy(p, from, 8); p += 2; from += 2; }
  if (n & 1) { __builtin_memcpy(p, from, 4); }
}

typedef float Four __attribute__((vector_size(16)));
typedef float LooseFour __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__clang__)
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (int __attribute__((vector_size(16)))){i, j, k, l})
#endif

// The sum of the lanes for each of four vectors, always in the same order.
INLINE Four sum_lanes_of_four(Vec a, Vec b, Vec c, Vec d) {
  Four quarter[4][LANES / 4];
  __builtin_memcpy(quarter[0], &a, sizeof(Vec));
  __builtin_memcpy(quarter[1], &b, sizeof(Vec));
  __builtin_memcpy(quarter[2], &c, sizeof(Vec));
  __builtin_memcpy(quarter[3], &d, sizeof(Vec));
  Four sum[4];
  UNROLL for (int i = 0; i < 4; i++) {
    sum[i] = quarter[i][0];
    UNROLL for (int j = 1; j < LANES / 4; j++) sum[i] += quarter[i][j];
  }
  const Four ab = SHUFFLE(sum[0], sum[1], 0, 4, 1, 5) + SHUFFLE(sum[0], sum[1], 2, 6, 3, 7);
  const Four cd = SHUFFLE(sum[2], sum[3], 0, 4, 1, 5) + SHUFFLE(sum[2], sum[3], 2, 6, 3, 7);
  return SHUFFLE(ab, cd, 0, 1, 4, 5) + SHUFFLE(ab, cd, 2, 3, 6, 7);
}

// Transposes 4 x 4 floats.
INLINE void transpose_four(const float* from, int64_t from_row, float* to, int64_t to_row) {
  const Four a = *(const LooseFour*)from, b = *(const LooseFour*)(from + from_row);
  const Four c = *(const LooseFour*)(from + 2 * from_row), d = *(const LooseFour*)(from + 3 * from_row);
  const Four ac_low = SHUFFLE(a, c, 0, 4, 1, 5), ac_high = SHUFFLE(a, c, 2, 6, 3, 7);
  const Four bd_low = SHUFFLE(b, d, 0, 4, 1, 5), bd_high = SHUFFLE(b, d, 2, 6, 3, 7);
  *(LooseFour*)to = SHUFFLE(ac_low, bd_low, 0, 4, 1, 5);
  *(LooseFour*)(to + to_row) = SHUFFLE(ac_low, bd_low, 2, 6, 3, 7);
  *(LooseFour*)(to + 2 * to_row) = SHUFFLE(ac_high, bd_high, 0, 4, 1, 5);
  *(LooseFour*)(to + 3 * to_row) = SHUFFLE(ac_high, bd_high, 2, 6, 3, 7);
}

INLINE float sum_lanes(Vec v) { return sum_lanes_of_four(v, Vec{}, Vec{}, Vec{})[0]; }
