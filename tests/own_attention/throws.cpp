// A library that fails while it is opened.

#include <stdexcept>

const int opened = []() -> int { throw std::runtime_error("its table is missing"); }();
