#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "heed/base/file.h"

namespace heed {

/// The outcome of a program.
struct ProgramResult {
  int status = 0;     ///< exit status; 128 + the signal's number when a signal ended it
  bool hung = false;  ///< it was killed because it took too long
  std::int64_t peak_bytes = 0;
  std::string output, errors;
};

/// The resources that a program may use; 0: no limit.
struct ProgramLimits {
  std::uint64_t address_space = 0, file_size = 0;  ///< bytes
  int seconds = 600;
};

/// Runs build/bin/<program>, or the program of an absolute path, with the arguments and `input` on
/// standard input, in a folder, and waits for it.
ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::string& input = {}, const std::filesystem::path& folder = ".",
                          const ProgramLimits& limits = {});

/// Returns the arguments with which /bin/sh starts a program of build/bin in its place, after the
/// commands in `before`, with the redirections in `streams`.
std::vector<std::string> in_shell(const std::string& before, const std::string& program,
                                  const std::vector<std::string>& arguments, const std::string& streams = {});

/// A program that runs next to the test.
class BackgroundProgram {
 public:
  BackgroundProgram(const std::string& program, const std::vector<std::string>& arguments);
  ~BackgroundProgram();
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;
  void send(int signal) const;
  int id() const { return process_; }
  bool running();
  /// Waits until it has written a file; returns false if it ended without.
  bool wait_for_file(const std::filesystem::path& path);
  /// Waits for the end and returns the exit status as in ProgramResult; -1 if it still runs after
  /// that time.
  int wait(std::chrono::milliseconds most = std::chrono::minutes(10));
  /// The text it has written so far.
  std::string output() const, errors() const;

 private:
  TemporaryFolder streams_;
  int process_ = -1;
  int status_ = -1;
};

}  // namespace heed
