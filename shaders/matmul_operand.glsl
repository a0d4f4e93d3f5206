// Moves the tile of one operand from memory to registers (FETCH) and from there to shared memory (KEEP).
// Included once per operand, with these names defined:
//   FETCH, KEEP        the two functions
//   ELEMENTS, FOURS    its buffer, as elements and as fours
//   HELD, TILE, PITCH  its registers; its tile in shared memory, [STAGES][BK][EXTENT]; fours per line of the
//                      tile
//   EXTENT             rows (of a) or columns (of b) in a tile
//   ALONG_K            whether elements with neighbouring k are neighbours in memory (else those of
//                      neighbouring rows or columns are)
//   IN_FOURS           whether every line in memory begins at a multiple of four elements

// Rows or columns from `first` on, of `extent` in all, and k from k_begin to below k_end; elements outside
// are 0.
void FETCH(uint base, uint leading, uint first, uint extent, uint k_begin, uint k_end) {
  const uint lines = ALONG_K ? extent : k_end, columns = ALONG_K ? k_end : extent;
  const uint run = (ALONG_K ? BK : EXTENT) / 4;
  [[unroll]] for (uint i = 0; i < EXTENT * BK / 4 / gl_WorkGroupSize.x; ++i) {
    const uint number = gl_LocalInvocationIndex + i * gl_WorkGroupSize.x;
    const uint line = (ALONG_K ? first : k_begin) + number / run;
    const uint column = (ALONG_K ? k_begin : first) + number % run * 4;
    FOUR x = NO_FOUR;
    if (line < lines && column < columns) {
      const uint at = base + line * leading + column;
      if (IN_FOURS && column + 4 <= columns) {
        x = FOURS[at / 4];
      } else {
        const uint last = columns - 1 - column;
        x = four_of(WORD(ELEMENTS[at]), last >= 1 ? WORD(ELEMENTS[at + 1]) : WORD(0),
                    last >= 2 ? WORD(ELEMENTS[at + 2]) : WORD(0), last >= 3 ? WORD(ELEMENTS[at + 3]) : WORD(0));
      }
    }
    HELD[i] = x;
  }
}

void KEEP(uint stage) {
  const uint run = (ALONG_K ? BK : EXTENT) / 4;
  [[unroll]] for (uint i = 0; i < EXTENT * BK / 4 / gl_WorkGroupSize.x; ++i) {
    const uint number = gl_LocalInvocationIndex + i * gl_WorkGroupSize.x;
    const uint line = number / run, four = number % run;
    const vec4 x = unpack_four(HELD[i]);
    if (ALONG_K) {
      [[unroll]] for (uint j = 0; j < 4; ++j) TILE[(stage * BK + four * 4 + j) * PITCH + line / 4][line % 4] = x[j];
    } else {
      TILE[(stage * BK + line) * PITCH + four] = x;
    }
  }
}

#undef FETCH
#undef KEEP
#undef ELEMENTS
#undef FOURS
#undef HELD
#undef TILE
#undef PITCH
#undef EXTENT
#undef ALONG_K
#undef IN_FOURS
