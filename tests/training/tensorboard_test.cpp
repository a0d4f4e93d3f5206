// TensorBoard's event files: checksums, framing, and what stands in them after a run was resumed.

#include "heed/training/tensorboard.h"
#include "heed/tests/support.h"

#include <bit>

namespace {

namespace fs = std::filesystem;

// A reader of its own, after the formats' descriptions, that shares nothing with the writer but the checksum,
// which is held to known values below.

template <class T>
T number_at(std::string_view bytes, std::size_t at) {
  T value{};
  REQUIRE(at + sizeof value <= bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof value);  // little-endian, as this machine is
  return value;
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

std::vector<std::string> event_records(std::string_view file) {
  std::vector<std::string> records;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = number_at<std::uint64_t>(file, at);
    CHECK(number_at<std::uint32_t>(file, at + 8) == masked_crc(file.substr(at, 8)));
    REQUIRE(at + 16 + length <= file.size());
    records.emplace_back(file.substr(at + 12, length));
    CHECK(number_at<std::uint32_t>(file, at + 12 + length) == masked_crc(records.back()));
    at += 16 + length;
  }
  return records;
}

/// A protobuf message: field -> its values, numbers as their bits.
struct Message {
  std::map<int, std::uint64_t> numbers;
  std::map<int, std::vector<std::string>> texts;
};

Message message_of(std::string_view bytes) {
  Message message;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      REQUIRE(at < bytes.size());
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      value |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.size()) {
    const std::uint64_t key = varint();
    const int field = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0:
        message.numbers[field] = varint();
        break;
      case 1:
        message.numbers[field] = number_at<std::uint64_t>(bytes, at);
        at += 8;
        break;
      case 5:
        message.numbers[field] = number_at<std::uint32_t>(bytes, at);
        at += 4;
        break;
      case 2: {
        const auto length = static_cast<std::size_t>(varint());
        REQUIRE(at + length <= bytes.size());
        message.texts[field].emplace_back(bytes.substr(at, length));
        at += length;
        break;
      }
      default:
        FAIL("unknown kind of a field");
    }
  }
  return message;
}

using Scalars = std::map<std::string, std::map<std::int64_t, float>>;  // tag -> step -> value

/// All scalars of a folder; a step that stands there twice fails.
Scalars scalars_of(const fs::path& folder) {
  Scalars scalars;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::vector<std::string> records = event_records(read_file(entry.path()));
    REQUIRE_FALSE(records.empty());
    CHECK(message_of(records[0]).texts[3].at(0) == "brain.Event:2");
    for (const std::string& record : records) {
      Message event = message_of(record);
      CHECK(std::bit_cast<double>(event.numbers.at(1)) > 1.6e9);  // seconds since 1970
      for (const std::string& bytes : event.texts[5]) {
        Message summary = message_of(bytes);
        for (const std::string& text : summary.texts[1]) {
          Message value = message_of(text);
          const auto bits = static_cast<std::uint32_t>(value.numbers.at(2));
          const auto [place, is_new] = scalars[value.texts[1].at(0)].emplace(
              static_cast<std::int64_t>(event.numbers.at(2)), std::bit_cast<float>(bits));
          CHECK(is_new);
        }
      }
    }
  }
  return scalars;
}

Progress record_at(std::int64_t step) {
  Progress progress;
  progress.step = step;
  progress.loss = 1.0 / static_cast<double>(step);
  progress.learning_rate = 0.25;
  progress.auxiliary = {{"clustering", -2.5}};
  progress.memory_bytes = 3'000'000;
  return progress;
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("tensorboard: CRC-32C of known texts") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);  // RFC 3720, appendix B.4
  CHECK(crc32c(std::string(32, '\xff')) == 0x62A8AB43U);
}

TEST_CASE("tensorboard: every figure of a record has its tag") {
  const TemporaryFolder folder;
  TensorBoardLog log(OpenFolder(folder.path()), 0, {});
  log.append(record_at(300));
  Progress evaluation{.step = 300};
  evaluation.metrics = {{"accuracy", 0.5}};
  log.append(evaluation);
  const Scalars scalars = scalars_of(folder / "tensorboard");
  CHECK(scalars.at("loss/train").at(300) == doctest::Approx(1.0 / 300));
  CHECK(scalars.at("loss/clustering").at(300) == -2.5F);
  CHECK(scalars.at("training/learning_rate").at(300) == 0.25F);
  CHECK(scalars.at("speed/memory_mb").at(300) == 3);
  CHECK(scalars.at("validation/accuracy").at(300) == 0.5F);
  CHECK(scalars.at("loss/train").size() == 1);
}

TEST_CASE("tensorboard: a run that goes on has every step once") {
  const TemporaryFolder folder;
  {
    TensorBoardLog log(OpenFolder(folder.path()), 0, {});
    for (int step = 1; step <= 200; ++step) log.append(record_at(step));
  }
  // The checkpoint was made in step 150; the process was killed later, in the middle of a record.
  std::ofstream(fs::directory_iterator(folder / "tensorboard")->path(), std::ios::app) << "torn";
  {
    const std::vector<Progress> earlier = {record_at(1)};  // what is there already is not written again
    TensorBoardLog log(OpenFolder(folder.path()), 150, earlier);
    for (int step = 151; step <= 180; ++step) log.append(record_at(step));
  }
  CHECK(files_in(folder / "tensorboard") == 2);
  const Scalars scalars = scalars_of(folder / "tensorboard");
  const auto& losses = scalars.at("loss/train");
  CHECK(losses.size() == 180);
  CHECK(losses.rbegin()->first == 180);
}

TEST_CASE("tensorboard: asked for late, the files begin with what the run has recorded") {
  const TemporaryFolder folder;
  const std::vector<Progress> earlier = {record_at(10), record_at(20)};
  TensorBoardLog log(OpenFolder(folder.path()), 20, earlier);
  log.append(record_at(30));
  CHECK(scalars_of(folder / "tensorboard").at("loss/train").size() == 3);
}

TEST_CASE("tensorboard: a folder that cannot be written to is said once") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "tensorboard", "a file");
  int said = 0;
  TensorBoardLog log(OpenFolder(folder.path()), 0, {}, [&](std::string_view) { ++said; });
  log.append(record_at(1));
  log.append(record_at(2));
  CHECK(said == 1);
}
