#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heed {

/// What a program did.
struct ProgramResult {
  int status = 0;  ///< exit status; 128 + the signal's number when a signal ended it
  std::string output, errors;
};

/// Runs build/bin/<program> with the arguments and `input` on standard input, in a folder, and waits for it.
ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::string& input = {}, const std::filesystem::path& folder = ".");

/// A program that runs next to the test.
class BackgroundProgram {
 public:
  BackgroundProgram(const std::string& program, const std::vector<std::string>& arguments,
                    const std::filesystem::path& folder = ".");
  ~BackgroundProgram();
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;
  void send(int signal) const;
  /// Waits for the end: the exit status, as in ProgramResult.
  int wait();
  bool running();

 private:
  int process_ = -1;
  int status_ = -1;
};

}  // namespace heed
