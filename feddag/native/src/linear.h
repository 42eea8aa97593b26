// SPDX-License-Identifier: Apache-2.0
// Linear layers and the SGD step. Features are [sample][feature] and weights [output][input]. Rows of both are padded
// with zeros to whole vectors, so no kernel needs code for the rest of a row.
#pragma once
#include "kernels.h"
#include "lanes.h"

namespace {
using feddag::LinearShape;

constexpr int TALL = ACCUMULATORS == 24 ? 6 : 3;  // the kernels accumulate TALL x 4 vectors in registers

// ------------------------------------------------------------------------------------------------ forward

// Computes SAMPLES x 4 dot products together. Only the first `outputs` of the four outputs exist.
template <int SAMPLES>
INLINE void dot_tile(const LinearShape* s, const float* __restrict in, const float* __restrict weight,
                     const float* bias, int outputs, float* __restrict out) {
  const int64_t size = s->inputs_padded;
  const float* w[4];
  for (int o = 0; o < 4; o++) w[o] = weight + (o < outputs ? o : 0) * size;
  Vec sum[SAMPLES][4] = {};
  for (int64_t i = 0; i < size; i += LANES) {
    Vec x[SAMPLES];
    UNROLL for (int b = 0; b < SAMPLES; b++) x[b] = load(in + b * s->in_sample + i);
    UNROLL for (int o = 0; o < 4; o++) {
      const Vec wo = load(w[o] + i);
      UNROLL for (int b = 0; b < SAMPLES; b++) sum[b][o] += x[b] * wo;
    }
  }
  const Four zero{}, offset = *(const LooseFour*)bias;
  UNROLL for (int b = 0; b < SAMPLES; b++) {
    Four z = sum_lanes_of_four(sum[b][0], sum[b][1], sum[b][2], sum[b][3]) + offset;
    if (s->relu) z = zero > z ? zero : z;
    if (outputs == 4)
      *(LooseFour*)(out + b * s->out_sample) = z;
    else
      for (int o = 0; o < outputs; o++) out[b * s->out_sample + o] = z[o];
  }
}

void linear_forward(const LinearShape* s, int samples, const float* in, const float* weight, const float* bias,
                    float* out) {
  constexpr int GROUP = 4 * TALL;  // these samples stay in the first-level cache while all weights are read
  for (int first = 0; first < samples; first += GROUP) {
    const int last = first + GROUP < samples ? first + GROUP : samples;
    for (int o = 0; o < s->outputs; o += 4) {
      const int outputs = s->outputs - o < 4 ? s->outputs - o : 4;
      const float* w = weight + (int64_t)o * s->inputs_padded;
      int b = first;
      for (; b + TALL <= last; b += TALL)
        dot_tile<TALL>(s, in + b * s->in_sample, w, bias + o, outputs, out + b * s->out_sample + o);
      for (; b < last; b++)
        dot_tile<1>(s, in + b * s->in_sample, w, bias + o, outputs, out + b * s->out_sample + o);
    }
  }
}

// ------------------------------------------------------------------------------------------------ backward
// Both gradients are the same kind of product,
//   result[row][column] += sum over k of scalar[k, row] * line[k][column],
// computed for TALL rows and 4 vectors of columns together.
// For the gradient of the input, k counts outputs; for the gradient of the weights, k counts samples.

template <int ROWS, int VECTORS>
INLINE void outer_tile(int64_t terms, const float* __restrict scalar, int64_t scalar_term, int64_t scalar_row,
                       const float* __restrict line, int64_t line_term, float* __restrict result, int64_t result_row,
                       bool add) {
  Vec sum[ROWS][VECTORS];
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < VECTORS; v++) sum[r][v] = add ? load(result + r * result_row + v * LANES) : Vec{};
  for (int64_t k = 0; k < terms; k++, scalar += scalar_term, line += line_term) {
    Vec factor[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) factor[r] = all(scalar[r * scalar_row]);
    UNROLL for (int v = 0; v < VECTORS; v++) {
      const Vec x = load(line + v * LANES);
      UNROLL for (int r = 0; r < ROWS; r++) sum[r][v] += factor[r] * x;
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < VECTORS; v++) store(result + r * result_row + v * LANES, sum[r][v]);
}

template <int VECTORS>
INLINE void outer_columns(int rows, int64_t terms, const float* scalar, int64_t scalar_term, int64_t scalar_row,
                          const float* line, int64_t line_term, float* result, int64_t result_row, bool add) {
  int r = 0;
  for (; r + TALL <= rows; r += TALL)
    outer_tile<TALL, VECTORS>(terms, scalar + r * scalar_row, scalar_term, scalar_row, line, line_term,
                              result + r * result_row, result_row, add);
  for (; r < rows; r++)
    outer_tile<1, VECTORS>(terms, scalar + r * scalar_row, scalar_term, scalar_row, line, line_term,
                           result + r * result_row, result_row, add);
}

INLINE void outer_product(int rows, int64_t columns, int64_t terms, const float* scalar, int64_t scalar_term,
                          int64_t scalar_row, const float* line, int64_t line_term, float* result, int64_t result_row,
                          bool add) {
  int64_t c = 0;
  for (; c + 4 * LANES <= columns; c += 4 * LANES)
    outer_columns<4>(rows, terms, scalar, scalar_term, scalar_row, line + c, line_term, result + c, result_row, add);
  for (; c < columns; c += LANES)
    outer_columns<1>(rows, terms, scalar, scalar_term, scalar_row, line + c, line_term, result + c, result_row, add);
}

void linear_grad_in(const LinearShape* s, int samples, const float* grad_out, const float* weight, float* grad_in) {
  outer_product(samples, s->inputs_padded, s->outputs, grad_out, 1, s->out_sample, weight, s->inputs_padded, grad_in,
                s->in_sample, false);
}

void linear_grad_weight(const LinearShape* s, int samples, const float* in, const float* grad_out, float* grad_weight,
                        float* grad_bias) {
  outer_product(s->outputs, s->inputs_padded, samples, grad_out, s->out_sample, 1, in, s->in_sample, grad_weight,
                s->inputs_padded, true);
  for (int b = 0; b < samples; b++)
    for (int o = 0; o < s->outputs; o++) grad_bias[o] += grad_out[b * s->out_sample + o];
}

// ------------------------------------------------------------------------------------------------ update

void sgd(int64_t size, const feddag::UpdateRule* rule, float* __restrict weight, float* __restrict velocity,
         float* __restrict gradient, const float* __restrict center) {
  const Vec lr = all(rule->lr), momentum = all(rule->momentum), decay = all(rule->weight_decay);
  const Vec proximal = all(rule->proximal);
  for (int64_t i = 0; i < size; i += LANES) {
    const Vec w = load(weight + i);
    Vec g = load(gradient + i) + decay * w;
    if (center) g += proximal * (w - load(center + i));
    const Vec v = momentum * load(velocity + i) + g;
    store(velocity + i, v);
    store(weight + i, w - lr * v);
    store(gradient + i, Vec{});
  }
}

}  // namespace
