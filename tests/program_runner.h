#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heed {

/// What a program did.
struct ProgramResult {
  int status = 0;     ///< exit status; 128 + the signal's number when a signal ended it
  bool hung = false;  ///< it was killed because it took too long
  std::int64_t peak_bytes = 0;
  std::string output, errors;
};

/// What a program may use; 0: no limit.
struct ProgramLimits {
  std::uint64_t address_space = 0, file_size = 0;  ///< bytes
  int seconds = 600;
};

/// Runs build/bin/<program>, or the program of an absolute path, with the arguments and `input` on standard
/// input, in a folder, and waits for it.
ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::string& input = {}, const std::filesystem::path& folder = ".",
                          const ProgramLimits& limits = {});

/// A program that runs next to the test.
class BackgroundProgram {
 public:
  BackgroundProgram(const std::string& program, const std::vector<std::string>& arguments,
                    const std::filesystem::path& folder = ".",
                    const std::filesystem::path& output = "/dev/null");
  ~BackgroundProgram();
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;
  void send(int signal) const;
  int id() const { return process_; }
  /// Waits for the end: the exit status, as in ProgramResult.
  int wait();
  bool running();

 private:
  int process_ = -1;
  int status_ = -1;
};

}  // namespace heed
