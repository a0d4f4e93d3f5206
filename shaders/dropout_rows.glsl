// Dropout of rows that threads share as in rows.glsl: element i of the launch's row r is element first_word +
// r n + i of the stream that begins with block first_block. Four elements of each thread at a time: their
// words, and up to three before them where a row begins within a block, lie in shared memory.
layout(constant_id = 7) const bool drops = true;  // p > 0

shared uvec4 drawn[drops ? 2 * gl_WorkGroupSize.x : 1];
uint first_of_row;  // where its words begin within the blocks drawn

// For elements k, ..., k + 3 of the threads of a row that begins at element `begin`; all threads of a
// workgroup together.
void draw_words(uint begin, uint k) {
  if (!drops) return;
  const uint word = first_word + begin;
  const uint blocks = lanes + (word % 4 == 0 ? 0 : 1), own = thread() / lanes * (lanes + 1);
  first_of_row = own * 4 + word % 4;
  barrier();  // everybody has read the last words
  for (uint b = lane(); b < blocks; b += lanes) {
    uint carry;
    const uint low = uaddCarry(first_block_low, word / 4 + k / 4 * lanes + b, carry);
    drawn[own + b] = philox(RandomKey(seed_low, seed_high, step, op), low, first_block_high + carry);
  }
  barrier();
}

// residual + x keep / (1 - p) for element k of this thread.
float dropped(uint k, float x, float residual) {
  if (!drops) return x + residual;
  const uint word = first_of_row + k % 4 * lanes + lane();
  const float kept = drawn[word / 4][word % 4] >> 8 >= first_kept ? x : 0.0;
  return fma(kept, scale, residual);
}
