#include "heed/training/distinct.h"

#include <set>
#include <sstream>
#include <vector>

#include "heed/training/bleu.h"

namespace heed {

double distinct_share(std::span<const std::string> texts, std::size_t n) {
  std::set<std::vector<std::string>> distinct;
  std::size_t all = 0;
  for (const std::string& text : texts) {
    std::istringstream tokens(bleu_tokenize(text));
    std::vector<std::string> words;
    for (std::string word; tokens >> word;) words.push_back(word);
    for (std::size_t i = 0; i + n <= words.size(); ++i, ++all)
      distinct.emplace(words.begin() + static_cast<std::ptrdiff_t>(i),
                       words.begin() + static_cast<std::ptrdiff_t>(i + n));
  }
  return all == 0 ? 0 : static_cast<double>(distinct.size()) / static_cast<double>(all);
}

}  // namespace heed
