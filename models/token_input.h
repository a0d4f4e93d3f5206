#pragma once

#include <memory>
#include <mutex>
#include <string_view>

#include "heed/models/layers.h"
#include "heed/models/transformer_config.h"

namespace heed {

/// True where the configuration tells positions apart by vectors, and not within attention ("rotary", "alibi", "relative")
/// or not at all ("none").
bool has_position_vectors(const TransformerConfig& config);

/// The vectors that tell positions apart, added to the embeddings of tokens.
class Positions : public Module {
 public:
  /// "sinusoidal": PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos of the same (Vaswani et al. 2017,
  /// section 3.5), for any length. "sinusoidal_halves": the same columns, all sines before all cosines, as in Marian.
  /// "learned": a parameter "weight" [max_length, width], N(0, deviation^2).
  Positions(std::string_view kind, std::int64_t max_length, std::int64_t width, double deviation,
            Initialiser& initialiser);
  /// Positions begin ... begin + count - 1: [count, width], of the dtype and on the device of `like`.
  /// Learned positions throw beyond max_length.
  Tensor operator()(std::int64_t begin, std::int64_t count, const Tensor& like);

  Tensor weight;  ///< undefined for sinusoidal positions

 private:
  std::int64_t width_;
  bool halves_;
  std::mutex mutex_;  // several threads may compute with one model
  Tensor table_;      // the sinusoids computed so far
};

/// Turns token ids into the input of a stack: dropout(embedding * sqrt(d) + positions) (Vaswani et al. 2017,
/// section 3.4), where the configuration has them with vectors of token types, and normalised: dropout(LN(embedding +
/// positions + types)) (Devlin et al., arXiv 1810.04805, figure 2). The embedding belongs to the model, because it may be
/// shared; "positions", "types" and "norm" are parts.
class TokenInput : public Module {
 public:
  TokenInput(const TransformerConfig& config, const Embedding& embedding, Initialiser& initialiser);
  /// ids i32 [B, N], the first of which stands at position `begin` -> [B, N, d]. Types i32 [B, N], undefined: all 0;
  /// throws where they are given and the configuration has no token_types.
  Tensor operator()(const Tensor& ids, std::int64_t begin, Context& context, const Tensor& types = {});
  /// The same for vectors x [B, N, d] in place of the embeddings.
  Tensor of_vectors(Tensor x, std::int64_t begin, Context& context, const Tensor& types = {});

 private:
  const Embedding& embedding_;
  Positions positions_;
  bool has_positions_;
  double scale_, dropout_;
  std::unique_ptr<Embedding> types_;  // null: none
  std::unique_ptr<Norm> norm_;        // null: none
};

/// The deviation of initial embeddings: 1 / sqrt(d) unless the configuration sets one.
double embedding_deviation(const TransformerConfig& config);

}  // namespace heed
