// SPDX-License-Identifier: Apache-2.0
// This file is compiled once per instruction set; FEDDAG_ISA is the name of its table.
#include "conv_backward.h"
#include "linear.h"
#include "winograd.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

extern "C" const feddag::Kernels JOIN(feddag_kernels_, FEDDAG_ISA);
extern "C" const feddag::Kernels JOIN(feddag_kernels_, FEDDAG_ISA) = {
    LANES,          conv_arrange,   conv_forward,       conv_backward, linear_forward,
    linear_grad_in, linear_grad_weight, sgd,
};
