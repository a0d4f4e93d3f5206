#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/labelled_text.h"

// Sentences whose words have labels, such as the names in a text. A LabelledText holds them: the words of a sentence
// are its text and their labels its label, with line ends between them.

namespace heed {

/// A sentence to label: its words, and where they stand in its text, in characters.
struct Sentence {
  std::string text;
  std::vector<std::string> words;
  struct Place {
    std::size_t begin = 0, end = 0;  ///< in characters
  };
  std::vector<Place> places = {};
};

/// Separates the words of a text, and their labels.
inline constexpr std::string_view between_words = "\n";
/// Joins words or labels to a text of LabelledText, and splits it.
std::string joined_words(std::span<const std::string> words);
std::vector<std::string> split_words(std::string_view text);

/// Returns the sentence of these words, with spaces between them.
Sentence sentence_of_words(const std::vector<std::string>& words);
/// Returns the sentence on a line: a JSON list of words, or a text. The words of a text end at white space; punctuation at
/// their beginning or end, and characters of scripts without spaces (Chinese, Thai), stand alone. Throws Error for a
/// list that holds anything but words, and for one without words.
Sentence parse_sentence(const std::string& line);

/// The layout of a file of sentences:
/// - conll: a word on each line, in columns that tabs or white space separate, and an empty line after each sentence.
///   Lines that begin with -DOCSTART- end a document. Comments begin with # and have another number of columns than the
///   words or, before the first word, no tab; a remark counts them. Lines of CoNLL-U for several words (1-2) or none (1.1) are left out;
/// - jsonl: an object with two lists for each sentence.
struct TaggedOptions {
  std::string format = {};  ///< "": jsonl for .jsonl and .json, otherwise conll; each also with .gz
  TextOptions text = {};
  /// conll: a number from 1; jsonl: a name. "": the first column, "words" or "tokens".
  std::string word_column = {};
  /// "": the last column, "labels", "tags" or "ner_tags".
  std::string label_column = {};
  bool labelled = true;  ///< false: labels are not read
};

/// Reads sentences with their labels. Sentences without words are counted and left out. Throws Error with file and line as
/// read_lines does; for a line of conll with another number of columns than the first, or without the column of words
/// or labels; for words and labels of different numbers; for an empty word or label; and for a file without words.
LabelledText read_tagged_text(const TextInput& input, const TaggedOptions& options,
                              ReadReport* report = nullptr);

}  // namespace heed
