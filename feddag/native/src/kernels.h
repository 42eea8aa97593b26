// SPDX-License-Identifier: Apache-2.0
// What the driver (network.cpp) knows of the kernels: plain structures and one table of functions per
// instruction set. No member functions, no templates: see lanes.h for why.
#pragma once
#include <stdint.h>

namespace feddag {

// A convolution (stride 1) with its ReLU and its pooling. All strides are in floats.
// Input and output are [sample][row][column][channel] with a border of zeros as wide as the next layer's padding.
struct ConvShape {
  int in_channels, out_channels;
  int out_padded;            // out_channels rounded up to whole vectors
  int kernel_h, kernel_w;
  int run, run_padded;       // kernel_w * in_channels, the floats one kernel row touches; rounded up
  int pool_h, pool_w;        // 1, 1 without pooling
  int out_h, out_w;          // after pooling
  int relu;
  int64_t in_row, in_sample;
  int64_t out_row, out_sample, out_origin;  // out_origin: first pixel inside the border
};

struct LinearShape {
  int inputs_padded, outputs;  // weights are [output][inputs_padded], zeros behind the real inputs
  int relu;
  int64_t in_sample, out_sample;
};

// Scratch of conv_backward: for each output channel a list of the pixels with a gradient.
struct Live {
  int32_t* patch;   // where the pixel's input patch starts
  float* gradient;
  int* count;       // per channel
  int64_t room;     // entries per channel: one more than there can be
};

struct UpdateRule {
  float lr, momentum, weight_decay, proximal;
};

struct Kernels {
  int lanes;
  // weights [out][kernel_h][run_padded] -> the order in which conv_forward reads them
  void (*conv_arrange)(const ConvShape*, const float* weight, float* arranged);
  // patch[sample][pixel][out_padded]: start of the winning input patch in the sample, -1 where ReLU is shut
  // (null: not wanted); rows: scratch for pool_h rows of one channel block
  void (*conv_forward)(const ConvShape*, int samples, const float* in, const float* arranged, const float* bias,
                       float* out, int32_t* patch, float* rows);
  // adds to grad_weight and grad_bias; grad_in (null: not wanted) is overwritten; live: scratch
  void (*conv_backward)(const ConvShape*, int samples, const float* in, const int32_t* patch, const float* grad_out,
                        const float* weight, float* grad_weight, float* grad_bias, float* grad_in, Live live);
  void (*linear_forward)(const LinearShape*, int samples, const float* in, const float* weight, const float* bias,
                         float* out);
  void (*linear_grad_in)(const LinearShape*, int samples, const float* grad_out, const float* weight, float* grad_in);
  // adds to grad_weight and grad_bias
  void (*linear_grad_weight)(const LinearShape*, int samples, const float* in, const float* grad_out,
                             float* grad_weight, float* grad_bias);
  // torch.optim.SGD: gradient += decay and proximal pull; velocity; weight; the gradient is left at zero
  void (*sgd)(int64_t size, const UpdateRule*, float* weight, float* velocity, float* gradient, const float* center);
};

// Samples whose inputs conv_backward keeps in the first-level cache while it walks over the output channels.
inline constexpr int64_t BACKWARD_GROUP_FLOATS = 4096;

}  // namespace feddag
