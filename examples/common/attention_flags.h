#pragma once

#include "model_settings.h"

namespace heed::programs {

/// --attention, and where there are two stacks also --decoder-attention and --cross-attention, with settings
/// under "model".
class AttentionFlags {
 public:
  AttentionFlags(CLI::App& command, Stacks stacks);
  /// --attention chooses the self-attention of the encoder, and of the decoder where it can serve there (the
  /// papers leave cross-attention as it is); the other two flags choose these by themselves. Returns what is
  /// worth telling the user: where it cannot. In a model that has a decoder alone that is an error.
  std::vector<std::string> apply(Settings& settings) const;

 private:
  Stacks stacks_;
  std::optional<std::string> attention_, decoder_, cross_;
};

}  // namespace heed::programs
