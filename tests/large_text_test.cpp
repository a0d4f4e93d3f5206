#include "heed/data/large_text.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cpu_seconds.h"
#include "heed/base/error.h"
#include "heed/core/random.h"
#include "heed/data/tokenizer.h"
#include "temporary_folder.h"

using namespace heed;

namespace {

namespace fs = std::filesystem;

// For 50 MB. The square takes minutes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double most_cpu_seconds = 200;
#else
constexpr double most_cpu_seconds = 20;
#endif

std::string whole(const LargeText& text) {
  std::string all;
  for (std::size_t i = 0; i < text.size(); ++i) all += text[i].text;
  return all;
}

/// Lines of words of two alphabets, some of them empty or of spaces alone.
std::string some_lines(std::size_t bytes) {
  const std::vector<std::string> words = {"two", " ", "", "\xc3\xa9t\xc3\xa9", "words,", "12", "\t"};
  std::string text;
  for (std::uint64_t i = 0; text.size() < bytes; ++i)
    text.append(words[random_word({1, 0, 0}, i) % words.size()]).append(i % 5 == 4 ? "\n" : " ");
  return text;
}

}  // namespace

TEST_CASE("large text: what goes to a file is read back as what stays in memory") {
  const std::string text = some_lines(3 << 20);
  for (const std::int64_t memory : {std::int64_t{0}, std::int64_t{1} << 20, default_memory_bytes}) {
    Spool spool(memory);
    std::size_t at = 0;
    for (std::uint64_t i = 0; at < text.size(); ++i) {
      const std::size_t count = std::min<std::size_t>(random_word({2, 0, 0}, i) % 700'000, text.size() - at);
      spool.add(std::string_view(text).substr(at, count));
      at += count;
    }
    CHECK(spool.is_in_memory() == (memory == default_memory_bytes));
    CHECK(spool.size() == static_cast<std::int64_t>(text.size()));
    for (std::uint64_t i = 0; i < 200; ++i) {
      const std::size_t begin = random_word({3, 0, 0}, i) % text.size(),
                        count = random_word({4, 0, 0}, i) % (text.size() - begin + 1);
      CHECK(spool.read(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(count)) ==
            text.substr(begin, count));
    }
    CHECK_THROWS_AS(spool.read(spool.size(), 1), Error);
    CHECK_THROWS_AS(spool.read(-1, 1), Error);
    CHECK_THROWS_AS(spool.read(1, INT64_MAX), Error);
  }
}

TEST_CASE("large text: a folder for temporary files that is not there is named") {
  const TemporaryFolder folder;
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", (folder / "missing").c_str(), 1);
  Spool spool(3);
  spool.add("abc");
  CHECK_THROWS_WITH_AS(spool.add("d"), doctest::Contains((folder / "missing").c_str()), Error);
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}

TEST_CASE("large text: a file that is cut into pieces gives the tokens of the whole text") {
  const TemporaryFolder folder;
  const std::string text = some_lines((16 << 20) + 300'000);
  std::ofstream(folder / "text.txt", std::ios::binary) << text;
  LargeText pieces(1 << 20);
  read_large_text(folder / "text.txt", pieces);
  read_large_text(folder / "text.txt", pieces);
  REQUIRE(pieces.size() == 4);
  CHECK(pieces[0].begins);
  CHECK(!pieces[1].begins);
  CHECK(pieces[2].begins);
  CHECK(whole(pieces) == text + text);
  CHECK(pieces[0].text.size() + pieces[1].text.size() == text.size());

  TokenizerTraining training;
  training.vocabulary_size = 300;
  const std::vector<std::string> sample = {some_lines(20'000)};
  for (const Tokenizer& tokenizer :
       {Tokenizer::train(sample, training), Tokenizer::train_words(sample, training, {"\n"}),
        Tokenizer::train_characters(sample, {}, {})}) {
    // Around the cut: the whole would take long.
    const std::string before = pieces[0].text.substr(pieces[0].text.size() - 3000),
                      after = pieces[1].text.substr(0, 3000);
    Tokens apart = tokenizer.encode(before);
    for (const std::int32_t token : tokenizer.encode(after)) apart.push_back(token);
    CHECK(tokenizer.encode(before + after) == apart);
  }
}

TEST_CASE("large text: what has no line break that follows a word is cut in linear time") {
  const TemporaryFolder folder;
  const std::size_t bytes = 50 << 20;
  std::string words, spaces(bytes, ' '), crlf;
  while (words.size() < bytes) words += "word and ";
  while (crlf.size() < bytes) crlf += "word\r\n";
  for (const std::string& text :
       {std::string(bytes, '\n'), std::string(bytes, 'a'), words, spaces, crlf, "a\n" + spaces}) {
    std::ofstream(folder / "text.txt", std::ios::binary) << text;
    LargeText pieces;
    const double begin = cpu_seconds();
    read_large_text(folder / "text.txt", pieces);
    CHECK(cpu_seconds() - begin < most_cpu_seconds);
    REQUIRE(pieces.size() >= 3);
    for (std::size_t i = 0; i < pieces.size(); ++i) CHECK(pieces.bytes(i) <= (16 << 20) + 8);
    CHECK((whole(pieces) == text));
    const std::string second = pieces[1].text.substr(0, 5);
    if (text.starts_with("word and")) CHECK((second == " word" || second == " and "));
    if (text.starts_with("word\r")) CHECK(second == "\r\nwor");
  }
  std::string accents;
  while (accents.size() < (20 << 20)) accents += "\xc3\xa9\xe2\x82\xac";
  std::ofstream(folder / "text.txt", std::ios::binary) << accents;
  LargeText pieces;
  read_large_text(folder / "text.txt", pieces);
  REQUIRE(pieces.size() == 2);
  CHECK((static_cast<unsigned char>(pieces[1].text[0]) & 0xC0) == 0xC0);  // no character is cut
}

TEST_CASE("large text: a text is split at a character, and a document that is cut begins anew") {
  LargeText text;
  text.add("ab\xc3\xa9", true);
  text.add("cd", false);
  text.add("ef", true);
  CHECK(text.characters() == 7);
  for (std::int64_t at = 0; at <= 7; ++at) {
    const auto [first, second] = split_large_text(text, at);
    CHECK(first.characters() == at);
    CHECK(second.characters() == 7 - at);
    CHECK(whole(first) + whole(second) ==
          "ab\xc3\xa9"
          "cdef");
    if (at < 7) CHECK(second[0].begins);
    if (at == 2) CHECK(!second[1].begins);
  }
}

TEST_CASE("large text: a stream holds tokens of two and of four bytes") {
  for (const std::int64_t vocabulary : {std::int64_t{65536}, std::int64_t{65537}}) {
    TokenStream stream(vocabulary, 100);
    Tokens tokens;
    for (std::uint64_t i = 0; i < 2'000'000; ++i)
      tokens.push_back(
          static_cast<std::int32_t>(random_word({5, 0, 0}, i) % static_cast<std::uint64_t>(vocabulary)));
    tokens[7] = static_cast<std::int32_t>(vocabulary - 1);
    stream.add(tokens);
    stream.add(Tokens{});
    REQUIRE(stream.size() == 2'000'000);
    CHECK(stream.read(0, 2'000'000) == tokens);
    CHECK(stream.read(7, 1) == Tokens{static_cast<std::int32_t>(vocabulary - 1)});
    CHECK(stream.read(1'999'999, 1) == Tokens{tokens.back()});
    CHECK_THROWS_WITH_AS(stream.read(1'999'999, 2), doctest::Contains("2000000 tokens has no 2"), Error);
  }
}
