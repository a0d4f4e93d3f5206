#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#ifdef HEED_HAS_VULKAN
#include "vulkan_support.h"
#endif

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  int status = context.run();
#ifdef HEED_HAS_VULKAN
  if (!heed::vulkan_left_no_trace()) status = 1;
#endif
  return status;
}
