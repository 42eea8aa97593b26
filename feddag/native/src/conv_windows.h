// SPDX-License-Identifier: Apache-2.0
// The gradient of the input of a wide convolution with kernels of 3 x 3 before a pooling of 2 x 2. The 4 x 4 inputs of one
// pooling window stay in registers while all live pixels of the window add to them. Which of the 16 a pixel adds to
// depends on its place in the window, so the live pixels of a window are listed by place: four loops without a choice.
#pragma once
#include <string.h>

#include "kernels.h"
#include "lanes.h"

namespace {
using feddag::ConvShape;
using feddag::Live;
using feddag::WINDOW_CHANNELS;

constexpr int TAPS = 9;  // weights of one output channel and one input channel

// Lists the live pixels of one window, `channels` output channels, by place: what they read of the weights, and gradients.
// Returns where the next list begins.
INLINE int64_t list_window(const int32_t* patch, const float* grad_out, int channels, int32_t corner, int32_t next_row,
                           int32_t* places, float* gradients, int* counts) {
  int64_t listed = 0;
  for (int place = 0; place < 4; place++) {
    const IntVec pixel = all_ints(corner + place / 2 * next_row + place % 2);
    const int64_t begin = listed;
    IntVec weights = LANE_NUMBERS * (TAPS * LANES);
    for (int o = 0; o < channels; o += LANES, weights += LANES * TAPS * LANES)
      listed += store_chosen(load_ints(patch + o) == pixel, weights, load(grad_out + o), places + listed, gradients + listed);
    counts[place] = (int)(listed - begin);
  }
  return listed;
}

// Adds the live pixels of one place (DY, DX) of a window to the inputs that they read.
template <int DY, int DX>
INLINE void add_place(const int32_t* places, const float* gradients, int count, const float* weights, Vec (&sum)[4][4]) {
  for (int i = 0; i < count; i++) {
    const Vec d = all(gradients[i]);
    const float* w = weights + places[i];
    UNROLL for (int y = 0; y < 3; y++)
      UNROLL for (int x = 0; x < 3; x++) sum[DY + y][DX + x] += d * load(w + (y * 3 + x) * LANES);
  }
}

// `input`: the gradient of the window's first pixel, LANES channels; `row`: distance of rows. Returns the length of the lists.
INLINE int64_t add_window(const int32_t* places, const float* gradients, const int* counts, const float* weights, float* input,
                          int64_t row) {
  Vec sum[4][4];
  UNROLL for (int y = 0; y < 4; y++)
    UNROLL for (int x = 0; x < 4; x++) sum[y][x] = load(input + y * row + x * LANES);
  int64_t i = 0;
  add_place<0, 0>(places, gradients, counts[0], weights, sum), i += counts[0];
  add_place<0, 1>(places + i, gradients + i, counts[1], weights, sum), i += counts[1];
  add_place<1, 0>(places + i, gradients + i, counts[2], weights, sum), i += counts[2];
  add_place<1, 1>(places + i, gradients + i, counts[3], weights, sum), i += counts[3];
  UNROLL for (int y = 0; y < 4; y++)
    UNROLL for (int x = 0; x < 4; x++) store(input + y * row + x * LANES, sum[y][x]);
  return i;
}

// Overwrites grad_in of a group of samples. Memory: live.block holds one block of input channels of the gradient, the
// weights between it and WINDOW_CHANNELS output channels, and the lengths of the lists.
void input_gradient_by_windows(const ConvShape* s, int samples, const int32_t* patch, const float* grad_out,
                               const float* weight, float* grad_in, Live live) {
  const int64_t C = s->in_channels, pixels = feddag::input_pixels(*s), row = s->in_row / C * LANES;
  const int64_t windows = (int64_t)s->out_h * s->out_w, per_channel = 3 * (int64_t)s->run_padded;
  const int32_t next_row = (int32_t)(s->in_row / C);
  float* block = live.block;
  float* weights = block + samples * pixels * LANES;
  int* counts = (int*)(weights + WINDOW_CHANNELS * TAPS * LANES);

  int64_t listed = 0;
  int* count = counts;
  for (int first = 0; first < s->out_channels; first += WINDOW_CHANNELS) {
    const int channels = s->out_channels - first < WINDOW_CHANNELS ? s->out_channels - first : WINDOW_CHANNELS;
    for (int b = 0; b < samples; b++)
      for (int py = 0; py < s->out_h; py++)
        for (int px = 0; px < s->out_w; px++, count += 4)
          listed += list_window(patch + (b * windows + py * s->out_w + px) * s->out_padded + first,
                                grad_out + b * s->out_sample + s->out_origin + py * s->out_row + (int64_t)px * s->out_channels + first,
                                channels, 2 * (py * next_row + px), next_row, live.patch + listed, live.gradient + listed, count);
  }
  for (int64_t c = 0; c < C; c += LANES) {
    memset(block, 0, samples * pixels * LANES * sizeof(float));
    int64_t done = 0;
    count = counts;
    for (int first = 0; first < s->out_channels; first += WINDOW_CHANNELS) {
      for (int o = 0; o < WINDOW_CHANNELS && first + o < s->out_channels; o++)
        UNROLL for (int k = 0; k < TAPS; k++)
          store(weights + (o * TAPS + k) * LANES, load(weight + (first + o) * per_channel + k / 3 * s->run_padded + k % 3 * C + c));
      for (int b = 0; b < samples; b++)
        for (int py = 0; py < s->out_h; py++)
          for (int px = 0; px < s->out_w; px++, count += 4)
            done += add_window(live.patch + done, live.gradient + done, count, weights,
                               block + b * pixels * LANES + 2 * py * row + 2 * px * LANES, row);
    }
    for (int64_t i = 0; i < samples; i++)
      for (int64_t p = 0; p < pixels; p++)
        store(grad_in + i * s->in_sample + p * C + c, load(block + (i * pixels + p) * LANES));
  }
}

}  // namespace
