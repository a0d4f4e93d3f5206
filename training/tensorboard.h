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

/// The curves of a run as files that TensorBoard reads: "tensorboard/events.out.tfevents.<seconds>.heed", one
/// for each session of the run.
///
/// A file is a list of records (TFRecord, tensorflow/core/lib/io/record_writer.h): u64 length, u32 masked
/// CRC32C of the length, the bytes, u32 masked CRC32C of the bytes, all little-endian. A record is a protobuf
/// Event (tensorflow/core/util/event.proto) with the scalars of one Progress.
///
/// Nothing that happens to these files stops a training: what cannot be written is said in a remark, once.
class TensorBoardLog {
 public:
  /// Begins a file for the session that goes on after `step`. Events of later steps, which a killed process
  /// wrote and which will be written again, are cut from the files that are there; where there are none, the
  /// new file begins with `earlier`, the records up to `step`.
  TensorBoardLog(const OpenFolder& run, std::int64_t step, std::span<const Progress> earlier,
                 std::function<void(std::string_view)> remark = {});

  void append(const Progress& progress);

 private:
  void write(std::string_view records);
  void attempt(const std::function<void()>& action);

  std::optional<OpenFolder> folder_;
  std::string file_;  // its name; "": nothing is written any more
  std::function<void(std::string_view)> remark_;
  bool failure_is_said_ = false;
};

/// CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected, as RFC 3720 has it.
std::uint32_t crc32c(std::string_view bytes);
/// A record of a file: length, bytes and their masked checksums.
std::string tfrecord(std::string_view bytes);
/// An Event with the scalars of `progress`: "loss/train", "loss/<part>", "validation/<metric>" ...
/// `wall_time`: seconds since 1970.
std::string scalar_event(const Progress& progress, double wall_time);

}  // namespace heed
