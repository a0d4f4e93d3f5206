#include "heed/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"
#include "heed/text/bpe.h"
#include "heed/text/text_list.h"
#include "heed/text/token_models.h"
#include "heed/text/tokenizer_parts.h"

namespace heed {

/// Names of marks in the files of other programs; in each row the first that exists is used.
constexpr std::array<std::array<std::string_view, 5>, 5> names_of_marks = {
    {{"<pad>", "[PAD]"},
     {"</s>", "[SEP]", "<eos>", "<|endoftext|>", "<|end_of_text|>"},
     {"<s>", "[CLS]", "<bos>", "<|endoftext|>", "<|begin_of_text|>"},
     {"<unk>", "[UNK]"},
     {"<mask>", "[MASK]"}}};

static std::vector<AddedToken> special_tokens(const std::vector<std::string>& contents) {
  std::vector<AddedToken> tokens;
  for (const std::string& content : contents) {
    check(unicode::find_invalid(content) == std::string::npos, "special token \"", content,
          "\" is not UTF-8");
    AddedToken token;
    token.id = static_cast<std::int32_t>(tokens.size());
    token.content = content;
    token.special = true;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// Counts the words of a text; new words follow each other as in the text.
static void count_words(std::string_view text, const TokenizerSettings& settings, WordCounts& counts) {
  const bool cuts = !settings.add_prefix_space && begins_word_at_line_break(settings.word_split);
  const auto count = [](std::string_view word, WordCounts& own) { own.add(word); };
  for (const WordCounts& later : visit_words(text, settings, 0, cuts, counts, count))
    for (const auto& [word, times] : later) counts.add(word, times);
}

TextSource source_of(std::span<const std::string> texts) {
  return [texts](const std::function<void(std::string_view)>& take) {
    for (const std::string& text : texts) take(text);
  };
}

Tokenizer Tokenizer::train(std::span<const std::string> lines, const TokenizerTraining& options) {
  return train(source_of(lines), options);
}

Tokenizer Tokenizer::train(const TextSource& lines, const TokenizerTraining& options) {
  TokenizerSettings settings =
      settings_to_learn(options.normalizer, /*byte_level=*/true, options.add_prefix_space,
                        options.split_words ? WordSplit::whole : WordSplit::none);
  settings.added_tokens = special_tokens(options.special_tokens);
  WordCounts counts;
  std::int64_t count = 0;
  lines([&](std::string_view line) {
    ++count;
    count_words(NormalizedText(line, settings.normalizer), settings, counts);
  });
  check(!counts.empty(), "there is no text to train a tokenizer on: ", count, " lines, all empty");
  BpeModel model =
      train_bpe(counts, {options.vocabulary_size, options.min_frequency, options.special_tokens});
  return Tokenizer(std::make_shared<TokenizerParts>(std::move(model), std::move(settings)));
}

Tokenizer Tokenizer::train_characters(std::span<const std::string> texts,
                                      const std::vector<std::string>& special_tokens,
                                      const std::vector<TextStep>& normalizer) {
  TokenizerSettings settings = settings_to_learn(normalizer, /*byte_level=*/true, false, WordSplit::none);
  settings.added_tokens = heed::special_tokens(special_tokens);
  std::vector<std::string> normalized;
  for (const std::string& text : texts) normalized.push_back(normalize_text(text, normalizer));
  return Tokenizer(std::make_shared<TokenizerParts>(character_vocabulary(normalized, special_tokens),
                                                    std::move(settings)));
}

Tokenizer Tokenizer::train_words(std::span<const std::string> lines, const TokenizerTraining& options,
                                 const std::vector<std::string>& kept_tokens) {
  return train_words(source_of(lines), options, kept_tokens);
}

Tokenizer Tokenizer::train_words(const TextSource& lines, const TokenizerTraining& options,
                                 const std::vector<std::string>& kept_tokens) {
  WordTraining training{options.vocabulary_size, options.min_frequency, options.special_tokens};
  training.first_tokens.insert(training.first_tokens.end(), kept_tokens.begin(), kept_tokens.end());
  TokenizerSettings settings = settings_to_learn(options.normalizer, /*byte_level=*/false);
  settings.added_tokens = special_tokens(training.first_tokens);
  for (std::size_t i = options.special_tokens.size(); i < settings.added_tokens.size(); ++i)
    settings.added_tokens[i].special = false;
  // A tokenizer without words splits the texts as the result will, so that special tokens in them do not
  // count as words.
  const TokenizerParts parts(WordModel(training.first_tokens, training.unknown), settings);
  WordCounts counts;
  std::int64_t count = 0;
  lines([&](std::string_view line) {
    ++count;
    for (const Segment& segment : parts.raw_matcher.split(line))
      if (!segment.id)
        for_each_word(NormalizedText(segment.text, settings.normalizer), settings, 0,
                      [&](std::string_view word) { counts.add(word); });
  });
  check(!counts.empty(), "there is no text to take words from: ", count, " lines, all without a word");
  return Tokenizer(std::make_shared<TokenizerParts>(frequent_words(counts, training), std::move(settings)));
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return from_json(read_file(path), path.string());
}

void Tokenizer::save(const std::filesystem::path& path) const {
  write_file_atomically(path, to_json());
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  const std::vector<TextRule>& normalizer = parts_->settings.normalizer;
  for (const Segment& raw : parts_->raw_matcher.split(text)) {
    if (raw.id) {
      ids.push_back(*raw.id);
      continue;
    }
    // What the first character became, which may be nothing or several characters, is where a text begins.
    const std::string_view character =
        raw.text.substr(0, static_cast<std::size_t>(unicode::decode(raw.text, 0).length));
    const std::size_t first = raw.text.data() != text.data() ? 0
                              : normalizer.empty()           ? character.size()
                                                             : normalize_text(character, normalizer).size();
    const NormalizedText normalized(raw.text, normalizer);
    for (const Segment& segment : parts_->normalized_matcher.split(normalized)) {
      const auto at = static_cast<std::size_t>(segment.text.data() - normalized.text().data());
      if (segment.id)
        ids.push_back(*segment.id);
      else
        parts_->encode(segment.text, first - std::min(first, at), ids);
    }
  }
  return ids;
}

std::string Tokenizer::decode_bytes(std::span<const std::int32_t> ids, bool keep_special) const {
  return parts_->decode(ids, keep_special);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool keep_special) const {
  return unicode::replace_invalid(decode_bytes(ids, keep_special));
}

std::int32_t Tokenizer::vocabulary_size() const {
  return parts_->vocabulary_size;
}

const std::string& Tokenizer::token(std::int32_t id) const {
  check(id >= 0 && id < vocabulary_size(), "token id ", id, " is outside the vocabulary of ",
        vocabulary_size());
  return parts_->spelling_of_id[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::find(std::string_view token) const {
  const auto place = parts_->added_ids.find(std::string(token));
  if (place != parts_->added_ids.end()) return place->second;
  return model_vocabulary(parts_->model).find(token);
}

std::int32_t Tokenizer::id_of(std::string_view token) const {
  if (const auto id = find(token)) return *id;
  std::vector<std::string_view> tried;
  for (const auto& names : names_of_marks) {
    if (token.empty() || std::find(names.begin(), names.end(), token) == names.end()) continue;
    for (const std::string_view name : names) {
      if (const auto id = find(name); id && !name.empty()) return *id;
      if (!name.empty() && name != token) tried.push_back(name);
    }
    break;
  }
  fail("the tokenizer has no token \"", token, "\"", tried.empty() ? "" : " (nor " + listed(tried) + ")");
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return parts_->settings.added_tokens;
}

std::string Tokenizer::missing_bytes() const {
  std::string missing;
  if (!parts_->settings.byte_level) return missing;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (!model_vocabulary(parts_->model).find(spell_bytes({&text, 1}))) missing.push_back(text);
  }
  return missing;
}

std::vector<std::string> Tokenizer::unknown_characters(std::string_view text) const {
  std::vector<std::string> unknown;
  const std::string missing = missing_bytes();
  std::unordered_set<std::string_view> seen;
  for (std::size_t at = 0; at < text.size() && !missing.empty();) {
    const auto length = static_cast<std::size_t>(unicode::decode(text, at).length);
    const std::string_view character = text.substr(at, length);
    if (character.find_first_of(missing) != std::string_view::npos && seen.insert(character).second)
      unknown.emplace_back(character);
    at += length;
  }
  return unknown;
}

// English texts have up to 0.0003 letters beyond a to z, Italian 0.007, German 0.014 and Finnish 0.07.
constexpr double foreign_letters = 0.005;
constexpr double many_once = 0.1;
// For parts of words: with more of them, rare words would be tokens again, from which nothing can
// be learned.
constexpr std::int64_t few_parts = 2000;

static double share(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(whole, 1));
}

TokenKind token_kind_for(const TextSource& texts) {
  WordCounts words;
  // Letters of two columns are those of Chinese, Japanese and Korean: a syllable or a word each.
  std::int64_t running_words = 0, letters = 0, foreign = 0, wide = 0;
  texts([&](std::string_view text) {
    for (const std::string_view word : split_at_punctuation(text)) {
      const std::int64_t before = letters;
      for (std::size_t at = 0; at < word.size();) {
        const unicode::CodePoint c = unicode::decode(word, at);
        const auto length = static_cast<std::size_t>(c.length);
        if (c.valid && unicode::is_letter(c.value)) {
          ++letters;
          if (c.value > 0x7F) ++foreign;
          if (unicode::columns(word.substr(at, length)) == 2) ++wide;
        }
        at += length;
      }
      if (letters == before) continue;
      words.add(word);
      ++running_words;
    }
  });
  const double once = share(std::ranges::count(words, 1, &WordCounts::Word::count), running_words);
  if (2 * wide > letters) return {"characters", "most letters represent a syllable or a word"};
  if (share(foreign, letters) < foreign_letters) return {"words", "the letters are a to z"};
  // Rounded down, so that 9.7 % do not read as if they reached the limit.
  const std::string found = concat_text(static_cast<int>(100 * once), " % of the words occur once");
  if (once < many_once) return {"words", found};
  return {"bpe", found + ", so about as many words of new texts would be unknown", few_parts};
}

}  // namespace heed
