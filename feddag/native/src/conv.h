// SPDX-License-Identifier: Apache-2.0
// Convolution, ReLU and max pooling. README.md shows the memory layout.
#pragma once
#include <string.h>

#include "kernels.h"
#include "lanes.h"

namespace {
using feddag::ConvShape;
using feddag::Live;

constexpr int BLOCK = 2;  // number of output vectors that conv_forward computes together

INLINE int vectors_in_block(const ConvShape* s, int first_vector) {
  int left = s->out_padded / LANES - first_vector;
  return left < BLOCK ? left : BLOCK;
}

// ------------------------------------------------------------------------------------------------ forward

// arranged[block][kernel row][position in run][channel of the block]: the order in which conv_forward reads.
void conv_arrange(const ConvShape* s, const float* weight, float* arranged) {
  const int64_t per_channel = (int64_t)s->kernel_h * s->run_padded;
  for (int v = 0; v * LANES < s->out_padded; v += BLOCK) {
    const int width = vectors_in_block(s, v) * LANES;
    for (int kh = 0; kh < s->kernel_h; kh++)
      for (int r = 0; r < s->run; r++, arranged += width) {
        const float* from = weight + v * LANES * per_channel + kh * s->run_padded + r;
        for (int o = 0; o < width; o++)
          arranged[o] = v * LANES + o < s->out_channels ? from[o * per_channel] : 0.f;
      }
  }
}

// Computes COLUMNS neighbouring pixels of one output row, VECTORS * LANES channels per pixel, before ReLU.
// CHANNELS is the number of input channels if it is a compile-time constant, else 0.
template <int VECTORS, int COLUMNS, int CHANNELS>
INLINE void conv_tile(const ConvShape* s, const float* __restrict in, const float* __restrict arranged,
                      const float* bias, float* __restrict out) {
  const int64_t step = CHANNELS ? CHANNELS : s->in_channels;
  Vec sum[COLUMNS][VECTORS];
  UNROLL for (int v = 0; v < VECTORS; v++)
    UNROLL for (int x = 0; x < COLUMNS; x++) sum[x][v] = load(bias + v * LANES);
  for (int kh = 0; kh < s->kernel_h; kh++, in += s->in_row)
    for (int r = 0; r < s->run; r++, arranged += VECTORS * LANES) {
      Vec w[VECTORS];
      UNROLL for (int v = 0; v < VECTORS; v++) w[v] = load(arranged + v * LANES);
      UNROLL for (int x = 0; x < COLUMNS; x++) {
        const Vec pixel = all(in[x * step + r]);
        UNROLL for (int v = 0; v < VECTORS; v++) sum[x][v] += pixel * w[v];
      }
    }
  UNROLL for (int x = 0; x < COLUMNS; x++)
    UNROLL for (int v = 0; v < VECTORS; v++) store(out + (x * VECTORS + v) * LANES, sum[x][v]);
}

template <int VECTORS, int COLUMNS>
void conv_columns(const ConvShape* s, int columns, const float* in, const float* arranged, const float* bias,
                  float* out) {
  if constexpr (COLUMNS > 0) {
    if (columns < COLUMNS) return conv_columns<VECTORS, COLUMNS - 1>(s, columns, in, arranged, bias, out);
    if (s->in_channels == 1) return conv_tile<VECTORS, COLUMNS, 1>(s, in, arranged, bias, out);
    conv_tile<VECTORS, COLUMNS, 0>(s, in, arranged, bias, out);
  }
}

// Computes one output row before pooling, in tiles of nearly equal width.
template <int VECTORS>
INLINE void conv_row(const ConvShape* s, const float* in, const float* arranged, const float* bias, float* out) {
  constexpr int WIDEST = VECTORS == 1 ? 12 : ACCUMULATORS / VECTORS;
  const int width = s->out_w * s->pool_w;
  const int tiles = (width + WIDEST - 1) / WIDEST;
  for (int t = 0, x = 0; t < tiles; t++) {
    const int columns = (width - x) / (tiles - t);
    conv_columns<VECTORS, WIDEST>(s, columns, in + (int64_t)x * s->in_channels, arranged, bias,
                                  out + (int64_t)x * VECTORS * LANES);
    x += columns;
  }
}

// Computes the maximum of each pooling window and ReLU, and stores the place of the maximum. The first of equal values
// wins, as in torch. POOL: 2 for windows of 2 x 2, 0 for any size.
template <int VECTORS, int POOL>
INLINE void pool_row(const ConvShape* s, const float* rows, int row, int channel, float* out, int32_t* patch) {
  const int pool_h = POOL ? POOL : s->pool_h, pool_w = POOL ? POOL : s->pool_w;
  const int64_t line = (int64_t)s->out_w * pool_w * VECTORS * LANES;
  const int32_t next_row = (int32_t)s->in_row, next_pixel = s->in_channels;
  int32_t corner = row * pool_h * next_row;
  for (int px = 0; px < s->out_w; px++, corner += pool_w * next_pixel)
    UNROLL for (int v = 0; v < VECTORS; v++) {
      const float* window = rows + ((int64_t)px * pool_w * VECTORS + v) * LANES;
      Vec best = load(window);
      IntVec from{};  // place relative to the first pixel of the window
      UNROLL for (int dy = 0; dy < pool_h; dy++)
        UNROLL for (int dx = 0; dx < pool_w; dx++) {
          if ((dy | dx) == 0) continue;
          const Vec value = load(window + dy * line + dx * VECTORS * LANES);
          const IntVec keep = value <= best;  // false if value is NaN: then NaN becomes the maximum
          best = keep ? best : value;
          from = keep ? from : all_ints(dy * next_row + dx * next_pixel);
        }
      from += all_ints(corner);
      if (s->relu) {
        from |= (IntVec)(best <= Vec{});  // -1 if ReLU makes it zero
        best = Vec{} > best ? Vec{} : best;
      }
      const int channels = s->out_channels - channel - v * LANES;
      float* to = out + (int64_t)px * s->out_channels + channel + v * LANES;
      if (channels >= LANES)
        store(to, best);
      else
        store_first(to, best, channels);
      if (patch) store_ints(patch + (int64_t)px * s->out_padded + channel + v * LANES, from);
    }
}

template <int VECTORS>
void conv_block(const ConvShape* s, int samples, int channel, const float* in, const float* arranged,
                const float* bias, float* out, int32_t* patch, float* rows) {
  const int64_t line = (int64_t)s->out_w * s->pool_w * VECTORS * LANES;
  for (int b = 0; b < samples; b++)
    for (int py = 0; py < s->out_h; py++) {
      const float* from = in + b * s->in_sample + (int64_t)py * s->pool_h * s->in_row;
      for (int dy = 0; dy < s->pool_h; dy++)
        conv_row<VECTORS>(s, from + dy * s->in_row, arranged, bias + channel, rows + dy * line);
      float* to = out + b * s->out_sample + s->out_origin + py * s->out_row;
      int32_t* where = patch ? patch + ((int64_t)b * s->out_h + py) * s->out_w * s->out_padded : nullptr;
      if (s->pool_h == 2 && s->pool_w == 2)
        pool_row<VECTORS, 2>(s, rows, py, channel, to, where);
      else
        pool_row<VECTORS, 0>(s, rows, py, channel, to, where);
    }
}

void conv_forward(const ConvShape* s, int samples, const float* in, const float* arranged, const float* bias,
                  float* out, int32_t* patch, float* rows) {
  const int64_t taps = (int64_t)s->kernel_h * s->run;
  for (int v = 0; v * LANES < s->out_padded; v += BLOCK) {  // outer loop: the weights of a block stay in the cache
    const float* w = arranged + v * LANES * taps;
    if (vectors_in_block(s, v) == 2)
      conv_block<2>(s, samples, v * LANES, in, w, bias, out, patch, rows);
    else
      conv_block<1>(s, samples, v * LANES, in, w, bias, out, patch, rows);
  }
}

// ------------------------------------------------------------------------------------------------ backward
// Pooling passes the gradient to one pixel per window, and ReLU removes more: most gradients of the convolution's
// output are zero. The other pixels are called live. The backward pass uses a list of the live pixels only.

// Lists the live pixels of CHANNELS channels from `first` on, in a few samples. The list of channel o begins at
// o * live.room and has live.count[o] entries. Neighbours in a list belong to different samples if possible: their
// patches do not overlap, so the processor can add to both at the same time.
template <int CHANNELS>
INLINE void list_channels(const ConvShape* s, int samples, int first, const int32_t* patch, const float* grad_out,
                          Live live) {
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
          patches[o][count[o]] = start + from[o];
          gradients[o][count[o]] = d[o];
          count[o] += from[o] >= 0;
        }
        start += (int32_t)s->in_sample, from += patch_sample, d += s->out_sample;
      }
    }
  UNROLL for (int o = 0; o < CHANNELS; o++) live.count[first + o] = (int)count[o];
}

INLINE void list_live(const ConvShape* s, int samples, const int32_t* patch, const float* grad_out, Live live) {
  int o = 0;
  for (; o + 4 <= s->out_channels; o += 4) list_channels<4>(s, samples, o, patch, grad_out, live);
  if (o + 2 <= s->out_channels) list_channels<2>(s, samples, o, patch, grad_out, live), o += 2;
  if (o < s->out_channels) list_channels<1>(s, samples, o, patch, grad_out, live);
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

void conv_backward(const ConvShape* s, int samples, const float* in, const int32_t* patch, const float* grad_out,
                   const float* weight, float* grad_weight, float* grad_bias, float* grad_in, Live live) {
  const int64_t group = feddag::BACKWARD_GROUP_FLOATS / s->in_sample > 1 ? feddag::BACKWARD_GROUP_FLOATS / s->in_sample : 1;
  const int64_t per_channel = (int64_t)s->kernel_h * s->run_padded;
  const int64_t pixels = (int64_t)s->out_h * s->out_w;
  if (grad_in) memset(grad_in, 0, samples * s->in_sample * sizeof(float));
  for (int64_t b = 0; b < samples; b += group) {
    const int here = (int)(samples - b < group ? samples - b : group);
    list_live(s, here, patch + b * pixels * s->out_padded, grad_out + b * s->out_sample, live);
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

}  // namespace
