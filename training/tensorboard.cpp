#include "heed/training/tensorboard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "heed/base/error.h"
#include "heed/base/plain_numbers.h"

namespace heed {
namespace {

constexpr std::string_view file_start = "events.out.tfevents.", file_end = ".heed";
constexpr std::size_t frame_bytes = 8 + 4 + 4;  // of a record, besides its contents

// --- protobuf: a field is its number and kind, then its value

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i, value = static_cast<T>(value >> 8))
    bytes += static_cast<char>(value & 0xFF);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>((value & 127) | 128);
  return bytes += static_cast<char>(value);
}

std::string key(int field, int kind) {
  return varint(static_cast<std::uint64_t>(field) * 8 + static_cast<std::uint64_t>(kind));
}
std::string integer_field(int field, std::int64_t value) {
  return key(field, 0) + varint(static_cast<std::uint64_t>(value));
}
std::string double_field(int field, double value) {
  return key(field, 1) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string float_field(int field, float value) {
  return key(field, 5) + little_endian(std::bit_cast<std::uint32_t>(value));
}
std::string bytes_field(int field, std::string_view value) {
  return key(field, 2) + varint(value.size()) + std::string(value);
}

/// Encodes an Event: wall_time = 1, step = 2, then one of file_version = 3, summary = 5,
/// session_log = 7.
std::string event(double wall_time, std::int64_t step, const std::string& what) {
  return double_field(1, wall_time) + integer_field(2, step) + what;
}

/// Encodes Summary.value = 1: tag = 1, simple_value = 2.
std::string scalar(const std::string& tag, double value) {
  return bytes_field(1, bytes_field(1, tag) + float_field(2, static_cast<float>(value)));
}

/// Masks a CRC by rotating it and adding a constant, because the CRC of data that contains CRCs is
/// weak.
std::uint32_t masked(std::uint32_t crc) {
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// --- existing event files

std::uint64_t read_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

/// Returns the step of an event as written above: it follows wall_time, which takes 9 bytes.
std::optional<std::int64_t> parse_step(std::string_view bytes) {
  if (bytes.size() < 11 || bytes[9] != static_cast<char>(2 * 8)) return std::nullopt;
  std::uint64_t step = 0;
  for (std::size_t i = 10, shift = 0; i < bytes.size() && shift < 64; ++i, shift += 7) {
    step |= (static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) & 127) << shift;
    if ((static_cast<unsigned char>(bytes[i]) & 128) == 0) return static_cast<std::int64_t>(step);
  }
  return std::nullopt;
}

/// Returns the number of bytes in a file that belong to complete events up to `step`.
std::size_t bytes_up_to(std::string_view file, std::int64_t step) {
  std::size_t at = 0;
  while (file.size() - at >= frame_bytes) {
    const std::uint64_t length = read_little_endian(file.substr(at));
    if (length > file.size() - at - frame_bytes) break;
    const std::optional<std::int64_t> found = parse_step(file.substr(at + 12, length));
    if (!found || *found > step) break;
    at += frame_bytes + static_cast<std::size_t>(length);
  }
  return at;
}

/// Returns the event files of a folder, oldest first.
std::vector<std::string> files_in(const OpenFolder& folder) {
  std::vector<std::string> files = folder.names();
  std::erase_if(files, [](const std::string& name) {
    return !name.starts_with(file_start) || !name.ends_with(file_end);
  });
  return files;
}

/// Returns a name that sorts after the existing ones, since TensorBoard reads files in name order.
std::string next_name(const std::vector<std::string>& files) {
  const auto name_of = [](long long seconds) {
    return std::string(file_start).append(formatted("%010lld", seconds)).append(file_end);
  };
  auto seconds = static_cast<long long>(now());
  while (!files.empty() && name_of(seconds) <= files.back()) ++seconds;
  return name_of(seconds);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> rows{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      rows[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        rows[i] = (rows[i] >> 1) ^ ((rows[i] & 1) != 0 ? 0x82F63B78U : 0);  // 0x1EDC6F41 mirrored
    }
    return rows;
  }();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

std::string tfrecord(std::string_view bytes) {
  const std::string length = little_endian(static_cast<std::uint64_t>(bytes.size()));
  return length + little_endian(masked(crc32c(length))) + std::string(bytes) +
         little_endian(masked(crc32c(bytes)));
}

std::string scalar_event(const Progress& progress, double wall_time) {
  std::string summary;
  for (const auto& [name, value] : progress.metrics) summary += scalar("validation/" + name, value);
  if (!progress.is_evaluation()) {
    summary += scalar("loss/train", progress.loss);
    for (const auto& [name, value] : progress.auxiliary) summary += scalar("loss/" + name, value);
    summary += scalar("training/learning_rate", progress.learning_rate);
    summary += scalar("training/gradient_norm", progress.gradient_norm);
    summary += scalar("speed/" + progress.unit + "_per_second", progress.tokens_per_second);
    if (progress.memory_bytes > 0)
      summary += scalar("speed/memory_mb", static_cast<double>(progress.memory_bytes) / 1e6);
  }
  return event(wall_time, progress.step, bytes_field(5, summary));
}

TensorBoardLog::TensorBoardLog(const OpenFolder& run, std::int64_t step, std::span<const Progress> earlier,
                               std::function<void(std::string_view)> remark)
    : remark_(std::move(remark)) {
  attempt([&] {
    folder_ = run.make_folder("tensorboard");
    const std::vector<std::string> files = files_in(*folder_);
    for (const std::string& file : files) {
      const std::string content = folder_->read(file);
      const std::size_t kept = bytes_up_to(content, step);
      if (kept < content.size()) folder_->cut(file, static_cast<std::int64_t>(kept));
    }
    file_ = next_name(files);
    std::string begin = tfrecord(event(now(), 0, bytes_field(3, "brain.Event:2")));
    // SessionLog.status = 1: START = 1. It tells a TensorBoard that has already read the events that were
    // cut to drop everything from this step on.
    if (step > 0) begin += tfrecord(event(now(), step + 1, bytes_field(7, integer_field(1, 1))));
    if (files.empty())
      for (const Progress& record : earlier)
        begin +=
            tfrecord(scalar_event(record, now() - earlier.back().elapsed_seconds + record.elapsed_seconds));
    write(begin);
  });
}

void TensorBoardLog::append(const Progress& progress) {
  if (file_.empty()) return;
  attempt([&] { write(tfrecord(scalar_event(progress, now()))); });
}

void TensorBoardLog::write(std::string_view records) {
  folder_->append(file_, records);
}

void TensorBoardLog::attempt(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    file_.clear();  // nothing after half a record would be readable
    if (!std::exchange(failure_is_said_, true) && remark_)
      remark_(concat_text("training continues, but TensorBoard files are no longer written: ", error.what()));
  }
}

}  // namespace heed
