// Turns scores into weights (FORWARD), and gradients of weights into gradients of scores.
#ifdef FORWARD

// The online softmax of attention's forward pass. Needs `partial`, a shared array of (LANES + 1) vec4s for
// every four rows, and row_barrier(), where the invocations of a row wait for each other.

// Combines the values of the invocations of each row of the tile, in a fixed order.
#define HEED_COMBINE(name, operation)                                                              \
  vec4 name(vec4 x) {                                                                              \
    row_barrier();                                                                                 \
    partial[lane_y() * (LANES + 1u) + lane_x()] = x;                                               \
    row_barrier();                                                                                 \
    vec4 all = partial[lane_y() * (LANES + 1u)];                                                   \
    for (uint n = 1u; n < LANES; ++n) all = operation(all, partial[lane_y() * (LANES + 1u) + n]);  \
    return all;                                                                                    \
  }
vec4 add(vec4 a, vec4 b) { return a + b; }
HEED_COMBINE(maximum_over_lanes, max)
HEED_COMBINE(sum_over_lanes, add)

// For four rows: the largest score so far, and the sum of this invocation's weights, which are relative to
// it.
struct Softmax {
  vec4 largest, total;
};
Softmax no_softmax() { return Softmax(vec4(-INFINITY), vec4(0)); }

// Replaces the products of queries and keys by weights, 0 where they are dropped; returns the factors by
// which all sums so far have to be multiplied.
vec4 weigh(Rows rows, inout vec4 scores[4], inout Softmax softmax) {
  const uint existing = existing_entries(rows), kept = kept_entries(rows);
  vec4 found = vec4(-INFINITY);
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      scores[r][c] = bit_of(existing, r, c) ? logit(rows, r, c, scores[r][c]) : -INFINITY;
      found[r] = max(found[r], scores[r][c]);
    }
  }
  const vec4 now = max(softmax.largest, maximum_over_lanes(found));
  vec4 rescale;
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    // If no entry was allowed so far, the weights are exp(-infinity - 0) = 0.
    const float shift = now[r] == -INFINITY ? 0.0 : now[r];
    rescale[r] = now[r] == softmax.largest[r] ? 1.0 : weight(softmax.largest[r] - shift);
    float sum = 0.0;
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      const float w = weight(scores[r][c] - shift);
      sum += w;
      scores[r][c] = bit_of(kept, r, c) ? w : 0.0;
    }
    softmax.total[r] = rescale[r] * softmax.total[r] + sum;
  }
  softmax.largest = now;
  return rescale;
}

// After the last tile: adds up the weights of each row and returns the factors by which the sums have to be
// multiplied.
vec4 normalize(inout Softmax softmax) {
  softmax.total = sum_over_lanes(softmax.total);
  vec4 factor;
  [[unroll]] for (uint r = 0u; r < 4u; ++r)
    factor[r] = softmax.total[r] == 0.0 ? 0.0 : kept_scale() / softmax.total[r];
  return factor;
}

// Writes the rows' largest scores and sums of weights; call it after normalize().
void store_row_sums(Rows rows, Softmax softmax) {
  if (lane_x() != 0u) return;
  const uint line = (local_batch() * heads + local_head()) * queries;
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    const uint row = rows.begin + 4u * lane_y() + r;
    if (row >= rows.end) continue;
    row_sums[skip_row_sums + 2u * (line + row)] = softmax.largest[r];
    row_sums[skip_row_sums + 2u * (line + row) + 1u] = softmax.total[r];
  }
}

#else

// The inputs of attention's gradient passes in addition to the operands (written by
// attention_rows), and the values that they compute from the scores and from the products of
// gradients and values.

layout(binding = 9) readonly buffer Statistics { float query_statistics[]; };

struct RowStatistics {
  float largest, inverse_sum, mean;  // mean: D
};
RowStatistics statistics_of(uint i) {
  const uint at = skip_statistics + 3u * ((local_batch() * heads + local_head()) * queries + i);
  return RowStatistics(query_statistics[at], query_statistics[at + 1u], query_statistics[at + 2u]);
}

// The weight of an entry that exists.
float weight_of(float logit, RowStatistics of_query) {
  return weight(logit - of_query.largest) * of_query.inverse_sum;
}

// Replaces the scores by weights with dropout, and the products (slopes) by ds (attention_products.comp). The
// statistics of an entry are those of its query, which is row r or column c.
void weigh_slopes(Rows rows, inout vec4 scores[4], inout vec4 slopes[4]) {
  const uint existing = existing_entries(rows), kept = kept_entries(rows);
  RowStatistics of_query[4];
  [[unroll]] for (uint n = 0u; n < 4u; ++n)
#ifdef COLUMNS_ARE_QUERIES
    of_query[n] = statistics_of(uint(max(column_index[4u * lane_x() + n], 0)));
#define HEED_QUERY(r, c) of_query[c]
#else
    of_query[n] = statistics_of(min(rows.begin + 4u * lane_y() + n, rows.end - 1u));
#define HEED_QUERY(r, c) of_query[r]
#endif
  [[unroll]] for (uint r = 0u; r < 4u; ++r) {
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
      const bool exists = bit_of(existing, r, c);
      const float w = exists ? weight_of(logit(rows, r, c, scores[r][c]), HEED_QUERY(r, c)) : 0.0;
      const bool stays = bit_of(kept, r, c);
      scores[r][c] = stays ? kept_scale() * w : 0.0;
      const float dw = stays ? kept_scale() * slopes[r][c] : 0.0;
      slopes[r][c] = exists ? w * (dw - HEED_QUERY(r, c).mean) : 0.0;
    }
  }
}

#endif
