// Dropout of rows that threads share as in rows.glsl: element i of the launch's row r is element first_word +
// r n + i of the stream that begins with block first_block. Each thread takes four elements at a time. Their
// words lie in shared memory, with up to three words before them if a row begins within a block.
layout(constant_id = 7) const bool drops = true;  // p > 0

shared uvec4 drawn[drops ? 2 * gl_WorkGroupSize.x : 1];
uint first_of_row;  // where the row's words begin within the blocks drawn

// Draws the words for elements k, ..., k + 3 of each thread of a row that begins at element `begin`. All
// threads of a workgroup call it together.
void draw_words(uint begin, uint k) {
  if (!drops) return;
  const uint word = first_word + begin;
  const uint blocks = lanes + (word % 4 == 0 ? 0 : 1), own = thread() / lanes * (lanes + 1);
  first_of_row = own * 4 + word % 4;
  barrier();  // all threads have read the last words
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
