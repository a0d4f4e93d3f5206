#pragma once

#include "heed/core/backend.h"

// Every kernel of the CPU backend; core/backend.h says what each one does.

namespace heed::cpu {

// memory_pool.cpp
std::shared_ptr<Storage> allocate(Device device, std::size_t bytes);
void upload(const void* host, const Tensor& to);
void download(const Tensor& from, void* host);
MemoryStats memory_stats(Device device);
void reset_peak(Device device);
void trim(Device device);

// Element by element
void fill(double value, const Tensor& out);
void copy(const Tensor& x, const Tensor& out);
void unary(UnaryOp op, UnaryParams params, const Tensor& x, const Tensor& out);
void unary_backward(UnaryOp op, UnaryParams params, const Tensor& saved, const Tensor& grad,
                    const Tensor& out);
void binary(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& out);
void binary_backward(BinaryOp op, int operand, const Tensor& a, const Tensor& b, const Tensor& grad,
                     const Tensor& out);
void compare(CompareOp op, const Tensor& a, const Tensor& b, const Tensor& out);
void select(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& out);

// Reductions
void reduce(ReduceOp op, const Tensor& x, const Tensor& out);
void argmax(const Tensor& x, const Tensor& out);
void cumulative_sum(const Tensor& x, bool reverse, const Tensor& out);

// Matrix products
void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, const Tensor& out);

// Indices
void gather_rows(const Tensor& x, const Tensor& index, const Tensor& out);
void scatter_add_rows(const Tensor& x, const Tensor& index, const Tensor& out);
void argsort(const Tensor& x, bool descending, const Tensor& out);
void top_k(const Tensor& x, const Tensor& out);

// Random numbers
void uniform(const RandomKey& key, double low, double high, const Tensor& out);
void normal(const RandomKey& key, double mean, double deviation, const Tensor& out);
void dropout(const Tensor& x, const Tensor& residual, double p, const RandomKey& key, const Tensor& out);

// Fused operations
void softmax_forward(const Tensor& x, const Tensor& mask, bool log, const Tensor& out);
void softmax_backward(const Tensor& y, const Tensor& grad, bool log, const Tensor& dx);
void layer_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                        const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation);
void layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& inverse_deviation, const Tensor& grad, const Tensor& dx,
                         const Tensor& dweight, const Tensor& dbias);
void cross_entropy_forward(const Tensor& logits, const Tensor& targets, double smoothing,
                           std::int32_t ignored, const Tensor& loss, const Tensor& log_sum_exp);
void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& log_sum_exp,
                            const Tensor& grad, double smoothing, std::int32_t ignored,
                            const Tensor& dlogits);
void attention_forward(const AttentionArgs& args, const Tensor& out, const Tensor& log_sum_exp);
void attention_backward(const AttentionArgs& args, const Tensor& out, const Tensor& log_sum_exp,
                        const Tensor& grad, const Tensor& log_sum_exp_grad, const Tensor& dquery,
                        const Tensor& dkey, const Tensor& dvalue);

// Optimizers
void adam(const OptimizerStep& step);
void sgd(const OptimizerStep& step);
void sums_of_squares(std::span<const Tensor> tensors, const Tensor& out);

}  // namespace heed::cpu
