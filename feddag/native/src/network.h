// SPDX-License-Identifier: Apache-2.0
// One network with its own copy of the parameters and its own memory: all that one thread needs to train one client.
#pragma once
#include <stdint.h>

#include <memory>
#include <vector>

#include "kernels.h"

namespace feddag {

// library.py declares the next four structures with the same fields in the same order.
struct StageSpec {       // a convolution or linear layer with its ReLU, pooling and dropout
  int64_t branch;        // index of its encoder; the stages of one encoder are consecutive
  int64_t convolution;   // 1 or 0 (linear)
  int64_t outputs;       // channels or units
  int64_t kernel_h, kernel_w, pad_h, pad_w;
  int64_t pool_h, pool_w;
  int64_t relu;
  int64_t weight, bias;  // places in the flat vector; bias -1: no bias
  double dropout;        // probability; 0: no dropout
};

struct NetworkSpec {
  int64_t channels, height, width;
  int64_t branches, stages, classes;
  int64_t head_weight, head_bias;
  int64_t parameters;
};

struct Inputs {
  const void* x;             // [sample][channel][row][column]
  int64_t bytes;             // 1: x is uint8 and table holds the network inputs; 0: x is float
  const float* table;        // [channel][256]
  const float* features[2];  // of a frozen encoder: [sample][feature], computed before; else null
};

struct TrainingJob {
  const int64_t* samples;    // the sample numbers of all batches, one batch after the other
  const int64_t* starts;     // batch b is samples[starts[b] .. starts[b + 1])
  const int64_t* labels;
  const float* weights;      // per sample, or null
  const float* center;       // flat vector of the proximal term, or null
  double lr, momentum, weight_decay, proximal;
  int64_t train_branch[2], train_head;
  uint64_t seed;             // of the random numbers of dropout
};

// Memory filled with zeros, aligned to 64 bytes, with space for one more vector after the end.
template <class T>
struct Buffer {
  std::unique_ptr<T[], void (*)(void*)> memory{nullptr, nullptr};
  void allocate(int64_t size);
  T* operator+(int64_t i) const { return memory.get() + i; }
  T* get() const { return memory.get(); }
};

struct Stage {
  StageSpec spec;
  ConvShape conv;
  LinearShape linear;
  int in_channels, in_pixels;       // input of a linear layer: torch's order is [channel][pixel], ours [pixel][channel]
  int in_h, in_w;                   // input of a convolution, without border
  int units;                        // outputs per sample
  int64_t weight, bias, arranged;   // places in the packed parameters (arranged: in the arranged copies)
  int64_t weight_size;
  int64_t live_room;
  int dropout_layer;
  Buffer<float> in, grad_in;        // the input and its gradient; the output is the input of the next stage
  Buffer<int32_t> patch;
  Buffer<float> scales;             // factors of dropout: [sample][unit]
};

class Network {
 public:
  Network(const NetworkSpec&, const StageSpec*, const Kernels&, int rows, bool training);
  void pack(const float* vector);
  void unpack(float* vector) const;
  // Trains on batches [first, last) and stops after the first batch that ends later than `seconds` after the call.
  // At least one batch is done. Returns the number of batches done.
  int64_t train(const Inputs&, const TrainingJob&, int64_t first, int64_t last, double seconds, double* losses);
  // Writes the mean gradient of one batch in the order of the flat vector; returns the mean loss.
  double gradient(const Inputs&, const TrainingJob&, int64_t batch, float* vector);
  // Writes the logits (what = -1) or the features of encoder `what`.
  void forward(const Inputs&, int64_t first, int64_t count, int what, float* out);

 private:
  struct Branch {
    int first, last;                // its stages are [first, last)
    int column, features;           // the inputs of the head from `column` on
    int channels, pixels;           // features = channels * pixels
  };
  const NetworkSpec spec_;
  const Kernels& kernels_;
  const int rows_;                  // largest number of samples in memory
  const bool training_;
  std::vector<Stage> stages_;
  std::vector<Branch> branches_;
  LinearShape head_;
  int64_t head_weight_, head_bias_, packed_;
  Buffer<float> weight_, velocity_, gradient_, center_, arranged_;
  Buffer<float> features_, grad_features_, logits_, grad_logits_, scratch_;
  Buffer<int32_t> live_patch_;
  Buffer<float> live_gradient_, live_block_;
  Buffer<int> live_count_;

  template <class Visit> void each_tensor(Visit) const;
  void pack_into(const float* vector, float* packed) const;
  void unpack_from(const float* packed, float* vector) const;
  void load(const Branch&, const Inputs&, const int64_t* samples, int64_t first, int count);
  float* output(int stage);
  float* grad_output(int stage);
  void arrange(const Stage&);
  void run(const Inputs&, const int64_t* samples, int64_t first, int count, const TrainingJob*, int64_t step, int64_t place,
           int only_branch);
  double loss(const TrainingJob&, const int64_t* samples, int count, double batch);
  void backward(const TrainingJob&, int count, bool step);
  double step(const Inputs&, const TrainingJob&, int64_t batch, bool update);
  void update(const TrainingJob&, int64_t place, int64_t size, bool present);
};

}  // namespace feddag
