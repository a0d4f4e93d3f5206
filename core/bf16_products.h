#pragma once

namespace heed {

/// While one lives, matrix products, linear maps and attention of f32 that the calling thread starts on the CPU round what
/// they multiply to bf16, to the nearest even, and add up in f32; numbers below 2^-126 count as 0. Tensors stay f32, and
/// all other ops compute in it. Of a linear map's rows up to 6, and as many that are left over after whole tiles, may stay
/// exact: reading the weights bounds these. Products with a matrix, where a processor has instructions for them, take
/// about half the time.
///
/// Autocast and `--precision bf16` on the CPU are made of it. It must live until backward() has returned.
class Bf16Products {
 public:
  /// With `on` false, products inside are exact again. Throws an Error where the processor has no such instructions.
  explicit Bf16Products(bool on = true);
  ~Bf16Products();
  Bf16Products(const Bf16Products&) = delete;
  Bf16Products& operator=(const Bf16Products&) = delete;

  /// Whether this processor has them: AVX-512 BF16 (AMD since Zen 4, Intel's Cooper Lake and since Sapphire Rapids).
  static bool available();
  /// Whether the calling thread's products are rounded.
  static bool active();

 private:
  bool before_;
};

}  // namespace heed
