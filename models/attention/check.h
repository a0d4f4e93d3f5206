#pragma once

#include <string_view>

#include "heed/models/attention/attention.h"

namespace heed {

/// Holds a registered variant to what it declares, in each of its uses: plain, causal and cross-attention.
/// Tried in f64 on the CPU, on random sequences of 5 and 160 words: shapes, lengths, padding (whatever it holds,
/// and in f32, too), the future (with words up to 100 times as large), decoding against the whole pass, gradients
/// of inputs and parameters, samples of a batch that do not mix, buffers that move only through
/// Context::observe() (or ranks would disagree), and random numbers. Throws an Error that names the use, what was
/// broken, the position and the values. `options`: the variant's settings.
void check_attention(std::string_view name, const Options& options = {});

/// What a variant was seen to do by the same trials, whatever it declares; `reason` is what it declares.
Capabilities tried_capabilities(const AttentionVariant& variant);

}  // namespace heed
