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

/// A parameter of the reference and ours. The reference multiplies x W with W [in, out]; our Linear
/// keeps [out, in].
struct ParameterName {
  std::string reference;
  std::string ours;
  bool transposed = false;
};

/// The results of one run of a case, by the reference's names.
struct CaseOutputs {
  std::map<std::string, Tensor> outputs;   ///< compared with out.*
  std::map<std::string, Tensor> losses;    ///< compared with aux.* and added to the loss
  std::map<std::string, Tensor> discrete;  ///< compared with disc.*, exactly
  std::map<std::string, Tensor> inside;    ///< compared with mid.*
};

/// The reference's inputs besides parameters, ready to use.
struct CaseInputs {
  AttentionInput attention;
  std::map<std::string, Tensor> special;  ///< the other in.*: rot, rand_blocks, glob, ...
  Module* companion = nullptr;            ///< the module of Adapter::companion
};

struct Adapter {
  /// The first part of the case's name, or the family in its configuration.
  std::string_view variant;
  std::string_view attention;  ///< our name
  /// Configuration key -> our option. Keys that are neither here nor in `ignored` nor common to all
  /// cases are an error.
  std::vector<std::pair<std::string, std::string>> options = {};
  std::vector<std::string> ignored = {};
  /// Beyond Wq, bq, Wk, bk, Wv, bv, Wo and bo, which every variant shares; an entry may also
  /// replace one of those.
  std::vector<ParameterName> parameters = {};
  /// The reference's name of an auxiliary loss -> ours in Context::losses.
  std::vector<std::pair<std::string, std::string>> losses = {};
  /// Sets settings that are not plain copies of a key; null: none.
  void (*configure)(const ReferenceCase&, AttentionConfig&) = nullptr;
  /// Makes a module that the case has in addition to the layer, such as a pooling; null: none. Its
  /// parameters are called "companion." and their name.
  std::unique_ptr<Module> (*companion)(const ReferenceCase&) = nullptr;
  /// Makes the layers of a case that has more than one; null: make_attention(attention, config).
  std::unique_ptr<Attention> (*make)(const ReferenceCase&, const Adapter&, const AttentionConfig&) = nullptr;
  /// Runs a case that is more than O = attention(X): special inputs, several layers, more outputs,
  /// discrete choices.
  CaseOutputs (*run)(const ReferenceCase&, Attention&, const CaseInputs&, Context&) = nullptr;
};

std::span<const Adapter> adapters();
/// Finds the adapter by the case's variant, else by its family; null when neither is known.
const Adapter* find_adapter(const ReferenceCase& reference);

/// The adapters of attentions that sort words first (adapters_sorting.cpp).
Adapter clusterformer_adapter();
Adapter reformer_adapter();
Adapter routing_adapter();

/// Returns the configuration of the layer that a case describes.
AttentionConfig configuration_of(const ReferenceCase& reference, const Adapter& adapter);
/// Returns which of our parameters each param.* of the case is.
std::vector<ParameterName> parameter_names(const ReferenceCase& reference, const Adapter& adapter);
/// Gives a buffer of the layer the value of a special input.
void set_buffer(Attention& attention, const std::string& name, const CaseInputs& inputs,
                const std::string& input);
/// Runs a case without a `run` of its own: O and the auxiliary losses of one call.
CaseOutputs run_once(const Adapter& adapter, Attention& attention, const CaseInputs& inputs,
                     Context& context);

}  // namespace heed::verify
