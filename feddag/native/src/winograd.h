// SPDX-License-Identifier: Apache-2.0
// Convolution with kernels of 3 x 3 by Winograd's minimal filtering F(2 x 2, 3 x 3): 16 multiplications for the four
// outputs of one pooling window instead of 36 (Lavin and Gray, "Fast algorithms for convolutional neural networks",
// CVPR 2016, Eq. 8):
//
//   outputs of a window = Aᵀ [ (G w Gᵀ) ⊙ (Bᵀ x B) ] A,    x: the 4 x 4 inputs of the window, w: the 3 x 3 weights
//
// ⊙ multiplies element by element; with the sum over input channels it becomes one matrix product per element, which
// is a convolution with a kernel of 1 x 1 over windows. All factors are 0, 1, -1 or 1/2, so rounding stays small.
#pragma once
#include "conv.h"

namespace {
using feddag::WINOGRAD_ELEMENTS;

// transformed[block][element][input channel][channel of the block], from weights [out][kernel row][run_padded]
void winograd_arrange(const ConvShape* s, const float* weight, float* transformed) {
  const int C = s->in_channels;
  const int64_t per_channel = (int64_t)s->kernel_h * s->run_padded;
  float part[WINOGRAD_ELEMENTS][BLOCK * LANES][LANES];
  for (int v = 0; v * LANES < s->out_padded; v += BLOCK) {
    const int width = vectors_in_block(s, v) * LANES;
    for (int c = 0; c < C; c += LANES) {
      for (int o = 0; o < width; o++) {
        Vec g[3][3]{}, t[4][3];
        if (v * LANES + o < s->out_channels)
          UNROLL for (int kh = 0; kh < 3; kh++)
            UNROLL for (int kw = 0; kw < 3; kw++)
              g[kh][kw] = load(weight + (v * LANES + o) * per_channel + kh * s->run_padded + kw * C + c);
        UNROLL for (int kw = 0; kw < 3; kw++) {
          t[0][kw] = g[0][kw];
          t[1][kw] = 0.5f * (g[0][kw] + g[1][kw] + g[2][kw]);
          t[2][kw] = 0.5f * (g[0][kw] - g[1][kw] + g[2][kw]);
          t[3][kw] = g[2][kw];
        }
        UNROLL for (int i = 0; i < 4; i++) {
          store(part[4 * i][o], t[i][0]);
          store(part[4 * i + 1][o], 0.5f * (t[i][0] + t[i][1] + t[i][2]));
          store(part[4 * i + 2][o], 0.5f * (t[i][0] - t[i][1] + t[i][2]));
          store(part[4 * i + 3][o], t[i][2]);
        }
      }
      const int channels = C - c < LANES ? C - c : LANES;
      for (int e = 0; e < WINOGRAD_ELEMENTS; e++) {
        float* to = transformed + ((int64_t)e * C + c) * width;
        if (channels == LANES)
          for (int k = 0; k < LANES; k += 4)
            for (int o = 0; o < width; o += 4) transpose_four(part[e][o] + k, LANES, to + k * width + o, width);
        else
          for (int k = 0; k < channels; k++)
            for (int o = 0; o < width; o++) to[k * width + o] = part[e][o][k];
      }
    }
    transformed += (int64_t)WINOGRAD_ELEMENTS * C * width;
  }
}

// Bᵀ x B for `windows` neighbouring windows of one row; written to inputs[element][window][channels, padded].
INLINE void winograd_inputs(const ConvShape* s, int windows, const float* in, int64_t element, int64_t channels,
                            float* inputs) {
  const int C = s->in_channels;
  for (int px = 0; px < windows; px++, in += 2 * C, inputs += channels)
    for (int c = 0; c < C; c += LANES) {
      Vec t[4][4];
      UNROLL for (int y = 0; y < 4; y++) {
        const float* x = in + y * s->in_row + c;
        const Vec x0 = load(x), x1 = load(x + C), x2 = load(x + 2 * C), x3 = load(x + 3 * C);
        t[y][0] = x0 - x2, t[y][1] = x1 + x2, t[y][2] = x2 - x1, t[y][3] = x1 - x3;
      }
      UNROLL for (int j = 0; j < 4; j++) {
        store(inputs + j * element + c, t[0][j] - t[2][j]);
        store(inputs + (4 + j) * element + c, t[1][j] + t[2][j]);
        store(inputs + (8 + j) * element + c, t[2][j] - t[1][j]);
        store(inputs + (12 + j) * element + c, t[1][j] - t[3][j]);
      }
    }
}

// Aᵀ m A plus bias for `windows` windows of one row; written to rows[2][2 * windows][VECTORS * LANES].
template <int VECTORS>
INLINE void winograd_outputs(int windows, const float* products, int64_t element, const float* bias, float* rows) {
  const int64_t line = (int64_t)windows * 2 * VECTORS * LANES;
  for (int px = 0; px < windows; px++)
    UNROLL for (int v = 0; v < VECTORS; v++) {
      const float* m = products + ((int64_t)px * VECTORS + v) * LANES;
      Vec t[2][4];
      UNROLL for (int j = 0; j < 4; j++) {
        const Vec m0 = load(m + j * element), m1 = load(m + (4 + j) * element);
        const Vec m2 = load(m + (8 + j) * element), m3 = load(m + (12 + j) * element);
        t[0][j] = m0 + m1 + m2, t[1][j] = m1 - m2 - m3;
      }
      const Vec b = load(bias + v * LANES);
      float* to = rows + ((int64_t)px * 2 * VECTORS + v) * LANES;
      UNROLL for (int dy = 0; dy < 2; dy++) {
        store(to + dy * line, t[dy][0] + t[dy][1] + t[dy][2] + b);
        store(to + dy * line + VECTORS * LANES, t[dy][1] - t[dy][2] - t[dy][3] + b);
      }
    }
}

// One block of output channels of `pooled_rows` rows of windows, from row `first` on (rows of all samples are counted).
template <int VECTORS>
void winograd_block(const ConvShape* s, int64_t first, int pooled_rows, int channel, const float* inputs,
                    int64_t channels, const float* transformed, const float* bias, float* out, int32_t* patch,
                    float* products, float* rows) {
  const int windows = pooled_rows * s->out_w;
  const int64_t element = (int64_t)windows * VECTORS * LANES;
  ConvShape product{};  // a convolution with a kernel of 1 x 1 over windows
  product.in_channels = (int)channels, product.run = s->in_channels, product.kernel_h = 1;
  product.out_w = windows, product.pool_w = 1;
  const Vec no_bias[VECTORS]{};
  for (int e = 0; e < WINOGRAD_ELEMENTS; e++)
    conv_row<VECTORS>(&product, inputs + e * windows * channels, transformed + (int64_t)e * s->in_channels * VECTORS * LANES,
                      (const float*)no_bias, products + e * element);
  for (int r = 0; r < pooled_rows; r++) {
    const int64_t b = (first + r) / s->out_h;
    const int py = (int)((first + r) % s->out_h);
    winograd_outputs<VECTORS>(s->out_w, products + (int64_t)r * s->out_w * VECTORS * LANES, element, bias + channel, rows);
    pool_row<VECTORS, 2>(s, rows, py, channel, out + b * s->out_sample + s->out_origin + py * s->out_row,
                         patch ? patch + (b * s->out_h + py) * s->out_w * s->out_padded : nullptr);
  }
}

void winograd_forward(const ConvShape* s, int samples, const float* in, const float* transformed, const float* bias,
                      float* out, int32_t* patch, float* scratch) {
  const int64_t channels = (s->in_channels + LANES - 1) / LANES * LANES;
  const int64_t total = (int64_t)samples * s->out_h;
  const int group = feddag::winograd_rows(*s);
  float* rows = scratch;
  float* products = rows + (int64_t)4 * s->out_w * BLOCK * LANES;
  float* inputs = products + (int64_t)WINOGRAD_ELEMENTS * group * s->out_w * BLOCK * LANES;
  for (int64_t first = 0; first < total; first += group) {
    const int here = (int)(total - first < group ? total - first : group);
    const int64_t element = (int64_t)here * s->out_w * channels;
    for (int r = 0; r < here; r++) {
      const int64_t b = (first + r) / s->out_h, py = (first + r) % s->out_h;
      winograd_inputs(s, s->out_w, in + b * s->in_sample + 2 * py * s->in_row, element, channels,
                      inputs + (int64_t)r * s->out_w * channels);
    }
    const float* w = transformed;
    for (int v = 0; v * LANES < s->out_padded; v += BLOCK) {
      if (vectors_in_block(s, v) == 2)
        winograd_block<2>(s, first, here, v * LANES, inputs, channels, w, bias, out, patch, products, rows);
      else
        winograd_block<1>(s, first, here, v * LANES, inputs, channels, w, bias, out, patch, products, rows);
      w += (int64_t)WINOGRAD_ELEMENTS * s->in_channels * vectors_in_block(s, v) * LANES;
    }
  }
}

// ------------------------------------------------------------------------------------------------ the choice

void conv_arrange(const ConvShape* s, const float* weight, float* arranged) {
  (feddag::by_winograd(*s) ? winograd_arrange : direct_arrange)(s, weight, arranged);
}

void conv_forward(const ConvShape* s, int samples, const float* in, const float* arranged, const float* bias,
                  float* out, int32_t* patch, float* scratch) {
  (feddag::by_winograd(*s) ? winograd_forward : direct_forward)(s, samples, in, arranged, bias, out, patch, scratch);
}

}  // namespace
