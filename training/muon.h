#pragma once

#include <cstdint>

#include "heed/base/setting.h"
#include "heed/core/backend.h"
#include "heed/core/low_precision.h"
#include "heed/core/tensor.h"

namespace heed {

/// The range of numbers in f32 updates: smaller ones would become 0, larger ones infinite.
inline constexpr double least_in_f32 = 1e-37, most_in_f32 = 1e38;

/// The factor by which Muon scales the learning rate of a matrix [rows, columns]. original:
/// sqrt(max(1, rows / columns)) (Jordan 2024, kellerjordan.github.io/posts/muon). match_rms_adamw:
/// 0.2 sqrt(max(rows, columns)), which makes updates as large as AdamW's, so that its learning rate
/// and weight decay can be used for matrices too (Liu et al. 2025, arXiv 2502.16982, eq. 4).
enum class RateAdjustment { original, match_rms_adamw };

/// Options of Muon. For a matrix W with gradient G (Jordan 2024), as in torch.optim.Muon:
///
///   M = momentum M + (1 - momentum) G
///   D = (1 - momentum) G + momentum M          without `nesterov`: M
///   W = (1 - rate decay) W - rate adjustment orthogonalised(D)
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t iterations = 5;  ///< of Newton-Schulz
  RateAdjustment adjustment = RateAdjustment::match_rms_adamw;
  double rate = 1;  ///< of the matrices, as a multiple of the learning rate
};

void for_each_setting(auto&& visit, MuonOptions& options) {
  visit(options.momentum, "momentum", 0, below_one_in_f32, "muon: momentum of the matrices");
  visit(options.nesterov, "nesterov", "muon: use Nesterov momentum");
  visit(options.iterations, "iterations", 1, 99, "muon: Newton-Schulz iterations");
  visit(options.adjustment, "adjust_rate", {"original", "match_rms_adamw"},
        "muon: how the learning rate of a matrix depends on its shape; match_rms_adamw: updates as large as "
        "adamw's");
  visit(options.rate, "matrix_rate", least_in_f32, most_in_f32,
        "muon: learning rate of the matrices, as a multiple of the schedule's");
}

/// The precision of products for f32 weights: on a GPU their type.
struct MuonProducts {
  DType on_gpu = DType::f32;
  MatmulPrecision on_cpu = MatmulPrecision::highest;
};

/// Returns an approximation of the nearest semi-orthogonal matrices to x [..., rows, columns]: all
/// singular values end between about 0.7 and 1.2 (Jordan 2024). A matrix U S V' becomes U f(S) V',
/// where f(s) applies 3.4445 s - 4.775 s^3 + 2.0315 s^5 `iterations` times, starting from s /
/// max(|x|, 1e-7) with the Frobenius norm. Correct at every magnitude of f32; a zero matrix stays
/// zero. x is floating and untracked.
Tensor orthogonalised(const Tensor& x, std::int64_t iterations = 5);

/// Updates matrices and their first moments. `step` is as for Adam with decoupled decay, without
/// second moments; its learning_rate applies to the matrices. `products`: see
/// Optimizer::compute_in(). For Optimizer, which marks the weights as overwritten.
void muon(const OptimizerStep& step, const MuonOptions& options, const MuonProducts& products);

}  // namespace heed
