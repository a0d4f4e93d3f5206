#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "heed/base/open_folder.h"
#include "heed/training/progress.h"

namespace heed {

/// Writes the curves of a run for TensorBoard, to one file
/// "tensorboard/events.out.tfevents.<seconds>.heed" per session of the run.
///
/// A file is a sequence of records (TFRecord, tensorflow/core/lib/io/record_writer.h): u64 length,
/// u32 masked CRC32C of the length, the bytes, u32 masked CRC32C of the bytes, all little-endian. A
/// record is a protobuf Event (tensorflow/core/util/event.proto) with the scalars of one Progress.
///
/// Problems with these files never stop training: the first failure to write is reported through
/// `remark`.
class TensorBoardLog {
 public:
  /// Begins a file for the session that continues after `step`. Events of later steps, which a
  /// killed process wrote and which will be written again, are cut from the existing files. If
  /// there are none, the new file begins with `earlier`, the records up to `step`.
  TensorBoardLog(const OpenFolder& run, std::int64_t step, std::span<const Progress> earlier,
                 std::function<void(std::string_view)> remark = {});

  void append(const Progress& progress);

 private:
  void write(std::string_view records);
  void attempt(const std::function<void()>& action);

  std::optional<OpenFolder> folder_;
  std::string file_;  // its name; "": writing has stopped
  std::function<void(std::string_view)> remark_;
  bool failure_is_said_ = false;
};

/// Returns the CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected, as in RFC 3720.
std::uint32_t crc32c(std::string_view bytes);
/// Returns a record of the file: length, bytes and their masked checksums.
std::string tfrecord(std::string_view bytes);
/// Returns an Event with the scalars of `progress`: "loss/train", "loss/<part>",
/// "validation/<metric>" ... `wall_time`: seconds since 1970.
std::string scalar_event(const Progress& progress, double wall_time);

}  // namespace heed
