#pragma once

#include <span>
#include <string>
#include <vector>

namespace heed::programs {

/// An instruction set that the library is compiled for, and whether this processor has it.
struct ProcessorFeature {
  const char* name;
  bool is_there;
};

/// All that x86-64-v2 asks for beyond the first x86-64 processors; none on processors of another kind.
std::vector<ProcessorFeature> needed_features();
/// The error that names those that are missing; "" when none is.
std::string processor_error(std::span<const ProcessorFeature> features);

}  // namespace heed::programs
