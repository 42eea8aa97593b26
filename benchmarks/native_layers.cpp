// SPDX-License-Identifier: Apache-2.0
// One thread, the convolutions of the 32 x 32 network: microseconds per sample by layer and direction.
// native_layers.py compiles this with the kernels of one or two working copies.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels.cpp"

static double seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static float* numbers(int64_t n) {
  float* p = (float*)aligned_alloc(64, (n * 4 + 255) / 64 * 64);
  for (int64_t i = 0; i < n; i++) p[i] = (rand() % 2000 - 1000) / 1000.f;
  return p;
}

int main(int, char** argv) {
  const int samples = atoi(argv[1]);
  const struct { int in, out, size; } layers[] = {{3, 64, 32}, {64, 128, 15}, {128, 256, 6}};
  for (const auto& layer : layers) {
    srand(1);
    ConvShape k{};
    k.in_channels = layer.in, k.out_channels = layer.out, k.kernel_h = k.kernel_w = 3, k.pool_h = k.pool_w = 2;
    k.out_padded = (layer.out + LANES - 1) / LANES * LANES;
    k.run = 3 * layer.in, k.run_padded = (k.run + LANES - 1) / LANES * LANES;
    k.relu = 1, k.in_row = layer.size * layer.in;
    k.in_sample = (layer.size * k.in_row + LANES - 1) / LANES * LANES;
    k.out_h = k.out_w = (layer.size - 2) / 2, k.out_row = k.out_w * layer.out, k.out_sample = k.out_h * k.out_row;
    const int64_t weights = (int64_t)layer.out * 3 * k.run_padded, inputs = samples * k.in_sample;
    const int64_t outputs = samples * k.out_sample, windows = (int64_t)k.out_h * k.out_w;
    float *in = numbers(inputs), *weight = numbers(weights), *grad_weight = numbers(weights), *grad_in = numbers(inputs);
    float *out = numbers(outputs), *grad_out = numbers(outputs), *bias = numbers(k.out_padded);
    float *grad_bias = numbers(k.out_padded), *arranged = numbers((int64_t)16 * k.run * k.out_padded);
    float* scratch = numbers(1 << 21);
    int32_t* patch = (int32_t*)numbers(samples * windows * k.out_padded);
    Live live{};
    live.room = 64 * windows + 1;
    live.patch = (int32_t*)numbers(live.room * layer.out), live.gradient = numbers(live.room * layer.out);
    live.count = (int*)numbers(layer.out);
#ifdef WITH_BLOCK
    live.block = numbers(1 << 16);
#endif
    double arrange = 0, forward = 0, backward = 0;
    int64_t done = 0, alive = 0;
    for (const double start = seconds(); seconds() - start < 0.5; done += samples) {
      const double a = seconds();
      conv_arrange(&k, weight, arranged);
      const double b = seconds();
      conv_forward(&k, samples, in, arranged, bias, out, patch, scratch);
      const double c = seconds();
      conv_backward(&k, samples, in, patch, grad_out, weight, grad_weight, grad_bias, layer.in > 3 ? grad_in : nullptr, live);
      const double d = seconds();
      arrange += b - a, forward += c - b, backward += d - c;
    }
    for (int64_t i = 0; i < outputs; i++) alive += out[i] > 0;
    const double dense = windows * 4.0 * layer.out * 9 * layer.in;  // multiply-adds of one direction
    printf("%d->%d %.3f %.3f %.3f %.0f %.4f\n", layer.in, layer.out, arrange / done * 1e6, forward / done * 1e6,
           backward / done * 1e6, dense, (double)alive / outputs);
  }
}
