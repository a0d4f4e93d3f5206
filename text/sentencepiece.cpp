#include "heed/text/sentencepiece.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/base/unicode.h"
#include "heed/text/token_models.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

/// A field of a message in protobuf's wire format: its number and its undecoded value.
struct Field {
  std::uint64_t number = 0;
  std::optional<std::uint64_t> integer;  // varint, 64 or 32 bits
  std::string_view bytes;                // or a text or message
};

/// Visits the fields of a message; throws Error if it is truncated or malformed.
class FieldReader {
 public:
  FieldReader(std::string_view message, const std::string& origin) : rest_(message), origin_(origin) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const std::uint64_t key = varint();
    Field field{key >> 3, std::nullopt, {}};
    const std::uint64_t type = key & 7;
    if (type == 2)
      field.bytes = take(varint());
    else if (type == 0)
      field.integer = varint();
    else if (type == 1 || type == 5)
      field.integer = fixed(type == 1 ? 8 : 4);
    else
      refuse("a field of type ", type);
    return field;
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(origin_, " is not a SentencePiece model, or it is damaged: it has ", parts...);
  }

  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) refuse("a part of ", count, " bytes where ", rest_.size(), " are left");
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  std::uint64_t fixed(std::uint64_t count) {
    std::uint64_t value = 0;
    const std::string_view bytes = take(count);
    for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    refuse("a number of more than 64 bits");
  }

  std::string_view rest_;
  const std::string& origin_;
};

template <class Visit>
void each_field(std::string_view message, const std::string& origin, const Visit& visit) {
  FieldReader reader(message, origin);
  while (const std::optional<Field> field = reader.next()) visit(*field);
}

SentencePieceModel::Piece read_piece(std::string_view message, std::size_t index, const std::string& origin) {
  SentencePieceModel::Piece piece;
  each_field(message, origin, [&](const Field& field) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2)
      piece.score =
          static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(field.integer.value_or(0))));
    if (field.number == 3) {
      const std::uint64_t kind = field.integer.value_or(0);
      check(kind >= 1 && kind <= 6, origin, ": piece ", index, " is of kind ", kind,
            ", which heed does not know");
      piece.kind = static_cast<SentencePieceModel::Kind>(kind);
    }
  });
  check(!piece.text.empty() && unicode::find_invalid(piece.text) == std::string::npos, origin, ": piece ",
        index, " is no text");
  check(std::isfinite(piece.score), origin, ": the score of piece ", index, " is ", piece.score);
  check(piece.kind != SentencePieceModel::Kind::user_defined && piece.kind != SentencePieceModel::Kind::byte,
        origin, ": piece ", index, ", \"", piece.text,
        "\", is a byte or a user-defined symbol, which heed does not support");
  return piece;
}

/// Checks the trainer_spec. Its other fields up to 55, the last known one, tell how the pieces were
/// learned or repeat what the pieces say: whether they cross spaces (split_by_whitespace), and the
/// names and ids of marks.
void check_trainer(std::string_view message, const std::string& origin) {
  each_field(message, origin, [&](const Field& field) {
    const std::uint64_t value = field.integer.value_or(0);
    check(field.number != 3 || value == 1, origin, " is a model of kind ", value,
          " (1: Unigram, 2: BPE, 3: words, 4: characters); heed reads only Unigram");
    check(field.number != 24 || value == 0, origin,
          ": treat_whitespace_as_suffix puts spaces after words, which heed does not support");
    check(field.number != 35 || value == 0, origin,
          ": byte_fallback spells unknown characters in bytes, which heed does not support");
    check(field.number <= 55, origin, " has the field ", field.number,
          " of a trainer_spec, which heed does not know");
  });
}

void read_normaliser(std::string_view message, const std::string& origin, SentencePieceModel& model) {
  each_field(message, origin, [&](const Field& field) {
    check(field.number >= 1 && field.number <= 6, origin, " has the field ", field.number,
          " of a normalizer_spec, which heed does not know");
    if (field.number == 1) model.normaliser = field.bytes;
    if (field.number == 2) model.character_map = field.bytes;
    const auto must_be_true = [&](std::uint64_t number, const char* name) {
      check(field.number != number || field.integer.value_or(0) == 1, origin, ": ", name,
            " is false, which heed does not support");
    };
    must_be_true(3, "add_dummy_prefix");
    must_be_true(4, "remove_extra_whitespaces");
    must_be_true(5, "escape_whitespaces");
  });
}

constexpr const char* other_language = "\x01";
bool is_character(const std::string& token) {
  return static_cast<std::size_t>(unicode::decode(token, 0).length) == token.size();
}

Json replace_step(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Json make_normaliser(const SentencePieceModel& model) {
  Json steps = Json::array({replace_step(other_language, "")});
  // Precompiled looks at one cluster of characters at a time and takes the first match in it, where
  // SentencePiece takes the longest. So letters with several marks, and the parts of Korean syllables, are
  // composed first.
  steps.push_back({{"type", "NFC"}});
  if (!model.character_map.empty())
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(model.character_map)}});
  steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
  steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

bool is_found_in_text(const std::string& token) {
  return token == "</s>" || token == "<unk>" || token == "<pad>" ||
         (token.starts_with(">>") && token.ends_with("<<") && token.size() > 4);
}

Json added_token(std::size_t id, const std::string& token) {
  return {{"id", id},
          {"content", token},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", false},
          {"special", !token.starts_with(">>")}};
}

/// The parts of a tokenizer.json file that list tokens.
struct ListedTokens {
  Json vocabulary = Json::array(), added = Json::array();
  std::size_t unknown = 0;
  std::vector<std::string> without_id;  // pieces of the model that are no tokens, in its order
};

ListedTokens listed_tokens(const SentencePieceModel& model, const std::vector<std::string>& tokens) {
  std::unordered_map<std::string, double> scores;  // of the pieces that texts are split into
  double least = 0;
  for (const SentencePieceModel::Piece& piece : model.pieces)
    if (piece.kind == SentencePieceModel::Kind::normal) {
      scores.emplace(piece.text, piece.score);
      least = std::min(least, piece.score);
    }
  ListedTokens lists;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    const auto piece = scores.find(token);
    const bool found_in_text = is_found_in_text(token);
    if (found_in_text) lists.added.push_back(added_token(id, token));
    if (token == "<unk>") lists.unknown = id;
    if (piece != scores.end())
      lists.vocabulary.push_back(Json::array({token, piece->second}));
    else if (found_in_text)
      lists.vocabulary.push_back(Json::array({token, 0.0}));
    else if (is_character(token))
      lists.vocabulary.push_back(Json::array({token, least - UnigramModel::unknown_penalty}));
    else
      lists.vocabulary.push_back(Json::array({other_language + token, 0.0}));
    if (piece != scores.end()) scores.erase(piece);
  }
  for (const SentencePieceModel::Piece& piece : model.pieces)
    if (scores.contains(piece.text)) lists.without_id.push_back(piece.text);
  return lists;
}

/// Whether texts are split at spaces. Pieces with a space inside mean that the model was trained
/// with split_by_whitespace=false.
bool splits_at_spaces(const SentencePieceModel& model) {
  return std::ranges::none_of(model.pieces, [](const SentencePieceModel::Piece& piece) {
    return piece.kind == SentencePieceModel::Kind::normal &&
           piece.text.find("\u2581", 1) != std::string::npos;
  });
}

/// Returns the decoder for texts split by `metaspace`, or left whole.
Json make_decoder(const Json& metaspace, bool splits) {
  Json decoders = Json::array({replace_step(other_language, "")});
  // The Metaspace decoder would treat every space of the first piece as the added one.
  if (splits)
    decoders.push_back(metaspace);
  else
    for (const Json& step : {replace_step("\u2581", " "), Json{{"type", "Fuse"}},
                             Json{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}})
      decoders.push_back(step);
  return {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
}

}  // namespace

SentencePieceModel read_sentencepiece(std::string_view bytes, const std::string& origin) {
  SentencePieceModel model;
  each_field(bytes, origin, [&](const Field& field) {
    if (field.number == 1) model.pieces.push_back(read_piece(field.bytes, model.pieces.size(), origin));
    if (field.number == 2) check_trainer(field.bytes, origin);
    if (field.number == 3) read_normaliser(field.bytes, origin, model);
    if (field.number == 5)
      each_field(field.bytes, origin, [&](const Field& part) {
        check(part.number != 2 || part.bytes.empty(), origin,
              " changes decoded texts, which heed does not support");
      });
  });
  check(!model.pieces.empty(), origin, " is not a SentencePiece model: it has no pieces");
  // Other normalisers leave tabs, line ends and U+2581 in the text, where the steps of make_normaliser() do not
  // treat them as SentencePiece does.
  check(model.normaliser == "nmt_nfkc" || model.normaliser == "nmt_nfkc_cf", origin,
        ": the name of its normalizer_spec is \"", model.normaliser,
        "\", which heed does not support; it supports nmt_nfkc and nmt_nfkc_cf");
  return model;
}

SentencePieceTokenizer sentencepiece_tokenizer(const SentencePieceModel& model,
                                               const std::vector<std::string>& tokens) {
  for (const char* const mark : {"</s>", "<unk>"})
    check(std::ranges::find(tokens, mark) != tokens.end(), "the vocabulary has no token ", mark);
  ListedTokens lists = listed_tokens(model, tokens);
  const bool splits = splits_at_spaces(model);
  const Json metaspace = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}, {"split", splits}};
  const Json unigram = {{"type", "Unigram"},
                        {"unk_id", lists.unknown},
                        {"vocab", std::move(lists.vocabulary)},
                        {"byte_fallback", false}};
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(lists.added)},
                     {"normalizer", make_normaliser(model)},
                     {"pre_tokenizer", metaspace},
                     {"post_processor", nullptr},
                     {"decoder", make_decoder(metaspace, splits)},
                     {"model", unigram}};
  SentencePieceTokenizer tokenizer;
  tokenizer.json = file.dump();
  tokenizer.without_id = std::move(lists.without_id);
  return tokenizer;
}

}  // namespace heed
