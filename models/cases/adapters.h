#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/models/attention/attention.h"
#include "heed/models/cases/reference_case.h"
#include "heed/models/module.h"

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
  std::string_view attention = variant;  ///< our name
  /// Options that a configuration key calls otherwise, "key=option ...".
  std::string_view options = "";
  std::string_view ignored = "";  ///< configuration keys that are no options
  /// Parameters besides those that several variants share, "reference=ours ...". A parameter in neither
  /// list has the same name in both.
  std::string parameters = "";
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
AttentionConfig layer_configuration(const ReferenceCase& reference, const Adapter& adapter);
/// Returns which of our parameters each param.* of the case is.
std::vector<ParameterName> parameter_names(const ReferenceCase& reference, const Adapter& adapter);
/// Gives a buffer of the layer the value of a special input.
void set_buffer(Attention& attention, const std::string& name, const CaseInputs& inputs,
                const std::string& input);
/// Runs a case without a `run` of its own: O of one call.
CaseOutputs run_once(Attention& attention, const CaseInputs& inputs, Context& context);

/// The worst element of one tensor.
struct Deviation {
  std::string tensor;
  double error = 0;  ///< |a - b| where error / allowed is largest
  double allowed = 0;
  /// Not empty: the tensors could not be compared (shapes differ, no counterpart).
  std::string problem;
  bool passed() const { return problem.empty() && error <= allowed; }
  /// A measure of failure, for finding the worst of several.
  double badness() const;
};

/// Runs a case, its outputs, losses and gradients, in a type and on a device. Returns the worst
/// deviation from the reference. Throws an Error if the case and the layer do not fit together.
Deviation worst_deviation(const ReferenceCase& reference, const Adapter& adapter, DType dtype, Device device);

}  // namespace heed::verify
