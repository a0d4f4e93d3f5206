#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace heed {

/// Reads vectors of words as text and calls visit(word, its `width` numbers) for each, in their order: a word
/// and its numbers on each line (GloVe), behind a line of two whole numbers, how many vectors of which width,
/// in the files of word2vec. A word may have spaces in it. Plain or gzip; bytes that are not UTF-8 become
/// U+FFFD. Throws an Error with file and line for a file that is none, that is damaged, or whose vectors are
/// not of that width.
void read_word_vectors(
    const std::string& path, std::int64_t width,
    const std::function<void(std::string_view word, std::span<const float> values)>& visit);

}  // namespace heed
