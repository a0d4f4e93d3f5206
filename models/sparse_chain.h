#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/models/label_chain.h"
#include "heed/models/sparse_linear.h"

namespace heed {

/// How the logits of a model's two parts become a LabelChain.
struct ChainParts {
  std::size_t labels = 0;
  float deep = 1, sparse = 0;           ///< their shares
  std::vector<float> transitions = {};  ///< [K, K], times the sparse share; empty: there is no sparse part
  std::vector<float> offsets = {};      ///< [K] of LabelChain::best()

  /// `logits` holds, for each word, its deep and then its sparse ones, if there are any. This must outlive the chain.
  LabelChain chain(std::span<const float> logits) const;
};

/// A sequence of words to learn from.
struct ChainSample {
  std::vector<Tokens> words;  ///< the features of each, with the value 1
  Tokens labels;
};

/// A linear part whose outputs are the logits of a LabelChain: a CRF over sparse features.
class SparseChain : public SparseLinear {
 public:
  SparseChain(std::int64_t features, std::int64_t classes);

  /// Computes the table and the transitions. They come close to the minimum of SparseLinear's eq. 1, with C = 128 and the
  /// loss of a LabelChain, by AdaGrad (Duchi et al. 2011) with a rate that falls to 0: 8 passes or more over the
  /// sequences in random orders. In each visit to a feature it also regularizes the feature's weights, by their share of
  /// all visits. Throws an Error if there are no sequences, or for a label or feature that the table lacks.
  void fit(std::span<const ChainSample> samples);
  /// Sets the shares that minimize the loss of held-out sequences, as parts() reads them. Sequences with a label that is
  /// no class are skipped.
  void fit_shares(std::span<const std::vector<float>> logits,
                  std::span<const std::vector<std::int32_t>> labels);
  ChainParts parts() const;
  void set_offsets(std::span<const float> values) { overwrite(offsets, values); }

  Tensor transitions;  ///< [K, K]
  Tensor offsets;      ///< [K], initially 0
};

}  // namespace heed
