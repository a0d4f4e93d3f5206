// Numbers of 16 bits in files: every one of them, and what is rounded to them.

#include "heed/data/safetensors.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "heed/base/error.h"

using namespace heed;

TEST_CASE("half: every number of 16 bits comes back as it was") {
  std::size_t wrong = 0, numbers = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float f16 = float_of_f16(half), bf16 = float_of_bf16(half);
    numbers += std::isnan(f16) ? 0 : 1;
    wrong += std::isnan(f16) ? !std::isnan(float_of_f16(f16_of_float(f16))) : f16_of_float(f16) != half;
    wrong += std::isnan(bf16) ? !std::isnan(float_of_bf16(bf16_of_float(bf16))) : bf16_of_float(bf16) != half;
  }
  CHECK(wrong == 0);
  CHECK(numbers == 0x10000 - 2 * 1023);
}

TEST_CASE("half: others go to the nearest, ties to even") {
  const auto as_f16 = [](float value) { return float_of_f16(f16_of_float(value)); };
  const auto as_bf16 = [](float value) { return float_of_bf16(bf16_of_float(value)); };
  CHECK(as_f16(1 + 0x1p-11F) == 1);
  CHECK(as_f16(1 + 0x1.8p-10F) == 1 + 0x1p-9F);
  CHECK(as_f16(1 + 0x1.004p-11F) == 1 + 0x1p-10F);
  CHECK(as_f16(65504) == 65504);
  CHECK(as_f16(65519) == 65504);
  CHECK(as_f16(65520) == std::numeric_limits<float>::infinity());
  CHECK(as_f16(-0x1p-24F) == -0x1p-24F);
  CHECK(as_f16(0x1p-25F) == 0);
  CHECK(as_f16(0x1.8p-24F) == 0x1p-23F);
  CHECK(as_f16(0x1.ffep-15F) == 0x1p-14F);
  CHECK(as_bf16(1 + 0x1p-8F) == 1);
  CHECK(as_bf16(1 + 0x1.8p-7F) == 1 + 0x1p-6F);
  CHECK(as_bf16(std::numeric_limits<float>::max()) == std::numeric_limits<float>::infinity());
}

TEST_CASE("half: files round, and refuse what f16 has no room for") {
  const TensorFile file{{{"a", Tensor::from(std::vector<float>{0.1F, -70000}, {2})}}, {}};
  CHECK_THROWS_WITH_AS(safetensors_text(file, StoredFloat::f16), doctest::Contains("bf16 has room"), Error);
  const TensorFile read = parse_safetensors(safetensors_text(file, StoredFloat::bf16), "bytes");
  CHECK(read.tensors.at("a").to_vector<float>() == std::vector<float>{0x1.9ap-4F, -0x1.12p16F});
}
