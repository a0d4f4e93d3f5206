// Model files of SentencePiece, written here by hand, field by field.

#include <doctest/doctest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/data/sentencepiece.h"
#include "heed/data/tokenizer.h"

namespace {

using namespace heed;

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}

std::string field(std::uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string field(std::uint64_t number, std::uint64_t value) {
  return varint(number << 3) + varint(value);
}

std::string piece(const std::string& text, float score, std::uint64_t kind = 1) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  std::string number = varint(2 << 3 | 5);
  for (int i = 0; i < 4; ++i) number += static_cast<char>(bits >> (8 * i) & 0xFF);
  return field(1, field(1, text) + number + field(3, kind));
}

const std::string english = piece("<unk>", 0, 2) + piece("</s>", 0, 3) + piece("\u2581", -2) +
                            piece("\u2581the", -3) + piece("tree", -4) + piece("t", -6) + piece("h", -6) +
                            piece("e", -6) + piece("rare", -9);

std::string refusal(const std::string& bytes) {
  try {
    read_sentencepiece(bytes, "a.spm");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const std::vector<std::string> tokens = {"</s>", "<unk>",      "\u2581", "\u2581the", "tree",    "t",    "h",
                                         "e",    "\u2581Baum", "\u00fc", "die",       ">>deu<<", "<pad>"};

}  // namespace

TEST_CASE("sentencepiece: a model is cut as it says, with the ids of a list that two languages share") {
  const SentencePieceModel model = read_sentencepiece(english + field(2, field(3, 1)), "a.spm");
  CHECK(model.pieces.size() == 9);
  CHECK(model.pieces[3].text == "\u2581the");
  CHECK(model.pieces[3].score == -3);
  const SentencePieceTokenizer made = sentencepiece_tokenizer(model, tokens);
  CHECK(made.without_id == std::vector<std::string>{"rare"});
  const Tokenizer tokenizer = Tokenizer::from_json(made.json, "made");
  const auto ids = [&](const char* text) { return tokenizer.encode(text); };
  CHECK(ids("the tree") == std::vector<std::int32_t>{3, 2, 4});
  CHECK(ids("  the   tree ") == std::vector<std::int32_t>{3, 2, 4});
  CHECK(ids("het") == std::vector<std::int32_t>{2, 6, 7, 5});
  // What the other language alone has is cut into what this one knows, but for characters.
  CHECK(ids("die") == std::vector<std::int32_t>{2, 1, 7});
  CHECK(ids("\u00fc") == std::vector<std::int32_t>{2, 9});
  CHECK(ids(">>deu<< the") == std::vector<std::int32_t>{11, 3});
  CHECK(ids("\x01tree") == ids("tree"));
  CHECK(tokenizer.decode(std::vector<std::int32_t>{10, 8, 9, 12, 0}) == "die Baum\u00fc");
  // The file is one that is read again.
  CHECK(Tokenizer::from_json(tokenizer.to_json(), "again").encode("the t\u00fc") == ids("the t\u00fc"));
  CHECK_THROWS_WITH_AS(sentencepiece_tokenizer(model, {"<unk>", "a"}), doctest::Contains("no token </s>"),
                       Error);
}

TEST_CASE("sentencepiece: what NFKC joins is one character before the model cuts") {
  const std::string korean = piece("<unk>", 0, 2) + piece("</s>", 0, 3) + piece("\u2581", -2) +
                             piece("\ud55c", -3) + piece("\u1ec7", -3);
  const std::vector<std::string> list = {"</s>", "<unk>", "\u2581", "\ud55c", "\u1ec7"};
  const auto ids = [&](const std::string& rule, const char* text) {
    const SentencePieceModel model =
        read_sentencepiece(korean + field(3, field(1, rule) + field(3, 1)), "a.spm");
    return Tokenizer::from_json(sentencepiece_tokenizer(model, list).json, "made").encode(text);
  };
  for (const char* rule : {"nmt_nfkc", "nfkc_cf"}) {
    CHECK(ids(rule, "\u1112\u1161\u11ab") == std::vector<std::int32_t>{2, 3});
    CHECK(ids(rule, "e\u0323\u0302") == std::vector<std::int32_t>{2, 4});
  }
  CHECK(ids("identity", "e\u0323\u0302") == std::vector<std::int32_t>{2, 1});
}

TEST_CASE("sentencepiece: what a tokenizer.json cannot say is refused by name") {
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(refusal(english + field(3, field(3, 1) + field(4, 1) + field(5, 1))).empty());
  CHECK(contains(refusal(english + field(2, field(3, 2))), "model of kind 2"));
  CHECK(contains(refusal(english + field(2, field(24, 1))), "spaces behind words"));
  CHECK(contains(refusal(english + field(3, field(3, 0))), "add_dummy_prefix is false"));
  CHECK(contains(refusal(english + field(3, field(4, 0))), "remove_extra_whitespaces is false"));
  CHECK(contains(refusal(english + field(3, field(5, 0))), "escape_whitespaces is false"));
  CHECK(contains(refusal(english + field(5, field(2, "x"))), "when they are decoded"));
  CHECK(contains(refusal(english + piece("mine", 0, 4)), "piece 9, \"mine\""));
  CHECK(contains(refusal(english + piece("<0x41>", 0, 6)), "piece 9, \"<0x41>\""));
  CHECK(contains(refusal(english + piece("a", 0, 7)), "kind 7"));
  CHECK(contains(refusal(english + piece("\xFF", 0)), "piece 9 is no text"));
  CHECK(contains(refusal(english + piece("a", std::bit_cast<float>(0x7FC00000u))), "the score of piece 9"));
  CHECK(contains(refusal(""), "no pieces"));
  CHECK(contains(refusal("{\"model\": 1}"), "a.spm is not a SentencePiece model"));
}

TEST_CASE("sentencepiece: every cut and every changed byte gives an Error or a model") {
  for (std::size_t at = 0; at < english.size(); ++at) {
    refusal(english.substr(0, at));
    for (const int flip : {1, 0x80, 0xFF}) {
      std::string changed = english;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      try {
        const SentencePieceModel model = read_sentencepiece(changed, "a.spm");
        Tokenizer::from_json(sentencepiece_tokenizer(model, tokens).json, "made").encode("the tree");
      } catch (const Error&) {
      }
    }
  }
  CHECK(refusal(english.substr(0, english.size() - 1)) != "");
}
