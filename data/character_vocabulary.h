#pragma once

#include <span>
#include <string>
#include <vector>

#include "heed/data/bpe_model.h"

namespace heed {

/// A BPE model whose merges put the bytes of each character of the texts together, and nothing else. The ids
/// are: the special tokens, the bytes that occur, then the characters of more than one byte by code point
/// (each behind the beginnings that its merges pass through). Throws Error when a text is not UTF-8 or all
/// are empty.
BpeModel character_vocabulary(std::span<const std::string> texts,
                              const std::vector<std::string>& special_tokens);

}  // namespace heed
