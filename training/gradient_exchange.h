#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heed/core/ranks.h"
#include "heed/models/module.h"
#include "heed/training/step.h"

namespace heed {

struct Evaluation;

/// The communication of several ranks that train one model. The result is bit-identical to training
/// with one process, which does not need this class.
///
/// If each rank summed its own batches first, the total would depend on the number of ranks
/// (GradientSum), so ranks never pre-add. Rank k mod N computes batch k of a step. Every parameter
/// has an owner, which receives its gradient from every batch and adds them in batch order, as one
/// process does. The owner also measures the gradient's norm, updates the parameter, keeps its
/// moments (ZeRO stage 1, arXiv 1910.02054) and sends the new weights to all ranks.
class GradientExchange {
 public:
  /// `ranks` must outlive this object. Parameters are assigned largest first, each to the rank with
  /// the least so far.
  GradientExchange(Module& model, std::vector<NamedTensor> parameters, Ranks& ranks);
  ~GradientExchange();

  int rank() const { return ranks_.rank(); }
  int count() const { return ranks_.count(); }
  bool is_first() const { return rank() == 0; }
  Ranks& ranks() const { return ranks_; }
  /// Which parameters this rank owns.
  std::vector<bool> owned() const;

  /// Moves the gradients of this rank's batch out of the leaves after backward(), and adds them.
  /// All ranks must call it together, with one batch each in rank order; ranks with no batch left
  /// pass nullopt. Returns the outcomes of all these batches, in order. With `more` batches to
  /// come, the gradients are sent while the next batches are computed.
  std::vector<BatchOutcome> add(std::optional<BatchOutcome> own, bool more = false);
  /// Stores the sums as the gradients of the parameters that this rank owns.
  void finish();
  /// The norm of all gradients of the step, the same on all ranks. Call after finish().
  GradientNorm norm(double divisor);
  /// Sends the new weights to all ranks. Call after the optimizer step.
  void share_weights();

  /// True if `mine` is true on any rank.
  bool any(bool mine);
  /// The value that rank 0 passes.
  std::string broadcast(const std::string& text) { return ranks_.broadcast(text); }
  Evaluation broadcast(Evaluation evaluation);
  std::map<std::string, Tensor> broadcast(const std::map<std::string, Tensor>& tensors);
  /// Copies all weights and buffers from rank 0.
  void broadcast_model();
  /// Exchange named tensors "<kind>.<parameter>", such as an optimizer's moments: gather() collects
  /// them from their owners on rank 0, and deal() sends them from rank 0 to their owners. Tensors
  /// of no parameter go to all ranks.
  std::map<std::string, Tensor> gather(std::map<std::string, Tensor> mine);
  std::map<std::string, Tensor> deal(const std::map<std::string, Tensor>& all);

 private:
  std::vector<std::string> gather_outcomes(std::optional<BatchOutcome> own,
                                           const std::vector<Tensor>& gradients,
                                           std::vector<BatchOutcome>& outcomes);
  struct Bucket;
  struct Round;
  std::shared_ptr<Bucket> pack(std::size_t bucket, Round& round);
  void unpack(const Bucket& bucket, Round& round);
  void add_arrived();
  int gradient_owner(const std::string& name) const;  // -1: not a parameter's tensor
  const Tensor& parameter(std::size_t i) const { return *parameters_[i].tensor; }
  bool owns(std::size_t i) const { return owner_[i] == rank(); }

  Module& model_;
  std::vector<NamedTensor> parameters_;
  Ranks& ranks_;
  std::vector<int> owner_;                                    // of each parameter
  std::vector<std::pair<std::size_t, std::size_t>> buckets_;  // parameters [first, last) sent together
  GradientSum sum_;                                           // of the parameters that this rank owns
  std::unique_ptr<Round> travelling_;                         // null: nothing in flight
  std::vector<bool> touched_;  // parameters with a gradient on any rank in this step
};

}  // namespace heed
