// SPDX-License-Identifier: Apache-2.0
// Convolution, ReLU and max pooling: the forward pass. README.md shows the memory layout.
#pragma once
#include "kernels.h"
#include "lanes.h"

namespace {
using feddag::ConvShape;

constexpr int BLOCK = feddag::CONV_BLOCK;

INLINE int vectors_in_block(const ConvShape* s, int first_vector) {
  int left = s->out_padded / LANES - first_vector;
  return left < BLOCK ? left : BLOCK;
}

// ------------------------------------------------------------------------------------------------ forward

// arranged[block][kernel row][position in run][channel of the block]: the order in which conv_forward reads.
void direct_arrange(const ConvShape* s, const float* weight, float* arranged) {
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

// Computes the maximum of each pooling window and ReLU, and stores the pixel of the maximum. The first of equal values
// wins, as in torch. POOL: 2 for windows of 2 x 2, 0 for any size.
template <int VECTORS, int POOL>
INLINE void pool_row(const ConvShape* s, const float* rows, int row, int channel, float* out, int32_t* patch) {
  const int pool_h = POOL ? POOL : s->pool_h, pool_w = POOL ? POOL : s->pool_w;
  const int64_t line = (int64_t)s->out_w * pool_w * VECTORS * LANES;
  const int32_t next_row = (int32_t)(s->in_row / s->in_channels);  // in pixels
  int32_t corner = row * pool_h * next_row;
  for (int px = 0; px < s->out_w; px++, corner += pool_w)
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
          from = keep ? from : all_ints(dy * next_row + dx);
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

void direct_forward(const ConvShape* s, int samples, const float* in, const float* arranged, const float* bias,
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

}  // namespace
