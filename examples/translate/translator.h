#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../common/capture_file.h"
#include "heed/data/tokenizer.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/search.h"

namespace heed::programs {

/// Turns lines into their translations.
class Translator {
 public:
  /// The model must outlive the translator. Sources longer than `max_source_tokens` are cut.
  Translator(EncoderDecoder& model, Tokenizer tokenizer, const SearchOptions& options,
             std::int64_t batch_size, std::int64_t max_source_tokens)
      : model_(model),
        tokenizer_(std::move(tokenizer)),
        options_(options),
        batch_size_(batch_size),
        max_source_tokens_(max_source_tokens) {}

  /// One line for each, in their order; a blank line gives a blank line.
  std::vector<std::string> operator()(std::span<const std::string> lines);
  /// From now on, adds what the model shows of its inside to `file`: one pass over each line that is not
  /// blank and its translation, under "lines.<number from 0>", with the ids that encoder and decoder read as
  /// "source" and "target". Null: no more.
  void capture_to(CaptureFile* file) { capture_ = file; }
  /// How many lines were cut so far.
  std::int64_t cut_lines() const { return cut_lines_; }

 private:
  Tokens tokens_of(const std::string& line);
  std::string text_of(const Hypothesis& hypothesis) const;
  void show_inside(std::size_t line, const Tokens& source, const Tokens& target);

  EncoderDecoder& model_;
  Tokenizer tokenizer_;
  SearchOptions options_;
  std::int64_t batch_size_, max_source_tokens_;
  std::int64_t cut_lines_ = 0;
  CaptureFile* capture_ = nullptr;
  std::size_t lines_ = 0;  // translated by earlier calls
};

}  // namespace heed::programs
