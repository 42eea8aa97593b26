// SPDX-License-Identifier: Apache-2.0
// The functions that library.py calls through ctypes. ctypes releases the interpreter lock during a call.
#include <stdint.h>
#include <string.h>

#include <new>

#include "dropout.h"
#include "network.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

// One table of kernels per instruction set.
#define ISA(name, usable) extern "C" const feddag::Kernels feddag_kernels_##name;
#include "isas.h"
#undef ISA

namespace {

struct Isa {
  const char* name;
  const feddag::Kernels* kernels;
  bool (*usable)();
};

const Isa isas[] = {
#define ISA(name, usable) {#name, &feddag_kernels_##name, [] { return (bool)(usable); }},
#include "isas.h"
#undef ISA
};
constexpr int count = sizeof(isas) / sizeof(isas[0]);

// While a kernel runs, subnormal numbers become zero: they do not change results visibly, but computing with them
// can be 80 times slower.
class FlushSubnormals {
#if defined(__x86_64__) || defined(__i386__)
  unsigned saved_ = _mm_getcsr();
 public:
  FlushSubnormals() { _mm_setcsr(saved_ | 0x8040); }
  ~FlushSubnormals() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  uint64_t saved_;
 public:
  FlushSubnormals() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(saved_ | (1ull << 24)));
  }
  ~FlushSubnormals() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#endif
};

}  // namespace

#define API extern "C" __attribute__((visibility("default")))
using feddag::Network;

API int feddag_isa_count() { return count; }
API const char* feddag_isa_name(int i) { return isas[i].name; }
API int feddag_isa_usable(int i) { return isas[i].usable(); }

// The sizes of the structures, so that library.py can check that its declarations are the same.
API void feddag_sizes(int64_t out[4]) {
  out[0] = sizeof(feddag::StageSpec), out[1] = sizeof(feddag::NetworkSpec);
  out[2] = sizeof(feddag::Inputs), out[3] = sizeof(feddag::TrainingJob);
}

// A new network, or null if there is not enough memory.
API void* feddag_open(const feddag::NetworkSpec* spec, const feddag::StageSpec* stages, int isa, int rows, int training) {
  try {
    return new Network(*spec, stages, *isas[isa].kernels, rows, training != 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
API void feddag_close(void* network) { delete static_cast<Network*>(network); }
API void feddag_pack(void* network, const float* vector) { static_cast<Network*>(network)->pack(vector); }
API void feddag_unpack(void* network, float* vector) { static_cast<Network*>(network)->unpack(vector); }

// The number of batches done, or -1 if there is not enough memory.
API int64_t feddag_train(void* network, const feddag::Inputs* inputs, const feddag::TrainingJob* job, int64_t first,
                         int64_t last, double seconds, double* losses) {
  FlushSubnormals guard;
  try {
    return static_cast<Network*>(network)->train(*inputs, *job, first, last, seconds, losses);
  } catch (const std::bad_alloc&) {
    return -1;
  }
}
API double feddag_gradient(void* network, const feddag::Inputs* inputs, const feddag::TrainingJob* job, int64_t batch,
                           float* vector) {
  FlushSubnormals guard;
  return static_cast<Network*>(network)->gradient(*inputs, *job, batch, vector);
}
API void feddag_forward(void* network, const feddag::Inputs* inputs, int64_t first, int64_t count, int what, float* out) {
  FlushSubnormals guard;
  static_cast<Network*>(network)->forward(*inputs, first, count, what, out);
}

// Only the tests call the next two functions: they compare the random numbers of dropout with published values.
API void feddag_philox(const uint32_t counter[4], uint64_t seed, uint32_t out[4]) { feddag::philox(counter, seed, out); }
API void feddag_dropout_scales(uint64_t seed, uint32_t step, uint32_t layer, uint32_t place, double probability,
                               int units, float* out) {
  feddag::dropout_scales(seed, step, layer, place, probability, units, out);
}
