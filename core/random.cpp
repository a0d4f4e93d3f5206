#include "heed/core/random.h"

namespace heed {

std::array<std::uint32_t, 4> philox(const RandomKey& key, std::uint64_t block) {
  std::array<std::uint32_t, 4> counter = {static_cast<std::uint32_t>(block),
                                          static_cast<std::uint32_t>(block >> 32), key.op, key.step};
  auto key_low = static_cast<std::uint32_t>(key.seed);
  auto key_high = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key_low,
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key_high,
               static_cast<std::uint32_t>(product0)};
    key_low += 0x9E3779B9;  // the Weyl constants of the paper
    key_high += 0xBB67AE85;
  }
  return counter;
}

std::uint32_t random_word(const RandomKey& key, std::uint64_t index) {
  return philox(key, index / 4)[index % 4];
}

}  // namespace heed
