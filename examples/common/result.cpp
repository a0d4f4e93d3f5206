#include "result.h"

#include <cmath>
#include <iostream>

namespace heed::programs {

double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

void print_result(const Json& result) {
  std::cout << result.dump() << std::endl;
}

}  // namespace heed::programs
