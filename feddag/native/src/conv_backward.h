// SPDX-License-Identifier: Apache-2.0
// The backward pass of a convolution with its ReLU and pooling.
// Pooling passes the gradient to one pixel per window, and ReLU removes more: most gradients of the convolution's
// output are zero. The other pixels are called live. The backward pass uses a list of the live pixels only.
#pragma once
#include <string.h>

#include "conv_first.h"
#include "conv_windows.h"
#include "kernels.h"
#include "lanes.h"

namespace {
using feddag::ConvShape;
using feddag::Live;

// Lists the live pixels of CHANNELS channels from `first` on, in a few samples. The list of channel o begins at
// o * live.room and has live.count[o] entries. Neighbours in a list belong to different samples if possible: their
// patches do not overlap, so the processor can add to both at the same time.
// A place in a list is `start of the sample + pixel * scale`, in floats of the memory that the kernel will read.
template <int CHANNELS>
INLINE void list_channels(const ConvShape* s, int samples, int first, const int32_t* patch, const float* grad_out,
                          int32_t sample, int32_t scale, Live live) {
  const int64_t patch_sample = (int64_t)s->out_h * s->out_w * s->out_padded;
  int32_t* patches[CHANNELS];
  float* gradients[CHANNELS];
  int64_t count[CHANNELS] = {};
  UNROLL for (int o = 0; o < CHANNELS; o++) {
    patches[o] = live.patch + (first + o) * live.room;
    gradients[o] = live.gradient + (first + o) * live.room;
  }
  for (int py = 0; py < s->out_h; py++)
    for (int px = 0; px < s->out_w; px++) {
      const float* d = grad_out + s->out_origin + py * s->out_row + (int64_t)px * s->out_channels + first;
      const int32_t* from = patch + ((int64_t)py * s->out_w + px) * s->out_padded + first;
      int32_t start = 0;
      for (int b = 0; b < samples; b++) {
        UNROLL for (int o = 0; o < CHANNELS; o++) {  // no branch: the next pixel overwrites one that is not live
          patches[o][count[o]] = start + from[o] * scale;
          gradients[o][count[o]] = d[o];
          count[o] += from[o] >= 0;
        }
        start += sample, from += patch_sample, d += s->out_sample;
      }
    }
  UNROLL for (int o = 0; o < CHANNELS; o++) live.count[first + o] = (int)count[o];
}

INLINE void list_live(const ConvShape* s, int samples, const int32_t* patch, const float* grad_out, int32_t sample,
                      int32_t scale, Live live) {
  int o = 0;
  for (; o + 4 <= s->out_channels; o += 4) list_channels<4>(s, samples, o, patch, grad_out, sample, scale, live);
  if (o + 2 <= s->out_channels) list_channels<2>(s, samples, o, patch, grad_out, sample, scale, live), o += 2;
  if (o < s->out_channels) list_channels<1>(s, samples, o, patch, grad_out, sample, scale, live);
}

INLINE float sum_list(const float* values, int count) {
  Vec sum{};
  float rest = 0;
  int i = 0;
  for (; i + LANES <= count; i += LANES) sum += load(values + i);
  for (; i < count; i++) rest += values[i];
  return sum_lanes(sum) + rest;
}

// grad_weight += gradient * input patch for all live pixels, in ROWS kernel rows and VECTORS * LANES places of the run
template <int ROWS, int VECTORS>
INLINE void add_patches(const ConvShape* s, const int32_t* patches, const float* gradients, int count, const float* __restrict in,
                        float* __restrict grad_weight) {
  Vec sum[ROWS][VECTORS];
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < VECTORS; v++) sum[r][v] = load(grad_weight + r * s->run_padded + v * LANES);
  for (int i = 0; i < count; i++) {
    const Vec d = all(gradients[i]);
    const float* x = in + patches[i];
    UNROLL for (int r = 0; r < ROWS; r++, x += s->in_row)
      UNROLL for (int v = 0; v < VECTORS; v++) sum[r][v] += d * load(x + v * LANES);
  }
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < VECTORS; v++) store(grad_weight + r * s->run_padded + v * LANES, sum[r][v]);
}

// patch of grad_in += gradient * weight for all live pixels, in all kernel rows and VECTORS * LANES places of the run
template <int VECTORS>
INLINE void add_kernels(const ConvShape* s, const int32_t* patches, const float* gradients, int count, const float* __restrict weight,
                        float* __restrict grad_in) {
  for (int i = 0; i < count; i++) {
    const Vec d = all(gradients[i]);
    float* x = grad_in + patches[i];
    const float* w = weight;
    for (int kh = 0; kh < s->kernel_h; kh++, x += s->in_row, w += s->run_padded)
      UNROLL for (int v = 0; v < VECTORS; v++) store(x + v * LANES, load(x + v * LANES) + d * load(w + v * LANES));
  }
}

template <int VECTORS>
void backward_columns(const ConvShape* s, const int32_t* patches, const float* gradients, int count, const float* in, const float* weight,
                      float* grad_weight, float* grad_in) {
  constexpr int MOST = ACCUMULATORS / VECTORS;
  for (int kh = 0; kh < s->kernel_h;) {
    const float* x = in + kh * s->in_row;
    float* g = grad_weight + kh * s->run_padded;
    const int left = s->kernel_h - kh;
    if (MOST >= 5 && left >= 5) { add_patches<MOST >= 5 ? 5 : 1, VECTORS>(s, patches, gradients, count, x, g); kh += 5; }
    else if (MOST >= 3 && left >= 3) { add_patches<MOST >= 3 ? 3 : 1, VECTORS>(s, patches, gradients, count, x, g); kh += 3; }
    else if (MOST >= 2 && left >= 2) { add_patches<MOST >= 2 ? 2 : 1, VECTORS>(s, patches, gradients, count, x, g); kh += 2; }
    else { add_patches<1, VECTORS>(s, patches, gradients, count, x, g); kh += 1; }
  }
  if (grad_in) add_kernels<VECTORS>(s, patches, gradients, count, weight, grad_in);
}

void backward_by_runs(const ConvShape* s, int samples, const float* in, const int32_t* patch, const float* grad_out,
                   const float* weight, float* grad_weight, float* grad_bias, float* grad_in, Live live) {
  const int64_t group = feddag::backward_group(*s, LANES);
  const int64_t per_channel = (int64_t)s->kernel_h * s->run_padded;
  const int64_t pixels = (int64_t)s->out_h * s->out_w;
  if (grad_in) memset(grad_in, 0, samples * s->in_sample * sizeof(float));
  for (int64_t b = 0; b < samples; b += group) {
    const int here = (int)(samples - b < group ? samples - b : group);
    list_live(s, here, patch + b * pixels * s->out_padded, grad_out + b * s->out_sample, (int32_t)s->in_sample,
              s->in_channels, live);
    for (int o = 0; o < s->out_channels; o++) {
      const int32_t* patches = live.patch + o * live.room;
      const float* gradients = live.gradient + o * live.room;
      const int count = live.count[o];
      grad_bias[o] += sum_list(gradients, count);
      for (int c = 0; c < s->run_padded;) {  // c: place in the run
        const int left = (s->run_padded - c) / LANES;
        const float* x = in + b * s->in_sample + c;
        const float* w = weight + o * per_channel + c;
        float* gw = grad_weight + o * per_channel + c;
        float* gx = grad_in ? grad_in + b * s->in_sample + c : nullptr;
        if (left >= 12) { backward_columns<12>(s, patches, gradients, count, x, w, gw, gx); c += 12 * LANES; }
        else if (left >= 6) { backward_columns<6>(s, patches, gradients, count, x, w, gw, gx); c += 6 * LANES; }
        else if (left >= 4) { backward_columns<4>(s, patches, gradients, count, x, w, gw, gx); c += 4 * LANES; }
        else if (left >= 3) { backward_columns<3>(s, patches, gradients, count, x, w, gw, gx); c += 3 * LANES; }
        else if (left >= 2) { backward_columns<2>(s, patches, gradients, count, x, w, gw, gx); c += 2 * LANES; }
        else { backward_columns<1>(s, patches, gradients, count, x, w, gw, gx); c += LANES; }
      }
    }
  }
  // The lanes after the run are not weights: their sums contain values from outside the patch. Set them to zero.
  for (int64_t row = 0; row < (int64_t)s->out_channels * s->kernel_h; row++)
    for (int r = s->run; r < s->run_padded; r++) grad_weight[row * s->run_padded + r] = 0.f;
}

// ------------------------------------------------------------------------------------------------ many channels
// With many input channels, a group of samples does not fit into the first-level cache. Then one block of LANES input
// channels at a time is copied to [sample][pixel][input, gradient][LANES], all output channels use it, and its gradient
// is copied back. Where conv_windows.h computes the gradient of the input, the block has inputs only.

// For the live pixels of one output channel: grad_weight += gradient * input, grad_in += gradient * weight, for one
// block of input channels and all H x W places of the kernel. Distances: of weights weight_row and weight_column, of
// pixels `row` and (1 + WITH_INPUT) * LANES.
template <int H, int W, bool WITH_INPUT>
INLINE void block_pixels(const int32_t* patches, const float* gradients, int count, float* block, int64_t row,
                         const float* __restrict weight, int64_t weight_row, int64_t weight_column,
                         float* __restrict grad_weight) {
  Vec sum[H][W], w[H][W];
  UNROLL for (int y = 0; y < H; y++)
    UNROLL for (int x = 0; x < W; x++) {
      sum[y][x] = load(grad_weight + y * weight_row + x * weight_column);
      if (WITH_INPUT) w[y][x] = load(weight + y * weight_row + x * weight_column);
    }
  for (int i = 0; i < count; i++) {
    const Vec d = all(gradients[i]);
    float* patch = block + patches[i];
    UNROLL for (int y = 0; y < H; y++)
      UNROLL for (int x = 0; x < W; x++) {
        float* pixel = patch + y * row + x * (1 + WITH_INPUT) * LANES;
        sum[y][x] += d * load(pixel);
        if (WITH_INPUT) store(pixel + LANES, load(pixel + LANES) + d * w[y][x]);
      }
  }
  UNROLL for (int y = 0; y < H; y++)
    UNROLL for (int x = 0; x < W; x++) store(grad_weight + y * weight_row + x * weight_column, sum[y][x]);
}

template <int H, int W, bool WITH_INPUT>
void backward_blocks(const ConvShape* s, int samples, const float* in, const int32_t* patch, const float* grad_out,
                     const float* weight, float* grad_weight, float* grad_bias, float* grad_in, Live live) {
  constexpr int PIXEL = (1 + WITH_INPUT) * LANES;
  const int64_t group = feddag::backward_group(*s, LANES), C = s->in_channels;
  const int64_t per_channel = (int64_t)H * s->run_padded, windows = (int64_t)s->out_h * s->out_w;
  const int64_t pixels = feddag::input_pixels(*s), row = s->in_row / C * PIXEL;
  for (int64_t b = 0; b < samples; b += group) {
    const int here = (int)(samples - b < group ? samples - b : group);
    const int32_t* where = patch + b * windows * s->out_padded;
    const float* d = grad_out + b * s->out_sample;
    list_live(s, here, where, d, (int32_t)(pixels * PIXEL), PIXEL, live);
    for (int o = 0; o < s->out_channels; o++) grad_bias[o] += sum_list(live.gradient + o * live.room, live.count[o]);
    for (int64_t c = 0; c < C; c += LANES) {
      for (int64_t i = 0; i < here; i++)
        for (int64_t p = 0; p < pixels; p++) {
          store(live.block + (i * pixels + p) * PIXEL, load(in + (b + i) * s->in_sample + p * C + c));
          if (WITH_INPUT) store(live.block + (i * pixels + p) * PIXEL + LANES, Vec{});
        }
      for (int o = 0; o < s->out_channels; o++)
        block_pixels<H, W, WITH_INPUT>(live.patch + o * live.room, live.gradient + o * live.room, live.count[o], live.block,
                                       row, weight + o * per_channel + c, s->run_padded, C, grad_weight + o * per_channel + c);
      if (WITH_INPUT)
        for (int64_t i = 0; i < here; i++)
          for (int64_t p = 0; p < pixels; p++)
            store(grad_in + (b + i) * s->in_sample + p * C + c, load(live.block + (i * pixels + p) * PIXEL + LANES));
    }
    if (!WITH_INPUT && grad_in) input_gradient_by_windows(s, here, where, d, weight, grad_in + b * s->in_sample, live);
  }
}

template <int H, int W>
void backward_by_blocks(const ConvShape* s, int samples, const float* in, const int32_t* patch, const float* grad_out,
                        const float* weight, float* grad_weight, float* grad_bias, float* grad_in, Live live) {
  const auto backward = grad_in && !feddag::by_windows(*s, LANES) ? backward_blocks<H, W, true> : backward_blocks<H, W, false>;
  backward(s, samples, in, patch, grad_out, weight, grad_weight, grad_bias, grad_in, live);
}

void conv_backward(const ConvShape* s, int samples, const float* in, const int32_t* patch, const float* grad_out,
                   const float* weight, float* grad_weight, float* grad_bias, float* grad_in, Live live) {
  if (!grad_in && feddag::as_first_layer(*s, LANES))
    return backward_first_layer(s, samples, in, patch, grad_out, grad_weight, grad_bias);
  const auto backward = !feddag::in_blocks(*s, LANES) ? backward_by_runs
                        : s->kernel_h == 3            ? backward_by_blocks<3, 3>
                        : s->kernel_w == 5            ? backward_by_blocks<1, 5>
                                                      : backward_by_blocks<1, 3>;
  backward(s, samples, in, patch, grad_out, weight, grad_weight, grad_bias, grad_in, live);
}

}  // namespace
