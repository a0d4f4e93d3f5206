#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/models/attention/attention.h"
#include "heed/models/module.h"
#include "reference_case.h"

// How the reference cases of each variant map to this library. A variant that calls its parameters as the
// specification does needs a few lines in adapters.cpp: which configuration key is which option, and which
// parameter is which.

namespace heed::verify {

/// A parameter of the reference and ours. The reference multiplies x W with W [in, out]; our Linear keeps
/// [out, in].
struct ParameterName {
  std::string reference;
  std::string ours;
  bool transposed = false;
};

/// What one run of a case produced, by the reference's names.
struct CaseOutputs {
  std::map<std::string, Tensor> outputs;   ///< compared with out.*
  std::map<std::string, Tensor> losses;    ///< compared with aux.* and added to the loss
  std::map<std::string, Tensor> discrete;  ///< compared with disc.*, exactly
  std::map<std::string, Tensor> inside;    ///< compared with mid.*
};

/// Everything the reference gives besides parameters, ready to use.
struct CaseInputs {
  AttentionInput attention;
  std::map<std::string, Tensor> special;  ///< the other in.*: rot, rand_blocks, glob, ...
  Module* companion = nullptr;            ///< what the adapter asked for beside the layer
};

struct Adapter {
  std::string_view variant;    ///< the first part of the case's name, or the family in its configuration
  std::string_view attention;  ///< our name
  /// Configuration key -> our option. Keys that are neither here nor in `ignored` nor common to all cases are
  /// an error.
  std::vector<std::pair<std::string, std::string>> options = {};
  std::vector<std::string> ignored = {};
  /// Beyond Wq, bq, Wk, bk, Wv, bv, Wo and bo, which every variant shares; an entry may also replace one of
  /// those.
  std::vector<ParameterName> parameters = {};
  /// The reference's name of an auxiliary loss -> ours in Context::losses.
  std::vector<std::pair<std::string, std::string>> losses = {};
  /// Further settings that are no plain copy of a key; null: none.
  void (*configure)(const ReferenceCase&, AttentionConfig&) = nullptr;
  /// A module of the case beside the layer, such as a pooling; null where there is none. Its parameters are
  /// called "companion." and their name.
  std::unique_ptr<Module> (*companion)(const ReferenceCase&) = nullptr;
  /// Builds what the case is about where it is more than one layer; null: make_attention(attention, config).
  std::unique_ptr<Attention> (*make)(const ReferenceCase&, const Adapter&, const AttentionConfig&) = nullptr;
  /// Runs the case where it is more than O = attention(X): special inputs, several layers, more outputs,
  /// discrete choices.
  CaseOutputs (*run)(const ReferenceCase&, Attention&, const CaseInputs&, Context&) = nullptr;
};

std::span<const Adapter> adapters();
/// By the case's variant, else by its family; null when neither is known.
const Adapter* find_adapter(const ReferenceCase& reference);

/// Of the attentions that sort words first (adapters_sorting.cpp).
Adapter clusterformer_adapter();
Adapter reformer_adapter();
Adapter routing_adapter();

/// The layer that a case describes, with initial parameters.
AttentionConfig configuration_of(const ReferenceCase& reference, const Adapter& adapter);
/// Which of our parameters each param.* of the case is.
std::vector<ParameterName> parameter_names(const ReferenceCase& reference, const Adapter& adapter);
/// Gives a buffer of the layer the value of a special input.
void set_buffer(Attention& attention, const std::string& name, const CaseInputs& inputs,
                const std::string& input);
/// O and the auxiliary losses of one call: what a case without a `run` of its own does.
CaseOutputs run_once(const Adapter& adapter, Attention& attention, const CaseInputs& inputs,
                     Context& context);

}  // namespace heed::verify
