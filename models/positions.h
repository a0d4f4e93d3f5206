#pragma once

#include <string_view>

#include "heed/models/initialise.h"
#include "heed/models/module.h"

namespace heed {

/// The vectors that tell positions apart, added to the embeddings of tokens.
class Positions : public Module {
 public:
  /// "sinusoidal": PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos of the same (Vaswani et al. 2017,
  /// section 3.5), for any length. "learned": a parameter "weight" [max_length, width], normal with the given
  /// deviation.
  Positions(std::string_view kind, std::int64_t max_length, std::int64_t width, double deviation,
            Initialiser& initialiser);
  /// Positions begin ... begin + count - 1: [count, width], of the dtype and on the device of `like`.
  /// Learned positions throw beyond max_length.
  Tensor operator()(std::int64_t begin, std::int64_t count, const Tensor& like);

  Tensor weight;  ///< undefined for sinusoidal positions

 private:
  std::int64_t width_;
  Tensor table_;  // the sinusoids computed so far
};

}  // namespace heed
