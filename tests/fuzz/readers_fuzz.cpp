// Fuzzers of what reads texts and data.

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "fuzz_support.h"
#include "heed/apps/data/formats.h"
#include "heed/apps/data/labelled_text.h"
#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"
#include "heed/base/unicode.h"
#include "heed/text/tokenizer_parts.h"
#include "heed/training/text_metrics.h"

namespace heed::fuzz {
namespace {

namespace fs = std::filesystem;

bool is_utf8(std::string_view text) {
  return unicode::find_invalid(text) == std::string::npos;
}

}  // namespace

// Any bytes as a text file, gzip included: an Error or lines of valid UTF-8 that the word split leaves
// whole. Where bad bytes are replaced, they give no Error.
bool fuzz_text(std::string_view bytes) {
  const MemoryFile file(bytes);
  bool any = false;
  for (const auto encoding : {Encoding::utf8, Encoding::latin1, Encoding::cp1252}) {
    for (const auto bad_bytes : {BadBytes::error, BadBytes::replace}) {
      ReadReport report;
      const TextOptions options{.encoding = encoding, .bad_bytes = bad_bytes, .max_bytes = 1 << 20};
      bool good = accepted(
          [&] {
            for (const auto& line : read_lines({bytes, "input"}, options, &report)) {
              require(is_utf8(line));
              bleu_tokenize(unicode::lower_case(line, unicode::FinalSigma::final));
            }
          },
          "input:");
      good &= accepted([&] {
        read_text_by_lines(file.name(), options, [](std::string_view line) { require(is_utf8(line)); });
      });
      any = any || good;
      const bool is_text = bytes.size() > 3 && !is_gzip(bytes) && bytes.size() < 1 << 20;
      require(good || bad_bytes != BadBytes::replace || !is_text);
      require(bad_bytes == BadBytes::replace || report.replaced == 0);
    }
  }
  for (const WordSplit split : {WordSplit::gpt2, WordSplit::whole}) {
    std::size_t length = 0;
    for (const auto word : split_words(bytes, split)) length += word.size();
    require(length == bytes.size());
  }
  for (const auto form : {unicode::Form::nfc, unicode::Form::nfkd}) unicode::normalize(bytes, form);
  require(is_utf8(unicode::replace_invalid(bytes)));
  return any;
}

// Any bytes as input by lines: the very lines that read_lines gives, or for each an error where that stops at
// the first.
bool fuzz_line_reader(std::string_view bytes) {
  const FuzzInput input(bytes);
  const MemoryFile file(input.bytes);
  const TextOptions options = input.text_options();
  std::vector<std::string> lines;
  bool all_are_good = true;
  all_are_good &= accepted([&] {
    LineReader reader(file.name(), options);
    for (auto some = reader.next(3); !some.empty(); some = reader.next(3)) {
      require(some.size() <= 3);
      for (const InputLine& line : some) {
        require(line.error.empty() || line.text.empty());
        require(is_utf8(line.text));
        all_are_good = all_are_good && line.error.empty();
        lines.push_back(line.text);
      }
      require(reader.line_number() == static_cast<std::int64_t>(lines.size()));
    }
  });
  const bool whole_is_good = accepted([&] {
    const auto whole = read_lines({input.bytes, "input"}, options);
    require(all_are_good && whole == TextList(lines));
  });
  // An empty file and one that is too long are not errors by lines.
  require(whole_is_good || !all_are_good || lines.empty() || input.bytes.size() > 64);
  return whole_is_good;
}

// Any bytes as a gzip file: an Error or content within the limit, the same whether the bytes come together or
// in pieces.
bool fuzz_gzip(std::string_view bytes) {
  const FuzzInput input(bytes);
  constexpr std::uint64_t most = 1 << 16;
  std::string whole, pieces;
  const bool whole_is_good = accepted([&] {
    whole = gunzip(input.bytes, "input", most);
    require(whole.size() <= most);
  });
  const bool pieces_are_good =
      accepted([&] {
        const std::size_t step = input.choice + 1;
        GzipReader reader(
            [rest = input.bytes, step]() mutable {
              const std::string_view piece = rest.substr(0, step);
              rest.remove_prefix(piece.size());
              return piece;
            },
            "input");
        for (std::string_view piece; pieces.size() <= most && !(piece = reader.next()).empty();)
          pieces += piece;
      }) &&
      pieces.size() <= most;
  require(whole_is_good == pieces_are_good);
  require(!whole_is_good || whole == pieces);
  return whole_is_good;
}

// Any bytes as rows: an Error, or rows of one width whose fields are UTF-8. Byte 0 chooses options.
bool fuzz_csv(std::string_view bytes) {
  const FuzzInput input(bytes);
  bool any = false;
  for (const bool csv : {true, false})
    any |= accepted([&] {
      std::size_t line = 0, width = 0;
      const auto take = [&](TableRow& row) {
        require(row.line > line && (width == 0 || row.fields.size() == width));
        line = row.line;
        width = row.fields.size();
        for (const std::string& field : row.fields) require(is_utf8(field));
      };
      if (csv)
        read_csv({input.bytes, "input"}, take, input.text_options(), nullptr, '\0');
      else
        read_tsv({input.bytes, "input"}, take, input.text_options());
    });
  return any;
}

// Any bytes as a table: an Error, or rows with a text for each column, in UTF-8. Byte 0 chooses options.
bool fuzz_table(std::string_view bytes) {
  const FuzzInput input(bytes);
  TableOptions options;
  options.text = input.text_options();
  options.header = (input.choice & 8) != 0 ? Header::present : Header::detected;
  if (input.choice & 32) options.columns = {"2", "a"};
  if (input.choice & 64) options.columns = {"1"};
  bool any = false;
  for (const std::string& format : table_formats()) {
    options.format = format;
    any |= accepted([&] {
      std::size_t rows = 0;
      const auto take = [&](const TableCells& row) {
        ++rows;
        require(row.names.size() == row.cells.size());
        for (const std::string& text : row.cells) require(is_utf8(text));
      };
      read_table_rows({input.bytes, "input"}, options, take);
      require(rows > 0);
    });
  }
  return any;
}

// Any bytes as dialogues: an Error, or turns that say something and are UTF-8.
bool fuzz_dialogues(std::string_view bytes) {
  const FuzzInput input(bytes);
  return accepted([&] {
    const auto dialogues = read_dialogues({input.bytes, "input"}, input.text_options());
    for (const Dialogue& turns : dialogues) {
      require(!turns.empty());
      for (const std::string& turn : turns)
        require(!turn.empty() && turn.find(turn_end) == std::string::npos && is_utf8(turn));
    }
    require(answers_in(dialogues, 2).source.size() == answers_in(dialogues, 1).target.size());
  });
}

// Any bytes as labelled texts: an Error, or texts that all have a label, and parts that hold each of them
// once. Byte 0 chooses options of texts, byte 1 those of the format.
bool fuzz_labelled_text(std::string_view bytes) {
  const FuzzInput input(bytes), format(input.bytes);
  const unsigned choice = format.choice;
  LabelledOptions options;
  options.format = labelled_formats()[choice % 3];  // not folders
  options.text = input.text_options();
  if (options.format != "lines") {
    options.label_column = std::to_string(1 + (choice >> 2 & 3));
    if (choice & 16) options.text_columns = {std::to_string(1 + (choice >> 5 & 3))};
    options.header = (choice & 128) != 0 ? Header::present : Header::detected;
  }
  return accepted([&] {
    ReadReport report;
    const auto text = read_labelled_text({format.bytes, "input"}, options, &report);
    require(text.size() > 0 && text.labels.size() == text.size() && text.places.size() == text.size());
    require(report.replaced == 0 || options.text.bad_bytes == BadBytes::replace);
    for (const std::string_view label : text.labels) require(!label.empty());
    const auto parts =
        split_text(text, {.valid_fraction = 0.2, .test_fraction = 0.3, .stratified = choice % 2 == 0});
    require(parts.train.size() + parts.valid.size() + parts.test.size() == text.size());
    require(classes_of(text, class_names(text)).size() == text.size());
  });
}

namespace {

/// A folder for this process, emptied for each input and gone at the end.
struct FuzzFolder {
  fs::path path = fs::temp_directory_path() / ("heed_folders_fuzz_" + std::to_string(::getpid()));
  ~FuzzFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

// A folder made from the input: entries are divided by 0xFE, and each is a byte that chooses its kind, a name
// of two bytes (one of 16 classes, one of 256 documents) and content. It is an Error or texts, and never more
// than documents.
bool fuzz_folders(std::string_view bytes) {
  static const FuzzFolder folder;
  const FuzzInput input(bytes);
  fs::remove_all(folder.path);
  fs::create_directories(folder.path);
  std::size_t documents = 0;
  for (std::string_view rest = input.bytes; rest.size() >= 3 && documents < 32;) {
    const std::string_view entry = rest.substr(0, rest.find('\xfe'));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    if (entry.size() < 3) continue;
    const auto byte = [&](std::size_t i) {
      return static_cast<unsigned>(static_cast<unsigned char>(entry[i]));
    };
    const fs::path group = folder.path / ("class " + std::to_string(byte(1) % 16));
    const char name = byte(2) == 0 || byte(2) == '/' || byte(2) == '.' ? 'x' : entry[2];
    const fs::path document = group / std::string(1, name);
    std::error_code taken;  // what an earlier entry made stays
    fs::create_directory(group, taken);
    ++documents;
    if (byte(0) % 64 == 1) {
      fs::create_directory(document, taken);
    } else if (byte(0) % 64 == 2) {
      ::mkfifo(document.c_str(), 0600);
    } else if (byte(0) % 64 == 3) {
      fs::create_symlink("nowhere", document, taken);
    } else if (byte(0) % 64 == 4) {
      if (!fs::exists(folder.path / "beside")) std::ofstream(folder.path / "beside") << "text";
    } else if (!fs::exists(fs::symlink_status(document))) {
      std::ofstream(document, std::ios::binary) << entry.substr(3);
    }
  }
  return accepted([&] {
    const auto text = read_labelled_text(folder.path, {.text = input.text_options()});
    require(text.size() > 0 && text.size() <= documents);
  });
}

// Any bytes as MIND's files: an Error, or news and impressions whose numbers have names. Byte 0 chooses
// options.
bool fuzz_mind(std::string_view bytes) {
  const FuzzInput input(bytes);
  NewsNames names;
  const auto known = [&](std::int32_t number) { return number >= 0 && std::size_t(number) < names.size(); };
  const bool is_news = accepted([&] {
    for (const News& news : read_news({input.bytes, "input"}, names, input.text_options()))
      require(known(news.number) && !names.name(news.number).empty());
  });
  const bool is_impressions = accepted([&] {
    for (const Impression& one : read_impressions({input.bytes, "input"}, names, input.text_options())) {
      require(one.time >= 0 && one.clicked.size() + one.passed.size() > 0);
      for (const auto* list : {&one.history, &one.clicked, &one.passed})
        for (const std::int32_t number : *list) require(known(number));
    }
  });
  return is_news || is_impressions;
}

// Any bytes as an IDX file of images or labels, or as the line of an image: an Error, or images that come
// back the same from their lines.
bool fuzz_idx(std::string_view bytes) {
  const FuzzInput input(bytes);
  constexpr std::uint64_t most = 1 << 16;
  return accepted([&] {
    if (input.choice % 3 == 0) require(!parse_idx_labels(input.bytes, "input", most).empty());
    if (input.choice % 3 == 1) {
      const Images images = parse_idx_images(input.bytes, "input", most);
      require(!images.pixels.empty());
      const Images again = parse_image_line(image_line(images, 0));
      require(again.rows == images.rows && again.columns == images.columns &&
              again.pixels[0] == images.pixels[0]);
    }
    if (input.choice % 3 == 2) {
      const Images image = parse_image_line(input.bytes);
      require(image.pixels[0].size() == static_cast<std::size_t>(image.rows * image.columns));
    }
  });
}

// Any bytes as vectors of words, whose width the first byte chooses: an Error, or words that are UTF-8 with
// finite numbers.
bool fuzz_word_vectors(std::string_view bytes) {
  const FuzzInput input(bytes);
  const MemoryFile file(input.bytes);
  const std::size_t width = 1 + input.choice % 4;
  return accepted([&] {
    read_word_vectors(file.name(), static_cast<std::int64_t>(width),
                      [&](std::string_view word, std::span<const float> values) {
                        require(is_utf8(word) && values.size() == width);
                        for (const float value : values) require(std::isfinite(value));
                      });
  });
}

}  // namespace heed::fuzz
