// SPDX-License-Identifier: Apache-2.0
// The interface between network.cpp and the kernels: plain structures, and one table of functions per instruction
// set. There are no member functions and no templates here; lanes.h gives the reason.
#pragma once
#include <stdint.h>

namespace feddag {

// A convolution (stride 1) with its ReLU and its pooling. All distances are in floats.
// Input and output are [sample][row][column][channel]; around them is a border of zeros for the padding of the next
// layer.
struct ConvShape {
  int in_channels, out_channels;
  int out_padded;            // out_channels rounded up to whole vectors
  int kernel_h, kernel_w;
  int run, run_padded;       // kernel_w * in_channels: the inputs of one kernel row; rounded up to vectors
  int pool_h, pool_w;        // 1, 1 without pooling
  int out_h, out_w;          // after pooling
  int relu;
  int64_t in_row, in_sample;
  int64_t out_row, out_sample, out_origin;  // out_origin: the first pixel inside the border
};

struct LinearShape {
  int inputs_padded, outputs;  // weights are [output][inputs_padded], with zeros after the real inputs
  int relu;
  int64_t in_sample, out_sample;
};

// Temporary memory of conv_backward: per output channel, a list of the pixels that have a gradient.
struct Live {
  int32_t* patch;   // where the input patch of the pixel starts, in floats
  float* gradient;
  int* count;       // per channel
  int64_t room;     // space per channel: one entry more than the longest list needs
  float* block;     // of in_blocks(): one block of channels of the inputs of a group, and of their gradients
};

struct UpdateRule {
  float lr, momentum, weight_decay, proximal;
};

struct Kernels {
  int lanes;
  // weights [out][kernel_h][run_padded] -> the order in which conv_forward reads them
  void (*conv_arrange)(const ConvShape*, const float* weight, float* arranged);
  // patch[sample][window][out_padded]: the pixel of the sample where the input patch of the largest value starts, or -1
  // if ReLU made it zero (patch may be null); scratch: temporary memory of scratch_size() floats
  void (*conv_forward)(const ConvShape*, int samples, const float* in, const float* arranged, const float* bias,
                       float* out, int32_t* patch, float* scratch);
  // adds to grad_weight and grad_bias; overwrites grad_in, which may be null; live: temporary memory
  void (*conv_backward)(const ConvShape*, int samples, const float* in, const int32_t* patch, const float* grad_out,
                        const float* weight, float* grad_weight, float* grad_bias, float* grad_in, Live live);
  void (*linear_forward)(const LinearShape*, int samples, const float* in, const float* weight, const float* bias,
                         float* out);
  void (*linear_grad_in)(const LinearShape*, int samples, const float* grad_out, const float* weight, float* grad_in);
  // adds to grad_weight and grad_bias
  void (*linear_grad_weight)(const LinearShape*, int samples, const float* in, const float* grad_out,
                             float* grad_weight, float* grad_bias);
  // one step of torch.optim.SGD with weight decay and proximal term; sets the gradient to zero
  void (*sgd)(int64_t size, const UpdateRule*, float* weight, float* velocity, float* gradient, const float* center);
};

// ---- decisions and sizes that network.cpp and the kernels share (static: lanes.h gives the reason)

// Number of pixels of one sample, with border and with what follows it to fill whole vectors.
static inline int64_t input_pixels(const ConvShape& s) { return s.in_sample / s.in_channels; }

// Whether conv_backward uses conv_first.h if nobody needs the gradient of the input. It needs 16 lanes and an instruction
// that permutes them.
static inline bool as_first_layer(const ConvShape& s, int lanes) {
  const bool windows = s.kernel_h == 3 && s.kernel_w == 3 && s.pool_h == 2 && s.pool_w == 2;
  return windows && lanes == 16 && s.in_channels <= 8 && s.out_channels % lanes == 0;
}

// Whether conv_backward processes the input channels in blocks: for small kernels whose channels fill whole vectors.
static inline bool in_blocks(const ConvShape& s, int lanes) {
  const bool small = (s.kernel_h == 3 && s.kernel_w == 3) || (s.kernel_h == 1 && (s.kernel_w == 3 || s.kernel_w == 5));
  return small && s.in_channels % lanes == 0;
}

// Whether the gradient of the input is computed by conv_windows.h: it needs 32 registers of 16 lanes to be fast.
static inline bool by_windows(const ConvShape& s, int lanes) {
  const bool wide = s.in_channels % lanes == 0 && s.out_channels % lanes == 0;
  return lanes == 16 && wide && s.kernel_h == 3 && s.kernel_w == 3 && s.pool_h == 2 && s.pool_w == 2;
}

// The weights between one block of input channels and so many output channels stay in the first-level cache.
inline constexpr int WINDOW_CHANNELS = 64;

// conv_backward processes groups of samples; the inputs of one group (in_blocks: one block of their channels) have at
// most this size and stay in the first-level cache while all output channels use them.
inline constexpr int64_t BACKWARD_GROUP_FLOATS = 4096;

static inline int64_t backward_group(const ConvShape& s, int lanes) {
  const int64_t sample = in_blocks(s, lanes) ? input_pixels(s) * lanes : s.in_sample;
  const int64_t most = (by_windows(s, lanes) ? 2 : 1) * BACKWARD_GROUP_FLOATS;  // without their gradient, twice as many
  return sample < most ? most / sample : 1;
}

// Whether the forward pass uses winograd.h: 16 instead of 36 multiplications per pooling window. With few channels the
// transformations would cost more than they save.
static inline bool by_winograd(const ConvShape& s) {
  return s.kernel_h == 3 && s.kernel_w == 3 && s.pool_h == 2 && s.pool_w == 2 && s.in_channels >= 16;
}

// winograd.h processes whole rows of pooling windows, about this many windows at a time: their inputs and products stay
// in the second-level cache, and one block of weights stays in the first-level cache.
inline constexpr int WINOGRAD_WINDOWS = 36;
inline constexpr int WINOGRAD_ELEMENTS = 16;

static inline int winograd_rows(const ConvShape& s) { return s.out_w < WINOGRAD_WINDOWS ? WINOGRAD_WINDOWS / s.out_w : 1; }

constexpr int CONV_BLOCK = 2;  // number of output vectors that conv_forward computes together

static inline int64_t arranged_size(const ConvShape& s) {
  return (int64_t)(by_winograd(s) ? WINOGRAD_ELEMENTS * s.in_channels : s.kernel_h * s.run) * s.out_padded;
}

static inline int64_t scratch_size(const ConvShape& s, int lanes) {
  const int64_t rows = (int64_t)s.pool_h * s.out_w * s.pool_w * CONV_BLOCK * lanes;
  if (!by_winograd(s)) return rows;
  const int64_t channels = (s.in_channels + lanes - 1) / lanes * lanes;
  return rows + WINOGRAD_ELEMENTS * winograd_rows(s) * s.out_w * (CONV_BLOCK * lanes + channels);
}

static inline int64_t block_size(const ConvShape& s, int lanes) {
  const int64_t group = backward_group(s, lanes), inputs = group * input_pixels(s) * lanes;
  if (!by_windows(s, lanes)) return in_blocks(s, lanes) ? 2 * inputs : 0;
  const int64_t lists = group * s.out_h * s.out_w * 4 * ((s.out_channels + WINDOW_CHANNELS - 1) / WINDOW_CHANNELS);
  return inputs + WINDOW_CHANNELS * 9 * lanes + lists;
}

}  // namespace feddag
