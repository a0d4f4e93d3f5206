#pragma once

#include <span>
#include <string>

namespace heed {

/// How varied texts are: distinct runs of n words over all runs of n words, 0 to 1 (distinct-n of Li et al., NAACL 2016,
/// arXiv 1510.03055, section 5.2, over runs rather than words). Words are those of BLEU (bleu_tokenize()), with their case;
/// 0 where there is no run.
double distinct_share(std::span<const std::string> texts, std::size_t n);

}  // namespace heed
