// SPDX-License-Identifier: Apache-2.0
// Dropout with the random numbers of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). A random number depends only on the seed, step, layer, place in the batch and unit: there is no state.
#pragma once
#include <stdint.h>

namespace feddag {

inline void philox(const uint32_t counter[4], uint64_t seed, uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

// scale[unit] is 0 with the given probability, else 1 / (1 - probability).
inline void dropout_scales(uint64_t seed, uint32_t step, uint32_t layer, uint32_t place, double probability, int units,
                           float* scale) {
  const uint64_t dropped = (uint64_t)(probability * 4294967296.0);
  const float kept = probability < 1.0 ? (float)(1.0 / (1.0 - probability)) : 0.f;
  for (int unit = 0; unit < units; unit += 4) {
    const uint32_t counter[4] = {(uint32_t)unit / 4, place, layer, step};
    uint32_t random[4];
    philox(counter, seed, random);
    for (int i = 0; i < 4 && unit + i < units; i++) scale[unit + i] = random[i] < dropped ? 0.f : kept;
  }
}

}  // namespace feddag
