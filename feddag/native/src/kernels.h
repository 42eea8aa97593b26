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
  int32_t* patch;   // where the input patch of the pixel starts
  float* gradient;
  int* count;       // per channel
  int64_t room;     // space per channel: one entry more than the longest list needs
};

struct UpdateRule {
  float lr, momentum, weight_decay, proximal;
};

struct Kernels {
  int lanes;
  // weights [out][kernel_h][run_padded] -> the order in which conv_forward reads them
  void (*conv_arrange)(const ConvShape*, const float* weight, float* arranged);
  // patch[sample][pixel][out_padded]: where the input patch of the largest value starts in the sample, or -1 if ReLU
  // made it zero (patch may be null); rows: temporary memory for pool_h rows of one channel block
  void (*conv_forward)(const ConvShape*, int samples, const float* in, const float* arranged, const float* bias,
                       float* out, int32_t* patch, float* rows);
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

// conv_backward processes groups of samples; the inputs of one group have at most this size and stay in the
// first-level cache while all output channels use them.
inline constexpr int64_t BACKWARD_GROUP_FLOATS = 4096;

}  // namespace feddag
