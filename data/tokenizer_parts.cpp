#include "heed/data/tokenizer_parts.h"

#include "heed/core/error.h"
#include "heed/core/unicode.h"
#include "heed/data/byte_alphabet.h"
#include "heed/data/word_split.h"

namespace heed {
namespace {

constexpr std::size_t largest_cached_word = 64;  // bytes; longer ones hardly repeat
constexpr std::size_t cache_capacity = 1 << 16;  // words

}  // namespace

bool WordCache::append(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() > largest_cached_word) return false;
  const std::lock_guard lock(mutex_);
  const auto place = words_.find(word);
  if (place == words_.end()) return false;
  ids.insert(ids.end(), place->second.begin(), place->second.end());
  return true;
}

void WordCache::insert(std::string_view word, std::span<const std::int32_t> ids) {
  if (word.size() > largest_cached_word) return;
  const std::lock_guard lock(mutex_);
  if (words_.size() < cache_capacity) words_.try_emplace(std::string(word), ids.begin(), ids.end());
}

Tokenizer::Parts::Parts(BpeModel the_model, TokenizerSettings the_settings)
    : model(std::move(the_model)), settings(std::move(the_settings)) {
  spelling_of_id = model.tokens();
  for (const std::string& token : spelling_of_id) bytes_of_id.push_back(unspell_bytes(token).value_or(token));
  for (const AddedToken& token : settings.added_tokens) {
    check(!token.content.empty(), "added token ", token.id, " is empty");
    check(added_ids.emplace(token.content, token.id).second, "added token \"", token.content,
          "\" is given twice");
    const auto count = static_cast<std::int32_t>(spelling_of_id.size());
    const auto known = model.find(token.content);
    if (known) {
      check(*known == token.id, "added token \"", token.content, "\" has id ", token.id,
            ", but the vocabulary gives it ", *known);
    } else {
      check(token.id == count, "added token \"", token.content, "\" has id ", token.id,
            "; the next free id is ", count);
      spelling_of_id.push_back(token.content);
      bytes_of_id.emplace_back();
    }
    bytes_of_id[static_cast<std::size_t>(token.id)] = token.content;
    if (token.normalized)
      normalized_matcher.add(token, normalize_text(token.content, settings.normalizer));
    else
      raw_matcher.add(token, token.content);
  }
  vocabulary_size = static_cast<std::int32_t>(spelling_of_id.size());
  special_id.resize(spelling_of_id.size());
  for (const AddedToken& token : settings.added_tokens)
    special_id[static_cast<std::size_t>(token.id)] = token.special;
}

std::string normalize_text(std::string_view text, std::span<const TextStep> steps) {
  std::string result(text);
  for (const TextStep step : steps) {
    switch (step) {
      case TextStep::nfc:
        result = unicode::normalize(result, unicode::Form::nfc);
        break;
      case TextStep::nfd:
        result = unicode::normalize(result, unicode::Form::nfd);
        break;
      case TextStep::nfkc:
        result = unicode::normalize(result, unicode::Form::nfkc);
        break;
      case TextStep::nfkd:
        result = unicode::normalize(result, unicode::Form::nfkd);
        break;
      case TextStep::lower_case:
        result = unicode::lower_case(result, unicode::FinalSigma::medial);
        break;
    }
  }
  return result;
}

std::vector<std::string_view> model_words(std::string_view text, const TokenizerSettings& settings,
                                          std::string& spaced) {
  if (text.empty()) return {};
  if (settings.add_prefix_space && !text.starts_with(' ')) {
    spaced = ' ';
    spaced += text;
    text = spaced;
  }
  return settings.split_words ? split_words(text) : std::vector<std::string_view>{text};
}

}  // namespace heed
