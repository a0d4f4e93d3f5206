#include "heed/backends/cpu/philox.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/philox.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

void fill_words(const RandomKey& key, std::uint64_t start, std::int64_t count, std::uint32_t* out) {
  PhiloxStream(key).fill(start, count, out);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(fill_words);

void philox_fill(const RandomKey& key, std::uint64_t start, std::int64_t count, std::uint32_t* out) {
  HWY_DYNAMIC_DISPATCH(fill_words)(key, start, count, out);
}

DropoutRule::DropoutRule(double p)
    // unit_interval reads the upper 24 bits, so the comparison is (word >> 8) >= ceil(2^24 p).
    : first_kept_(static_cast<std::uint64_t>(std::ceil(p * 0x1p24)) << 8) {}

}  // namespace heed::cpu
#endif
