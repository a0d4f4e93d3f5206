#pragma once

#include "settings.h"

namespace heed::programs {

/// --attention, --decoder-attention and --cross-attention of an encoder-decoder, with settings under "model".
class AttentionFlags {
 public:
  explicit AttentionFlags(CLI::App& command);
  /// --attention chooses the self-attention of the encoder, and of the decoder where it can serve there (the
  /// papers leave cross-attention as it is); the other two flags choose these by themselves. Returns what is
  /// worth telling the user: where it cannot.
  std::vector<std::string> apply(Settings& settings) const;

 private:
  std::optional<std::string> encoder_, decoder_, cross_;
};

/// The free settings of a model: its three attention mechanisms.
std::vector<std::string> attention_settings();

}  // namespace heed::programs
