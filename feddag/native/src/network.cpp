// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include "dropout.h"

namespace feddag {
namespace {

constexpr int64_t ALIGNMENT = 64;  // bytes: the widest vector; each buffer also has this space after its end

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

template <class T>
void Buffer<T>::allocate(int64_t size) {
  const size_t bytes = (size_t)round_up(size * (int64_t)sizeof(T) + ALIGNMENT, ALIGNMENT);
  void* p = aligned_alloc(ALIGNMENT, bytes);
  if (!p) throw std::bad_alloc();
  memset(p, 0, bytes);
  memory = std::unique_ptr<T[], void (*)(void*)>(static_cast<T*>(p), free);
}

// ------------------------------------------------------------------------------------------------ construction

Network::Network(const NetworkSpec& spec, const StageSpec* stages, const Kernels& kernels, int rows, bool training)
    : spec_(spec), kernels_(kernels), rows_(rows), training_(training) {
  const int64_t lanes = kernels.lanes;
  int64_t packed = 0, arranged = 0, scratch = 0, live = 0, channels = 0, block = 0;
  auto reserve = [&](int64_t size) {
    const int64_t place = packed;
    packed += round_up(size, lanes);
    return place;
  };
  stages_.resize(spec.stages);
  int column = 0, dropouts = 0;
  for (int64_t b = 0, i = 0; b < spec.branches; b++) {
    Branch branch{(int)i, (int)i, column, 0, 0, 0};
    int c = (int)spec.channels, h = (int)spec.height, w = (int)spec.width;
    for (; i < spec.stages && stages[i].branch == b; i++) {
      Stage& s = stages_[i];
      s.spec = stages[i];
      s.dropout_layer = s.spec.dropout > 0 ? dropouts++ : -1;
      if (s.spec.convolution) {
        ConvShape& k = s.conv;
        k = ConvShape{};
        s.in_h = h, s.in_w = w;
        k.in_channels = c;
        k.out_channels = (int)s.spec.outputs;
        k.out_padded = (int)round_up(k.out_channels, lanes);
        k.kernel_h = (int)s.spec.kernel_h, k.kernel_w = (int)s.spec.kernel_w;
        k.run = k.kernel_w * c;
        k.run_padded = (int)round_up(k.run, lanes);
        k.pool_h = (int)s.spec.pool_h, k.pool_w = (int)s.spec.pool_w;
        k.relu = (int)s.spec.relu;
        k.in_row = (w + 2 * s.spec.pad_w) * c;
        k.in_sample = round_up((h + 2 * s.spec.pad_h) * k.in_row, lanes);
        k.out_h = (int)(h + 2 * s.spec.pad_h - k.kernel_h + 1) / k.pool_h;
        k.out_w = (int)(w + 2 * s.spec.pad_w - k.kernel_w + 1) / k.pool_w;
        c = k.out_channels, h = k.out_h, w = k.out_w;
        s.units = c * h * w;
        s.weight_size = (int64_t)k.out_channels * k.kernel_h * k.run_padded;
        s.arranged = arranged;
        arranged += arranged_size(k);
        scratch = std::max(scratch, scratch_size(k, (int)lanes));
        block = std::max(block, block_size(k, (int)lanes));
        s.live_room = backward_group(k, (int)lanes) * h * w + 1;
        live = std::max(live, s.live_room * c);
        channels = std::max<int64_t>(channels, c);
        s.in.allocate(rows * k.in_sample);
        if (training && i > branch.first) s.grad_in.allocate(rows * k.in_sample);
        if (training) s.patch.allocate((int64_t)rows * h * w * k.out_padded);
      } else {
        LinearShape& k = s.linear;
        s.in_channels = c, s.in_pixels = h * w;
        k.inputs_padded = (int)round_up((int64_t)c * h * w, lanes);
        k.outputs = (int)s.spec.outputs;
        k.relu = (int)s.spec.relu;
        k.in_sample = k.inputs_padded;
        c = k.outputs, h = w = 1;
        s.units = c;
        s.weight_size = (int64_t)k.outputs * k.inputs_padded;
        s.in.allocate(rows * k.in_sample);
        if (training && i > branch.first) s.grad_in.allocate(rows * k.in_sample);
      }
      s.weight = reserve(s.weight_size);
      s.bias = reserve(s.spec.outputs);
      if (training && s.spec.dropout > 0) s.scales.allocate((int64_t)rows * s.units);
    }
    branch.last = (int)i;
    branch.channels = c, branch.pixels = h * w;
    branch.features = c * h * w;
    column += branch.features;
    branches_.push_back(branch);
  }
  head_ = LinearShape{(int)round_up(column, lanes), (int)spec.classes, 0, round_up(column, lanes),
                      round_up(spec.classes, lanes)};
  head_weight_ = reserve((int64_t)head_.outputs * head_.inputs_padded);
  head_bias_ = reserve(spec.classes);
  packed_ = packed;

  // Each stage writes into the input of the next stage, inside the border; the last one writes into the head's input.
  for (const Branch& branch : branches_)
    for (int i = branch.first; i < branch.last; i++) {
      Stage& s = stages_[i];
      const bool to_head = i + 1 == branch.last;
      const Stage* next = to_head ? nullptr : &stages_[i + 1];
      const int64_t sample = to_head ? head_.in_sample : next->spec.convolution ? next->conv.in_sample : next->linear.in_sample;
      if (s.spec.convolution) {
        const bool border = next && next->spec.convolution;
        s.conv.out_sample = sample;
        s.conv.out_row = border ? next->conv.in_row : (int64_t)s.conv.out_w * s.conv.out_channels;
        s.conv.out_origin = border ? next->spec.pad_h * s.conv.out_row + next->spec.pad_w * s.conv.out_channels : 0;
      } else {
        s.linear.out_sample = sample;
      }
    }

  weight_.allocate(packed);
  arranged_.allocate(arranged);
  scratch_.allocate(scratch);
  features_.allocate(rows * head_.in_sample);
  logits_.allocate(rows * head_.out_sample);
  if (training) {
    velocity_.allocate(packed);
    gradient_.allocate(packed);
    grad_features_.allocate(rows * head_.in_sample);
    grad_logits_.allocate(rows * head_.out_sample);
    live_patch_.allocate(live);
    live_gradient_.allocate(live);
    live_count_.allocate(channels);
    live_block_.allocate(block);
  }
}

float* Network::output(int stage) {
  for (const Branch& b : branches_)
    if (stage + 1 == b.last) return features_ + b.column;
  return stages_[stage + 1].in.get();
}

float* Network::grad_output(int stage) {
  for (const Branch& b : branches_)
    if (stage + 1 == b.last) return grad_features_ + b.column;
  return stages_[stage + 1].grad_in.get();
}

// ------------------------------------------------------------------------------------------------ parameters
// Torch stores the weights of a convolution as [out][in][row][column]. We store [out][row][column][in] with padded
// rows: one kernel row then belongs to one contiguous run of the input. The inputs of a linear layer after a
// convolution are reordered in the same way.

// Calls visit(place in the flat vector, place in the packed parameters) for every parameter.
template <class Visit>
void Network::each_tensor(Visit visit) const {
  for (const Stage& s : stages_) {
    if (s.spec.convolution) {
      const ConvShape& k = s.conv;
      int64_t from = s.spec.weight;
      for (int o = 0; o < k.out_channels; o++)
        for (int c = 0; c < k.in_channels; c++)
          for (int kh = 0; kh < k.kernel_h; kh++)
            for (int kw = 0; kw < k.kernel_w; kw++)
              visit(from++, s.weight + ((int64_t)o * k.kernel_h + kh) * k.run_padded + kw * k.in_channels + c);
    } else {
      int64_t from = s.spec.weight;
      for (int o = 0; o < s.linear.outputs; o++)
        for (int c = 0; c < s.in_channels; c++)
          for (int p = 0; p < s.in_pixels; p++)
            visit(from++, s.weight + (int64_t)o * s.linear.inputs_padded + (int64_t)p * s.in_channels + c);
    }
    if (s.spec.bias >= 0)
      for (int o = 0; o < s.spec.outputs; o++) visit(s.spec.bias + o, s.bias + o);
  }
  int64_t from = spec_.head_weight;
  for (int o = 0; o < head_.outputs; o++)
    for (const Branch& b : branches_)
      for (int c = 0; c < b.channels; c++)
        for (int p = 0; p < b.pixels; p++)
          visit(from++, head_weight_ + (int64_t)o * head_.inputs_padded + b.column + (int64_t)p * b.channels + c);
  if (spec_.head_bias >= 0)
    for (int o = 0; o < head_.outputs; o++) visit(spec_.head_bias + o, head_bias_ + o);
}

void Network::pack_into(const float* vector, float* packed) const {
  each_tensor([=](int64_t flat, int64_t place) { packed[place] = vector[flat]; });
}

void Network::unpack_from(const float* packed, float* vector) const {
  each_tensor([=](int64_t flat, int64_t place) { vector[flat] = packed[place]; });
}

void Network::pack(const float* vector) {
  pack_into(vector, weight_.get());
  for (const Stage& s : stages_) arrange(s);
  if (training_) memset(velocity_.get(), 0, packed_ * sizeof(float));
}

void Network::unpack(float* vector) const { unpack_from(weight_.get(), vector); }

void Network::arrange(const Stage& s) {
  if (s.spec.convolution) kernels_.conv_arrange(&s.conv, weight_ + s.weight, arranged_ + s.arranged);
}

// ------------------------------------------------------------------------------------------------ forward

// Copies samples into the input of the first stage and changes [channel][row][column] to [row][column][channel].
void Network::load(const Branch& branch, const Inputs& inputs, const int64_t* samples, int64_t first, int count) {
  const int64_t C = spec_.channels, H = spec_.height, W = spec_.width;
  float* in = features_ + branch.column;  // for an encoder without layers, the features are the input
  int64_t row = W * C, sample = head_.in_sample, origin = 0;
  if (branch.first < branch.last) {
    const Stage& s = stages_[branch.first];
    in = s.in.get();
    row = s.spec.convolution ? s.conv.in_row : W * C;
    sample = s.spec.convolution ? s.conv.in_sample : s.linear.in_sample;
    origin = s.spec.convolution ? s.spec.pad_h * row + s.spec.pad_w * C : 0;
  }
  for (int b = 0; b < count; b++) {
    const int64_t which = samples ? samples[first + b] : first + b;
    for (int64_t c = 0; c < C; c++)
      for (int64_t y = 0; y < H; y++) {
        float* to = in + b * sample + origin + y * row + c;
        const int64_t from = ((which * C + c) * H + y) * W;
        if (inputs.bytes) {
          const uint8_t* x = static_cast<const uint8_t*>(inputs.x) + from;
          const float* table = inputs.table + c * 256;
          for (int64_t i = 0; i < W; i++) to[i * C] = table[x[i]];
        } else {
          const float* x = static_cast<const float*>(inputs.x) + from;
          if (C == 1)
            memcpy(to, x, W * sizeof(float));
          else
            for (int64_t i = 0; i < W; i++) to[i * C] = x[i];
        }
      }
  }
}

// Runs the encoders and the head on `count` samples; the features of frozen encoders are copied, not computed.
// Dropout is active in the encoders that `job` trains. `place` is the index of the first sample in its batch.
void Network::run(const Inputs& inputs, const int64_t* samples, int64_t first, int count, const TrainingJob* job, int64_t step,
                  int64_t place, int only_branch) {
  for (size_t n = 0; n < branches_.size(); n++) {
    const Branch& branch = branches_[n];
    if (only_branch >= 0 && (int)n != only_branch) continue;
    if (inputs.features[n]) {
      for (int b = 0; b < count; b++) {
        const float* from = inputs.features[n] + (samples ? samples[first + b] : first + b) * branch.features;
        float* to = features_ + b * head_.in_sample + branch.column;
        for (int c = 0; c < branch.channels; c++)
          for (int p = 0; p < branch.pixels; p++) to[p * branch.channels + c] = *from++;
      }
      continue;
    }
    const bool train = job && job->train_branch[n];
    load(branch, inputs, samples, first, count);
    for (int i = branch.first; i < branch.last; i++) {
      Stage& s = stages_[i];
      float* out = output(i);
      if (s.spec.convolution)
        kernels_.conv_forward(&s.conv, count, s.in.get(), arranged_ + s.arranged, weight_ + s.bias, out,
                              train ? s.patch.get() : nullptr, scratch_.get());
      else
        kernels_.linear_forward(&s.linear, count, s.in.get(), weight_ + s.weight, weight_ + s.bias, out);
      if (train && s.spec.dropout > 0)
        for (int b = 0; b < count; b++) {
          float* scale = s.scales + (int64_t)b * s.units;
          dropout_scales(job->seed, (uint32_t)step, (uint32_t)s.dropout_layer, (uint32_t)(place + b), s.spec.dropout,
                         s.units, scale);
          if (s.spec.convolution) {
            const int line = s.conv.out_w * s.conv.out_channels;
            for (int y = 0; y < s.conv.out_h; y++)
              for (int u = 0; u < line; u++)
                out[b * s.conv.out_sample + s.conv.out_origin + y * s.conv.out_row + u] *= scale[y * line + u];
          } else {
            for (int u = 0; u < s.units; u++) out[b * s.linear.out_sample + u] *= scale[u];
          }
        }
    }
  }
  if (only_branch < 0)
    kernels_.linear_forward(&head_, count, features_.get(), weight_ + head_weight_, weight_ + head_bias_, logits_.get());
}

void Network::forward(const Inputs& inputs, int64_t first, int64_t count, int what, float* out) {
  for (int64_t done = 0; done < count; done += rows_) {
    const int here = (int)std::min<int64_t>(rows_, count - done);
    run(inputs, nullptr, first + done, here, nullptr, 0, 0, what);
    for (int b = 0; b < here; b++) {
      if (what < 0) {
        const float* z = logits_ + b * head_.out_sample;
        out = std::copy(z, z + head_.outputs, out);
      } else {
        const Branch& branch = branches_[what];
        const float* f = features_ + b * head_.in_sample + branch.column;
        for (int c = 0; c < branch.channels; c++)
          for (int p = 0; p < branch.pixels; p++) *out++ = f[p * branch.channels + c];
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------ training

// Writes the gradient of the logits of `count` samples; returns their share of the mean loss of a batch of size `batch`.
double Network::loss(const TrainingJob& job, const int64_t* samples, int count, double batch) {
  double total = 0;
  const int classes = head_.outputs;
  for (int b = 0; b < count; b++) {
    const float* z = logits_ + b * head_.out_sample;
    float* d = grad_logits_ + b * head_.out_sample;
    const int64_t label = job.labels[samples[b]];
    const double share = (job.weights ? job.weights[samples[b]] : 1.0) / batch;
    float largest = z[0];
    for (int k = 1; k < classes; k++) largest = z[k] > largest ? z[k] : largest;
    float sum = 0;
    for (int k = 0; k < classes; k++) sum += d[k] = std::exp(z[k] - largest);
    for (int k = 0; k < classes; k++) d[k] *= (float)(share / sum);
    d[label] -= (float)share;
    total += share * (std::log((double)sum) + largest - z[label]);
  }
  return total;
}

// Adds the gradient of all parameters that are trained. run() must have processed the same samples before. `step`: each layer
// then makes its step of SGD at once, while its gradient and its weights are in the cache.
void Network::backward(const TrainingJob& job, int count, bool step) {
  if (job.train_head)
    kernels_.linear_grad_weight(&head_, count, features_.get(), grad_logits_.get(), gradient_ + head_weight_,
                                gradient_ + head_bias_);
  bool any = false;
  for (size_t n = 0; n < branches_.size(); n++) any |= job.train_branch[n] && branches_[n].last > branches_[n].first;
  if (any) kernels_.linear_grad_in(&head_, count, grad_logits_.get(), weight_ + head_weight_, grad_features_.get());
  if (step && job.train_head) {
    update(job, head_weight_, (int64_t)head_.outputs * head_.inputs_padded, true);
    update(job, head_bias_, head_.outputs, spec_.head_bias >= 0);
  }
  for (size_t n = 0; n < branches_.size(); n++) {
    const Branch& branch = branches_[n];
    if (!job.train_branch[n]) continue;
    for (int i = branch.last - 1; i >= branch.first; i--) {
      Stage& s = stages_[i];
      float* d = grad_output(i);
      const float* out = output(i);
      const float* scale = s.spec.dropout > 0 ? s.scales.get() : nullptr;
      if (s.spec.convolution) {
        const ConvShape& k = s.conv;
        const int line = k.out_w * k.out_channels;
        if (scale)
          for (int b = 0; b < count; b++)
            for (int y = 0; y < k.out_h; y++)
              for (int u = 0; u < line; u++)
                d[b * k.out_sample + k.out_origin + y * k.out_row + u] *= scale[(int64_t)b * s.units + y * line + u];
        kernels_.conv_backward(&k, count, s.in.get(), s.patch.get(), d, weight_ + s.weight, gradient_ + s.weight,
                               gradient_ + s.bias, s.grad_in.get(),
                               Live{live_patch_.get(), live_gradient_.get(), live_count_.get(), s.live_room,
                                    live_block_.get()});
      } else {
        for (int b = 0; b < count; b++) {
          float* g = d + b * s.linear.out_sample;
          const float* h = out + b * s.linear.out_sample;
          if (scale)
            for (int u = 0; u < s.units; u++) g[u] *= scale[(int64_t)b * s.units + u];
          if (s.linear.relu)
            for (int u = 0; u < s.units; u++) g[u] = h[u] > 0 ? g[u] : 0;
        }
        if (s.grad_in.get()) kernels_.linear_grad_in(&s.linear, count, d, weight_ + s.weight, s.grad_in.get());
        kernels_.linear_grad_weight(&s.linear, count, s.in.get(), d, gradient_ + s.weight, gradient_ + s.bias);
      }
      if (step) {
        update(job, s.weight, s.weight_size, true);
        update(job, s.bias, s.spec.outputs, s.spec.bias >= 0);
        arrange(s);
      }
    }
  }
}

// Adds the gradient of one batch, makes the step of SGD if `update`, and returns the batch's loss. A batch with more than
// rows_ samples is processed in pieces.
double Network::step(const Inputs& inputs, const TrainingJob& job, int64_t batch, bool update) {
  const int64_t start = job.starts[batch], size = job.starts[batch + 1] - start;
  double total = 0;
  for (int64_t done = 0; done < size; done += rows_) {
    const int here = (int)std::min<int64_t>(rows_, size - done);
    run(inputs, job.samples, start + done, here, &job, batch, done, -1);
    total += loss(job, job.samples + start + done, here, (double)size);
    backward(job, here, update && done + here == size);
  }
  return total;
}

// One tensor's step of SGD; a bias that is not there keeps its zeros.
void Network::update(const TrainingJob& job, int64_t place, int64_t size, bool present) {
  const UpdateRule rule{(float)job.lr, (float)job.momentum, (float)job.weight_decay, (float)job.proximal};
  if (present)
    kernels_.sgd(size, &rule, weight_ + place, velocity_ + place, gradient_ + place, job.center ? center_ + place : nullptr);
  else
    memset(gradient_ + place, 0, size * sizeof(float));
}

int64_t Network::train(const Inputs& inputs, const TrainingJob& job, int64_t first, int64_t last, double seconds,
                       double* losses) {
  using clock = std::chrono::steady_clock;
  const auto end = clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
  if (job.center) {
    if (!center_.get()) center_.allocate(packed_);
    pack_into(job.center, center_.get());
  }
  int64_t batch = first;
  while (batch < last) {
    losses[batch] = step(inputs, job, batch, true);
    batch++;
    if (clock::now() >= end) break;
  }
  return batch - first;
}

double Network::gradient(const Inputs& inputs, const TrainingJob& job, int64_t batch, float* vector) {
  const double total = step(inputs, job, batch, false);
  unpack_from(gradient_.get(), vector);
  memset(gradient_.get(), 0, packed_ * sizeof(float));
  return total;
}

}  // namespace feddag
