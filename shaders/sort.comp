#version 460
#extension GL_GOOGLE_include_directive : require
//! variant sort_tile types f32 f16 bf16 i32
//! variant sort_merge MERGES=1
#include "common.glsl"

#ifndef MERGES

// Sorts tiles of rows by (key, position) in shared memory (Batcher's bitonic sort, 1968) and writes the first
// `keep` entries of each. A key is an unsigned number with the order of the value (reversed if descending),
// NaN the largest; positions make all entries different, so the sort is stable.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint tile = 1024;        // entries, a power of two
layout(constant_id = 2) const uint tiles_at_once = 1;  // of a workgroup, a power of two
layout(constant_id = 3) const bool from_values = true;  // false: from entries that an earlier pass wrote
layout(constant_id = 4) const bool descending = false;
layout(constant_id = 5) const bool writes_keys = false;

layout(binding = 0) readonly buffer X { T x[]; };
layout(binding = 1) readonly buffer KeysIn { uint keys_in[]; };
layout(binding = 2) readonly buffer PositionsIn { uint positions_in[]; };
layout(binding = 3) writeonly buffer KeysOut { uint keys_out[]; };
layout(binding = 4) writeonly buffer PositionsOut { uint positions_out[]; };
layout(push_constant) uniform Push {
  uint skip_x, skip_keys_in, skip_positions_in, skip_keys_out, skip_positions_out;
  uint tiles;      // in all
  uint per_row;    // tiles of a row
  uint n;          // entries of a row
  uint keep;       // entries written of a tile
  uint n_written;  // entries written of a row
};

const uint entries = tile * tiles_at_once;
shared uint keys[entries];
shared uint positions[entries];

#if defined(TYPE_i32)
uint key_of(int value) {
  const uint key = uint(value) ^ 0x80000000u;
  return descending ? ~key : key;
}
#define read_value(i) x[i]
#else
uint key_of(float value) {
  uint bits = floatBitsToUint(value);
  if (bits == 0x80000000u) bits = 0u;  // -0 equals 0
  uint key = (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
  if ((bits & 0x7fffffffu) > 0x7f800000u) key = 0xffffffffu;
  return descending ? ~key : key;
}
#define read_value(i) to_float(x[i])
#endif

// The tile, among those of the call, to which an entry of shared memory belongs.
uint tile_of(uint entry) { return group_index() * tiles_at_once + entry / tile; }
uint row_of(uint entry) { return tile_of(entry) / per_row; }
uint first_of(uint entry) { return tile_of(entry) % per_row * tile; }

void load(uint entry) {
  const uint i = first_of(entry) + entry % tile;
  keys[entry] = positions[entry] = 0xffffffffu;
  if (tile_of(entry) >= tiles || i >= n) return;
  const uint at = row_of(entry) * n + i;
  if (from_values) {
    keys[entry] = key_of(read_value(skip_x + at));
    positions[entry] = i;
  } else {
    keys[entry] = keys_in[skip_keys_in + at];
    positions[entry] = positions_in[skip_positions_in + at];
  }
}

bool precedes(uint a, uint b) {
  return keys[a] < keys[b] || (keys[a] == keys[b] && positions[a] < positions[b]);
}

void exchange(uint pair, uint run, uint distance) {
  const uint low = 2 * pair - (pair & (distance - 1)), high = low + distance;
  const bool rising = (low % tile & run) == 0u;
  if (precedes(high, low) != rising) return;
  const uint key = keys[low], position = positions[low];
  keys[low] = keys[high];
  positions[low] = positions[high];
  keys[high] = key;
  positions[high] = position;
}

void store(uint entry) {
  const uint i = entry % tile, first = first_of(entry);
  if (tile_of(entry) >= tiles || i >= keep || first + i >= n) return;
  const uint at = row_of(entry) * n_written + tile_of(entry) % per_row * keep + i;
  positions_out[skip_positions_out + at] = positions[entry];
  if (writes_keys) keys_out[skip_keys_out + at] = keys[entry];
}

void main() {
  const uint t = gl_LocalInvocationID.x, threads = gl_WorkGroupSize.x;
  for (uint entry = t; entry < entries; entry += threads) load(entry);
  barrier();
  for (uint run = 2; run <= tile; run <<= 1) {
    for (uint distance = run / 2; distance > 0; distance >>= 1) {
      for (uint pair = t; pair < entries / 2; pair += threads) exchange(pair, run, distance);
      barrier();
    }
  }
  for (uint entry = t; entry < entries; entry += threads) store(entry);
}

#else

// Merges neighbouring sorted runs of the rows of [rows, n]: an entry moves by the number of entries in the
// other run that precede it, which bisection finds. Only the first `kept` entries of a row are written.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool writes_keys = true;

layout(binding = 0) readonly buffer KeysIn { uint keys_in[]; };
layout(binding = 1) readonly buffer PositionsIn { uint positions_in[]; };
layout(binding = 2) writeonly buffer KeysOut { uint keys_out[]; };
layout(binding = 3) writeonly buffer PositionsOut { uint positions_out[]; };
layout(push_constant) uniform Push {
  uint skip_keys_in, skip_positions_in, skip_keys_out, skip_positions_out;
  uint count, n;
  uint run;   // length of the sorted runs
  uint kept;  // entries of a row in the output
};

void main() {
  const uint at = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (at >= count) return;
  const uint row_begin = at / n * n, i = at - row_begin;
  const uint key = keys_in[skip_keys_in + at], position = positions_in[skip_positions_in + at];
  const uint other = (i / run ^ 1u) * run;
  uint low = min(other, n), high = min(other + run, n);
  while (low < high) {
    const uint middle = (low + high) / 2, there = row_begin + middle;
    const uint its_key = keys_in[skip_keys_in + there];
    const bool before =
        its_key < key || (its_key == key && positions_in[skip_positions_in + there] < position);
    if (before) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const uint place = i / (2 * run) * (2 * run) + i % run + (low - min(other, n));
  if (place >= kept) return;
  const uint to = at / n * kept + place;
  positions_out[skip_positions_out + to] = position;
  if (writes_keys) keys_out[skip_keys_out + to] = key;
}

#endif
