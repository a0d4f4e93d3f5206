// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), the same bits as
// core/random.h: element i of a stream is word i % 4 of block i / 4.

struct RandomKey {
  uint seed_low, seed_high, step, op;
};

uvec4 philox(RandomKey key, uint block_low, uint block_high) {
  uvec4 counter = uvec4(block_low, block_high, key.op, key.step);
  uint key_low = key.seed_low, key_high = key.seed_high;
  [[unroll]] for (int round = 0; round < 10; ++round) {
    uint high0, low0, high1, low1;
    umulExtended(0xD2511F53u, counter.x, high0, low0);
    umulExtended(0xCD9E8D57u, counter.z, high1, low1);
    counter = uvec4(high1 ^ counter.y ^ key_low, low1, high0 ^ counter.w ^ key_high, low0);
    key_low += 0x9E3779B9u;  // the Weyl constants of the paper
    key_high += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1): the upper 24 bits times 2^-24, exact.
float unit_interval(uint word) { return float(word >> 8) * 5.9604644775390625e-8; }
