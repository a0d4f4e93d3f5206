#include "heed/apps/data/formats.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "heed/apps/data/table.h"
#include "heed/apps/data/text_file.h"
#include "heed/base/digest.h"
#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/core/random.h"

namespace heed {

// --- dialogues

namespace {

constexpr std::string_view white_space = " \t\r\n\v\f";

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(white_space);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(white_space) + 1 - begin));
}

/// Returns the texts between the marks; the last one is what follows the last mark.
std::vector<std::string> cut_at_marks(std::string_view line) {
  std::vector<std::string> parts;
  for (const std::string_view part : split_at(line, turn_end)) parts.push_back(trimmed(part));
  if (parts.empty()) parts.emplace_back();
  return parts;
}

}  // namespace

Dialogue split_turns(std::string_view line) {
  Dialogue turns = cut_at_marks(line);
  std::erase(turns, "");
  return turns;
}

std::vector<Dialogue> read_dialogues(const TextInput& input, const TextOptions& options, ReadReport* report) {
  TextLines lines(input, options, report);
  std::vector<Dialogue> dialogues;
  while (const auto line = lines.next()) {
    std::vector<std::string> turns = cut_at_marks(*line);
    if (turns.size() == 1 && turns.back().empty())
      fail(lines.place(), ": the line is blank; expected a dialogue whose turns end in ", turn_end);
    if (!turns.back().empty())
      fail(lines.place(), ": ", turns.size() > 1 ? "the last turn" : "the line", " has no ", turn_end,
           " behind it; every turn ends in one");
    turns.pop_back();
    for (std::size_t i = 0; i < turns.size(); ++i)
      if (turns[i].empty()) fail(lines.place(), ": turn ", i + 1, " is empty");
    dialogues.push_back(std::move(turns));
  }
  return dialogues;
}

ParallelText answers_in(const std::vector<Dialogue>& dialogues, std::int64_t context) {
  ParallelText pairs;
  for (const Dialogue& turns : dialogues)
    for (std::size_t i = 1; i < turns.size(); ++i) {
      std::string before;
      const std::size_t first = i - std::min(i, static_cast<std::size_t>(context));
      for (std::size_t j = first; j < i; ++j) {
        if (j > first) before += turn_end;
        before += turns[j];
      }
      pairs.source.push_back(before);
      pairs.target.push_back(turns[i]);
    }
  return pairs;
}

// --- news

namespace {

/// Throws for a row with another number of columns.
void check_columns(const TableRow& row, std::string_view origin, std::size_t columns, const char* names) {
  check(row.fields.size() == columns, origin, ":", row.line, ": the row has ", row.fields.size(),
        " columns between tabs; expected ", columns, ": ", names);
}

/// Takes a number and the mark after it from the front of a text; -1 if the text begins otherwise.
int take_number(std::string_view& text, char mark) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || length >= text.size() || text[length] != mark || length > 4) return -1;
  text.remove_prefix(length + 1);
  return number;
}

/// Parses "11/13/2019 5:53:12 AM" into seconds since 1970; -1 if that fails.
std::int64_t seconds_of(std::string_view text) {
  namespace chrono = std::chrono;
  const int month = take_number(text, '/'), day = take_number(text, '/'), year = take_number(text, ' ');
  const int hour = take_number(text, ':'), minute = take_number(text, ':'), second = take_number(text, ' ');
  if (month < 1 || day < 1 || year < 1970 || hour < 1 || hour > 12 || minute < 0 || minute > 59 ||
      second < 0 || second > 59 || (text != "AM" && text != "PM"))
    return -1;
  const chrono::year_month_day date(chrono::year(year), chrono::month(static_cast<unsigned>(month)),
                                    chrono::day(static_cast<unsigned>(day)));
  if (!date.ok()) return -1;
  const std::int64_t hours = hour % 12 + (text == "PM" ? 12 : 0);
  return chrono::sys_days(date).time_since_epoch().count() * std::int64_t{86400} + hours * 3600 +
         minute * 60 + second;
}

Impression parse_impression(const TableRow& row, std::string_view origin, NewsNames& names) {
  const auto refuse = [&](const auto&... what) { fail(origin, ":", row.line, ": ", what...); };
  Impression impression;
  impression.time = seconds_of(row.fields[2]);
  if (impression.time < 0)
    refuse("\"", row.fields[2], "\" is not a time; expected one like 11/13/2019 5:53:12 AM");
  impression.history = parse_news_ids(row.fields[3], names);
  for (const std::string_view word : split_at(row.fields[4], " ")) {
    if (word.empty()) continue;
    const bool clicked = word.ends_with("-1");
    if (word.size() < 3 || (!clicked && !word.ends_with("-0")))
      refuse("the candidate \"", word, "\" has no -1 (clicked) or -0 after its id");
    (clicked ? impression.clicked : impression.passed)
        .push_back(names.number_of(word.substr(0, word.size() - 2)));
  }
  if (impression.clicked.empty() && impression.passed.empty()) refuse("the row has no candidates");
  return impression;
}

}  // namespace

std::int32_t NewsNames::number_of(std::string_view id) {
  const auto [place, is_new] = numbers_.try_emplace(std::string(id), static_cast<std::int32_t>(size()));
  if (is_new) names_.emplace_back(id);
  return place->second;
}

std::vector<std::int32_t> parse_news_ids(std::string_view text, NewsNames& names) {
  std::vector<std::int32_t> numbers;
  for (const std::string_view word : split_at(text, " "))
    if (!word.empty()) numbers.push_back(names.number_of(word));
  return numbers;
}

std::vector<News> read_news(const TextInput& input, NewsNames& names, const TextOptions& options,
                            ReadReport* report) {
  std::vector<News> all;
  std::unordered_map<std::int32_t, std::pair<std::size_t, std::size_t>> known;  // id: index in all, line
  const auto take = [&](TableRow& row) {
    check_columns(row, input.origin, 8,
                  "id, category, subcategory, title, abstract, url, entities of title and abstract");
    std::vector<std::string>& fields = row.fields;
    check(!fields[0].empty() && fields[0].find(' ') == std::string::npos, input.origin, ":", row.line, ": \"",
          fields[0], "\" is not the id of a news item; expected one like N55528");
    News news{names.number_of(fields[0]), std::move(fields[1]), std::move(fields[2]), std::move(fields[3]),
              std::move(fields[4])};
    const auto [place, is_new] = known.try_emplace(news.number, all.size(), row.line);
    check(is_new || news == all[place->second.first], input.origin, ":", row.line, ": the news ", fields[0],
          " is already in line ", place->second.second, ", with other content; keep one of the two");
    if (is_new) all.push_back(std::move(news));
  };
  read_tsv(input, take, options, report);
  return all;
}

std::vector<Impression> read_impressions(const TextInput& input, NewsNames& names, const TextOptions& options,
                                         ReadReport* report) {
  std::vector<Impression> all;
  const auto take = [&](TableRow& row) {
    check_columns(row, input.origin, 5, "impression id, user id, time, history, impressions");
    all.push_back(parse_impression(row, input.origin, names));
  };
  read_tsv(input, take, options, report);
  return all;
}

ImpressionParts split_impressions(std::vector<Impression> all, const ImpressionSplit& split) {
  const auto count = static_cast<double>(all.size());
  const auto test = static_cast<std::size_t>(std::llround(count * split.test_fraction)),
             valid = static_cast<std::size_t>(std::llround(count * split.valid_fraction));
  check(test + valid < all.size(), "of ", all.size(), " impressions ", valid, " for validation and ", test,
        " for testing leave none for training");
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    return split.by_time ? all[i].time : std::int64_t{random_word({split.seed, 0, 0}, i)};
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  ImpressionParts parts;
  std::vector<std::vector<Impression>*> part_of(all.size(), &parts.train);
  for (std::size_t i = 0; i < test + valid; ++i)
    part_of[order[order.size() - 1 - i]] = i < test ? &parts.test : &parts.valid;
  for (std::size_t i = 0; i < all.size(); ++i) part_of[i]->push_back(std::move(all[i]));
  return parts;
}

std::string impressions_digest(std::span<const Impression> impressions, const NewsNames& names) {
  Digest digest;
  for (const Impression& one : impressions) {
    digest.add(std::to_string(one.time));
    for (const auto* list : {&one.history, &one.clicked, &one.passed}) {
      for (const std::int32_t number : *list) digest.add(names.name(number) + " ");
      digest.add("\t");
    }
    digest.add("\n");
  }
  return digest.hex();
}

// --- images

namespace {

constexpr std::int64_t images_magic = 2051, labels_magic = 2049;

/// Reads the values of a file, and fills in its extents.
std::string read_values(std::string_view bytes, std::string_view origin, std::uint64_t max_bytes,
                        std::int64_t magic, std::span<std::int64_t> extents) {
  std::string content = is_gzip(bytes) ? gunzip(bytes, origin, max_bytes) : std::string(bytes);
  const std::size_t header = 4 * (extents.size() + 1);
  const auto number = [&](std::size_t place) {
    std::int64_t value = 0;
    for (std::size_t i = 4 * place; i < 4 * place + 4; ++i)
      value = value << 8 | static_cast<unsigned char>(content[i]);
    return value;
  };
  check(content.size() >= 4 && number(0) == magic, origin, ": no IDX file of ",
        magic == images_magic ? "images" : "labels", ": it does not begin with the magic number ", magic,
        content.size() >= 4 ? concat_text(" but with ", number(0)) : "");
  check(content.size() >= header, origin, ": the IDX file ends within its header");
  std::int64_t count = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    extents[i] = number(i + 1);
    check(extents[i] > 0, origin, ": extent ", i + 1, " of the IDX file is 0");
    count = checked_product(origin, count, extents[i]);
  }
  check(static_cast<std::uint64_t>(count) == content.size() - header, origin, ": the IDX file says that ",
        count, " values follow, but there are ", content.size() - header);
  content.erase(0, header);
  return content;
}

}  // namespace

Images parse_idx_images(std::string_view bytes, std::string_view origin, std::uint64_t max_bytes) {
  std::array<std::int64_t, 3> extents{};
  const std::string values = read_values(bytes, origin, max_bytes, images_magic, extents);
  Images images{extents[1], extents[2], {}};
  const auto size = static_cast<std::size_t>(images.rows * images.columns);
  for (std::size_t begin = 0; begin < values.size(); begin += size)
    images.pixels.push_back(std::string_view(values).substr(begin, size));
  return images;
}

std::vector<std::uint8_t> parse_idx_labels(std::string_view bytes, std::string_view origin,
                                           std::uint64_t max_bytes) {
  std::array<std::int64_t, 1> extents{};
  const std::string values = read_values(bytes, origin, max_bytes, labels_magic, extents);
  return {values.begin(), values.end()};
}

std::string image_line(const Images& images, std::size_t index) {
  check(index < images.pixels.size(), "image_line: there is no image ", index, " among ",
        images.pixels.size());
  std::string line = concat_text(images.rows, ' ', images.columns);
  for (const char value : images.pixels[index])
    line.append(" ").append(std::to_string(static_cast<unsigned char>(value)));
  return line;
}

Images parse_image_line(std::string_view line) {
  std::vector<std::int64_t> numbers;
  for (const std::string_view word : split_at(line, " ")) {
    if (word.empty()) continue;
    std::int64_t& value = numbers.emplace_back(-1);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    check(error == std::errc() && value >= 0 && end == word.data() + word.size(),
          "an image is a line of numbers (rows, columns, and the values 0 to 255 row by row), but number ",
          numbers.size(), " is none");
  }
  check(numbers.size() > 2, "an image is a line of its rows, columns and values, but there are only ",
        numbers.size(), " numbers");
  Images image{numbers[0], numbers[1], {}};
  const std::int64_t size = checked_product("an image", image.rows, image.columns);
  check(static_cast<std::uint64_t>(size) == numbers.size() - 2, "an image of ", image.rows, " x ",
        image.columns, " has ", size, " values, but ", numbers.size() - 2, " follow");
  std::string pixels;
  for (std::size_t i = 2; i < numbers.size(); ++i) {
    check(numbers[i] <= 255, "the values of an image are 0 to 255, but value ", i - 1, " is ", numbers[i]);
    pixels += static_cast<char>(numbers[i]);
  }
  image.pixels.push_back(pixels);
  return image;
}

bool is_idx_name(const std::filesystem::path& path) {
  return path.filename().string().find("idx3") != std::string::npos;
}

LabelledText read_labelled_images(const std::filesystem::path& path, std::filesystem::path labels_path,
                                  const TextOptions& options) {
  if (labels_path.empty()) {
    std::string name = path.filename().string();
    const std::size_t images = name.find("images");
    check(images != std::string::npos && is_idx_name(path), path.string(),
          ": the name does not tell where the labels are; give data.labels, the file of labels");
    name.replace(images, 6, "labels");
    name.replace(name.find("idx3"), 4, "idx1");
    labels_path = path.parent_path() / name;
  }
  const Images images = parse_idx_images(read_limited_file(path, options), path.string(), options.max_bytes);
  const std::vector<std::uint8_t> labels =
      parse_idx_labels(read_limited_file(labels_path, options), labels_path.string(), options.max_bytes);
  check(images.pixels.size() == labels.size(), path.string(), " has ", images.pixels.size(), " images, but ",
        labels_path.string(), " has ", labels.size(), " labels");
  LabelledText text;
  for (std::size_t i = 0; i < labels.size(); ++i)
    text.add(image_line(images, i), std::to_string(labels[i]), path.string() + ": image ", i + 1);
  return text;
}

}  // namespace heed
