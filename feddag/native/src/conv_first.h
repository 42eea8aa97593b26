// SPDX-License-Identifier: Apache-2.0
// The weight gradient of a first layer: few input channels, kernels of 3 x 3, pooling windows of 2 x 2, and nobody needs the
// gradient of its input. Lists of live pixels would cost more than the sums. Here the lanes are output channels: each lane
// picks the input of its own live pixel out of the 4 x 4 inputs of the window, which stay in registers.
#pragma once
#include "kernels.h"
#include "lanes.h"

namespace {
using feddag::ConvShape;

// Adds the gradients of one sample to sum[3][PLACES] (and to `bias`), for LANES output channels and PLACES places of the run.
template <int PLACES>
INLINE void first_layer_sample(const ConvShape* s, const float* in, const int32_t* patch, const float* grad_out,
                               Vec (&sum)[3][PLACES], Vec& bias) {
  const int32_t next_row = (int32_t)(s->in_row / s->in_channels);  // in pixels
  const IntVec below = all_ints(next_row), channels = all_ints(s->in_channels);
  const IntVec second_row = LANES - below * channels;  // a pixel below is LANES places further in two rows of registers
  for (int py = 0; py < s->out_h; py++)
    for (int px = 0; px < s->out_w; px++) {
      const float* x = in + 2 * py * s->in_row + (int64_t)2 * px * s->in_channels;
      const Vec rows[4] = {load(x), load(x + s->in_row), load(x + 2 * s->in_row), load(x + 3 * s->in_row)};
      const IntVec pixel = load_ints(patch + ((int64_t)py * s->out_w + px) * s->out_padded);
      const Vec all_gradients = load(grad_out + py * s->out_row + (int64_t)px * s->out_channels);
      const Vec gradient = pixel < 0 ? Vec{} : all_gradients;
      const IntVec from_corner = pixel - all_ints(2 * (py * next_row + px));
      IntVec place = from_corner * channels + (from_corner >= below ? second_row : IntVec{});
      UNROLL for (int r = 0; r < PLACES; r++, place += 1)
        UNROLL for (int y = 0; y < 3; y++) sum[y][r] += gradient * pick(rows[y], rows[y + 1], place);
      bias += gradient;
    }
}

// `channel`: the first of LANES output channels; `place`: the first of PLACES places of the run.
template <int PLACES>
void first_layer_places(const ConvShape* s, int samples, int channel, int place, const float* in, const int32_t* patch,
                        const float* grad_out, float* grad_weight, float* grad_bias) {
  Vec sum[3][PLACES]{}, bias{};
  for (int b = 0; b < samples; b++)
    first_layer_sample<PLACES>(s, in + b * s->in_sample + place, patch + (int64_t)b * s->out_h * s->out_w * s->out_padded + channel,
                               grad_out + b * s->out_sample + s->out_origin + channel, sum, bias);
  for (int o = 0; o < LANES; o++) {
    float* to = grad_weight + (channel + o) * 3 * (int64_t)s->run_padded + place;
    for (int y = 0; y < 3; y++)
      for (int r = 0; r < PLACES; r++) to[y * s->run_padded + r] += sum[y][r][o];
    if (place == 0) grad_bias[channel + o] += bias[o];
  }
}

void backward_first_layer(const ConvShape* s, int samples, const float* in, const int32_t* patch, const float* grad_out,
                          float* grad_weight, float* grad_bias) {
  constexpr int GROUP = 8;  // samples; what all output channels read of them stays in the second-level cache
  for (int b = 0; b < samples; b += GROUP) {
    const int here = samples - b < GROUP ? samples - b : GROUP;
    const float* x = in + b * s->in_sample;
    const int32_t* where = patch + (int64_t)b * s->out_h * s->out_w * s->out_padded;
    const float* d = grad_out + b * s->out_sample;
    for (int o = 0; o < s->out_channels; o += LANES)
      for (int r = 0; r < s->run;) {
        if (s->run - r >= 6) first_layer_places<6>(s, here, o, r, x, where, d, grad_weight, grad_bias), r += 6;
        else first_layer_places<3>(s, here, o, r, x, where, d, grad_weight, grad_bias), r += 3;
      }
  }
}

}  // namespace
