#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heed/core/ranks.h"
#include "heed/models/module.h"
#include "heed/training/step_monitor.h"
#include "heed/training/task.h"

namespace heed {

/// What one batch of a step came to, beside its gradients.
struct BatchOutcome {
  struct Term {
    std::string name;  ///< "loss" for the task's own, or that of an auxiliary one
    Tensor sum;        ///< over the batch, of one element
  };
  std::int64_t count = 0;   ///< of targets
  std::vector<Term> terms;  ///< in the order in which they were added
  std::vector<Observation> observations;
};

/// Adds up the gradients of a step, batch by batch, in one process or among ranks, to the same bits.
///
/// Floating-point addition is not associative: sums that ranks form of their own batches and then add differ
/// with the number of ranks. So here nothing is added before it is where it belongs. Batch k of a step is
/// computed by rank k mod N; every parameter has an owner, to whom its gradient of every single batch
/// travels, and who adds them in the order of the batches, as one process does. The owner also measures the
/// gradient, steps the parameter, keeps its moments (ZeRO stage 1, arXiv 1910.02054) and sends the new
/// weights to all.
class GradientExchange {
 public:
  /// `ranks` is null for one process, or must outlive this. Parameters are dealt out by size, the largest
  /// first, each to whom has least.
  GradientExchange(Module& model, std::vector<NamedTensor> parameters, Ranks* ranks);
  ~GradientExchange();

  bool is_shared() const { return ranks_ != nullptr; }
  int rank() const { return ranks_ ? ranks_->rank() : 0; }
  int count() const { return ranks_ ? ranks_->count() : 1; }
  bool is_first() const { return rank() == 0; }
  Ranks* ranks() const { return ranks_; }
  /// Which parameters this rank owns; empty in one process, which owns all.
  std::vector<bool> owned() const;

  /// After backward(): takes the gradients of this rank's batch out of the leaves and adds them. To be called
  /// by all ranks at once, one batch each, in their order; those for whom none is left give nothing. Returns
  /// what all these batches came to, in their order. With `more` of them to come, the gradients travel while
  /// the next are computed.
  std::vector<BatchOutcome> add(std::optional<BatchOutcome> own, bool more = false);
  /// The sums become the gradients of the parameters that this rank owns.
  void finish();
  /// The norm of all gradients of the step, the same on all ranks; after finish().
  GradientNorm norm(double divisor);
  /// After the owners' steps: all ranks get the new weights.
  void share_weights();

  /// True when it is so on any rank.
  bool any(bool mine);
  /// What rank 0 says.
  std::string broadcast(const std::string& text) { return ranks_ ? ranks_->broadcast(text) : text; }
  Evaluation broadcast(Evaluation evaluation);
  std::map<std::string, Tensor> broadcast(std::map<std::string, Tensor> tensors);
  /// All weights and buffers become those of rank 0.
  void broadcast_model();
  /// Named tensors "<kind>.<parameter>", such as an optimizer's moments: gathers on rank 0 what the owners
  /// have, and deals out what rank 0 has. Others belong to all.
  std::map<std::string, Tensor> gather(std::map<std::string, Tensor> mine);
  std::map<std::string, Tensor> deal(std::map<std::string, Tensor> all);

 private:
  std::vector<std::string> gather_outcomes(std::optional<BatchOutcome> own,
                                           const std::vector<Tensor>& gradients,
                                           std::vector<BatchOutcome>& outcomes);
  struct Bucket;
  struct Round;
  std::shared_ptr<Bucket> pack(std::size_t bucket, Round& round);
  void unpack(const Bucket& bucket, Round& round);
  void add_arrived();
  void add_to_sum(std::size_t parameter, Tensor gradient);
  void add_to_sums(std::vector<Tensor>& gradients);
  int owner_of(const std::string& name) const;  // -1: of no parameter
  const Tensor& parameter(std::size_t i) const { return *parameters_[i].tensor; }
  bool owns(std::size_t i) const { return owner_[i] == rank(); }

  Module& model_;
  std::vector<NamedTensor> parameters_;
  Ranks* ranks_;
  std::vector<int> owner_;                                    // of each parameter
  std::vector<std::pair<std::size_t, std::size_t>> buckets_;  // parameters [first, last) that travel together
  std::vector<Tensor> sums_;                                  // of this step, undefined where there is none
  std::unique_ptr<Round> travelling_;                         // null: nothing is on its way
  std::vector<bool> touched_;  // parameters with a gradient in this step, on any rank
};

}  // namespace heed
