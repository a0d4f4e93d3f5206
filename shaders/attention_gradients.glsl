// What the gradient passes of attention read besides the operands (written by attention_rows.comp), and what
// they compute from the scores and from the products of gradients and values.

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

// Replaces the scores by weights with dropout, and the products (slopes) by ds (attention_dquery.comp). The
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
