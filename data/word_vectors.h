#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace heed {

/// Reads word vectors in text form and calls visit(word, its `width` numbers) for each, in order. Each line
/// has a word and its numbers (GloVe); the files of word2vec begin with a line of two whole numbers, the
/// count and the width of the vectors. A word may contain spaces. Plain or gzip; bytes that are not UTF-8
/// become U+FFFD. Throws Error with file and line for a path that is not a file, a damaged file, or vectors
/// of another width.
void read_word_vectors(
    const std::string& path, std::int64_t width,
    const std::function<void(std::string_view word, std::span<const float> values)>& visit);

}  // namespace heed
