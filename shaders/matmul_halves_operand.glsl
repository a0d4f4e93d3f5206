// Moves the tile of one half-precision operand, bits unchanged and eight elements at a time, from memory to
// registers (FETCH) and from there to shared memory (KEEP). Included once per operand, with these names
// defined:
//   FETCH, KEEP        the two functions
//   ELEMENTS, EIGHTS   its buffer, as elements and as eights
//   HELD, TILE, PITCH  its registers; its tile in shared memory, STAGES stages of `lines` lines; eights per
//                      line of the tile
//   EXTENT             rows (of a) or columns (of b) in a tile
//   ALONG_K            whether elements with neighbouring k are neighbours in memory (else those of
//                      neighbouring rows or columns are)
//   IN_EIGHTS          whether every line in memory begins at a multiple of eight elements

// Rows or columns from `first` on, of `extent` in all, and k from k_begin to below k_end; elements outside
// are 0.
void FETCH(uint base, uint leading, uint first, uint extent, uint k_begin, uint k_end) {
  const uint lines = ALONG_K ? extent : k_end, columns = ALONG_K ? k_end : extent;
  const uint run = (ALONG_K ? BK : EXTENT) / 8;
  [[unroll]] for (uint i = 0; i < EXTENT * BK / 8 / gl_WorkGroupSize.x; ++i) {
    const uint number = gl_LocalInvocationIndex + i * gl_WorkGroupSize.x;
    const uint line = (ALONG_K ? first : k_begin) + number / run;
    const uint column = (ALONG_K ? k_begin : first) + number % run * 8;
    uvec4 x = uvec4(0);
    if (line < lines && column < columns) {
      const uint at = base + line * leading + column;
      if (IN_EIGHTS && column + 8 <= columns) {
        x = EIGHTS[at / 8];
      } else {
        for (uint j = 0; j < min(8, columns - column); ++j) x[j / 2] |= uint(ELEMENTS[at + j]) << (j % 2 * 16);
      }
    }
    HELD[i] = x;
  }
}

void KEEP(uint stage) {
  const uint run = (ALONG_K ? BK : EXTENT) / 8, lines = ALONG_K ? EXTENT : BK;
  [[unroll]] for (uint i = 0; i < EXTENT * BK / 8 / gl_WorkGroupSize.x; ++i) {
    const uint number = gl_LocalInvocationIndex + i * gl_WorkGroupSize.x;
    TILE[(stage * lines + number / run) * PITCH + number % run] = HELD[i];
  }
}

#undef FETCH
#undef KEEP
#undef ELEMENTS
#undef EIGHTS
#undef HELD
#undef TILE
#undef PITCH
#undef EXTENT
#undef ALONG_K
#undef IN_EIGHTS
