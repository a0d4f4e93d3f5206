#pragma once

#include <cstdint>

#include "heed/base/setting.h"
#include "heed/core/backend.h"
#include "heed/core/tensor.h"

namespace heed {

/// Numbers that weights in f32 are computed with: smaller ones would be 0, larger ones infinite.
inline constexpr double least_in_f32 = 1e-37, most_in_f32 = 1e38;

/// What Muon multiplies the rate of a matrix [rows, columns] by. original: sqrt(max(1, rows / columns))
/// (Jordan 2024, kellerjordan.github.io/posts/muon). match_rms_adamw: 0.2 sqrt(max(rows, columns)), which
/// makes steps as long as AdamW's, so that its rate and decay serve for the matrices, too (Liu et al. 2025,
/// arXiv 2502.16982, eq. 4).
enum class RateAdjustment { original, match_rms_adamw };

/// Muon's step of a matrix W with gradient G (Jordan 2024), as torch.optim.Muon takes it:
///
///   M = momentum M + (1 - momentum) G
///   D = (1 - momentum) G + momentum M          without `nesterov`: M
///   W = (1 - rate decay) W - rate adjustment orthogonalised(D)
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t iterations = 5;  ///< of Newton and Schulz
  RateAdjustment adjustment = RateAdjustment::match_rms_adamw;
  double rate = 1;  ///< of the matrices, as a multiple of the learning rate
};

void for_each_setting(auto&& visit, MuonOptions& options) {
  visit(options.momentum, "momentum", 0, below_one_in_f32, "Of muon: of the matrices' moment");
  visit(options.nesterov, "nesterov", "Of muon: whether the gradient counts once more beside the moment");
  visit(options.iterations, "iterations", 1, 99, "Of muon: iterations of Newton and Schulz");
  visit(options.adjustment, "adjust_rate", {"original", "match_rms_adamw"},
        "Of muon: how a matrix's rate follows from its shape; match_rms_adamw: steps as long as adamw's");
  visit(options.rate, "matrix_rate", least_in_f32, most_in_f32,
        "Of muon: the learning rate of the matrices, as a multiple of the schedule's");
}

/// The matrices nearest to those of x [..., rows, columns] whose singular values are equal, but that these
/// end between about 0.7 and 1.2 (Jordan 2024): U S V' of a matrix becomes U f(S) V', where f(s) goes
/// `iterations` times through 3.4445 s - 4.775 s^3 + 2.0315 s^5, from s / max(|x|, 1e-7) on with the
/// Frobenius norm. Right at every magnitude of f32; a matrix of zeros stays one. x is floating and untracked.
Tensor orthogonalised(const Tensor& x, std::int64_t iterations = 5);

/// A step of matrices with their first moments. `step` is as for Adam with decoupled decay, without second
/// moments; its learning_rate is that of the matrices. `products`: Optimizer::compute_in(). It is for
/// Optimizer, which marks the weights as overwritten.
void muon(const OptimizerStep& step, const MuonOptions& options, DType products);

}  // namespace heed
