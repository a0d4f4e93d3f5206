// CTranslate2's model format, binary version 6, of its "TransformerSpec", spec_revision 7. model.bin holds,
// little-endian:
//
//   u32 version, text name, u32 spec_revision, u32 number of variables
//   of each in the order of names: text name, u8 axes, u32 extents, u8 type, u32 bytes, the bytes
//   u32 number of other names (none here)
//
// where a text is a u16 length with its closing NUL, and the bytes with it. Maps that read the same vectors
// stand below each other in one; the table of positions is written out.

#include "heed/hub/ctranslate2.h"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <variant>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/hub/config_reader.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint32_t binary_version = 6, spec_revision = 7;
constexpr std::int64_t positions_written = 1024;  // of sinusoids, which have no end of their own

/// A tensor, or a number of 8 or 16 bits.
using ModelBinVariable = std::variant<Tensor, std::int8_t, std::int16_t>;

void add_ctranslate2_norm(WeightNames& names, const std::string& published, const std::string& ours) {
  names.add(published + "/layer_norm/gamma", ours + ".weight");
  names.add(published + "/layer_norm/beta", ours + ".bias");
}

/// Several of heed's maps as one.
void add_joined_maps(WeightNames& names, const std::string& published, const std::string& attention,
                     const std::vector<std::string>& maps) {
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const WeightLayout layout{.part = static_cast<std::int64_t>(i),
                              .parts = static_cast<std::int64_t>(maps.size())};
    WeightLayout of_bias = layout;
    of_bias.may_lack = true;
    names.add(published + "/weight", concat_text(attention, '.', maps[i], ".weight"), layout);
    names.add(published + "/bias", concat_text(attention, '.', maps[i], ".bias"), of_bias);
  }
}

WeightNames ctranslate2_layer(bool is_decoder) {
  const std::string published = is_decoder ? "decoder/layer_{}" : "encoder/layer_{}",
                    ours = is_decoder ? "decoder.layers.{}" : "encoder.layers.{}",
                    self = ours + (is_decoder ? ".self_attention" : ".attention");
  WeightNames names;
  add_joined_maps(names, published + "/self_attention/linear_0", self, {"query", "key", "value"});
  add_joined_maps(names, published + "/self_attention/linear_1", self, {"output"});
  add_ctranslate2_norm(names, published + "/self_attention", self + "_norm");
  if (is_decoder) {
    const std::string cross = ours + ".cross_attention";
    add_joined_maps(names, published + "/attention/linear_0", cross, {"query"});
    add_joined_maps(names, published + "/attention/linear_1", cross, {"key", "value"});
    add_joined_maps(names, published + "/attention/linear_2", cross, {"output"});
    add_ctranslate2_norm(names, published + "/attention", cross + "_norm");
  }
  names.add_map(published + "/ffn/linear_0", ours + ".feed_forward.input");
  names.add_map(published + "/ffn/linear_1", ours + ".feed_forward.output");
  add_ctranslate2_norm(names, published + "/ffn", ours + ".feed_forward_norm");
  return names;
}

/// "a.weight" is "a/weight" there, for the maps that were named with a dot.
std::string with_slash(std::string name) {
  if (const std::size_t dot = name.rfind('.'); dot != std::string::npos) name[dot] = '/';
  return name;
}

Tensor position_table(const Json& model, std::int64_t width) {
  Initialiser none(0);
  Positions positions(model.at("positions").get<std::string>(), 1, width, 1, none);
  return contiguous(positions(0, positions_written, Tensor::zeros({1})));
}

/// Embeddings, positions and output map under names of their own.
std::map<std::string, ModelBinVariable> ends_of_stacks(std::map<std::string, Tensor>& weights,
                                                       const RunContent& run, const Json& model) {
  const auto take = [&](const std::string& name) {
    const auto found = weights.find(name);
    if (found == weights.end()) return Tensor();
    Tensor tensor = found->second;
    weights.erase(found);
    return tensor;
  };
  const Tensor shared = take("embedding.weight");
  const Tensor source = shared.defined() ? shared : take("source_embedding.weight"),
               target = shared.defined() ? shared : take("target_embedding.weight"),
               own = take("output.weight");
  std::map<std::string, ModelBinVariable> ends = {
      {"encoder/embeddings_0/weight", source},
      {"decoder/embeddings/weight", target},
      {"decoder/projection/weight", own.defined() ? own : target}};
  Tensor bias = take("output.bias");
  if (run.begin == run.pad) {  // padding begins what is written, and is never written itself
    std::vector<float> values = bias.defined()
                                    ? bias.to_vector<float>()
                                    : std::vector<float>(static_cast<std::size_t>(run.vocabulary), 0);
    values[static_cast<std::size_t>(run.pad)] = -1e9F;
    bias = Tensor::from(values, {run.vocabulary});
  }
  if (bias.defined()) ends["decoder/projection/bias"] = bias;
  const auto width = model.at("width").get<std::int64_t>();
  const std::array<std::pair<const char*, const char*>, 2> sides = {
      {{"encoder", "source"}, {"decoder", "target"}}};
  for (const auto& [stack, side] : sides) {
    const Tensor learned = take(concat_text(side, ".positions.weight"));
    ends[concat_text(stack, "/position_encodings/encodings")] =
        learned.defined() ? learned : position_table(model, width);
  }
  return ends;
}

std::map<std::string, ModelBinVariable> ctranslate2_variables(RunContent& run, const Json& model) {
  const NoGrad no_grad;
  const bool pre = model.at("norm") == "pre";
  std::map<std::string, ModelBinVariable> variables = ends_of_stacks(run.weights, run, model);
  WeightNames names;
  names.add_layers(model.at("encoder_layers").get<std::int64_t>(), ctranslate2_layer(false));
  names.add_layers(model.at("decoder_layers").get<std::int64_t>(), ctranslate2_layer(true));
  if (pre)
    for (const char* const stack : {"encoder", "decoder"})
      add_ctranslate2_norm(names, stack, concat_text(stack, ".norm"));
  for (auto& [name, tensor] : published_weights(run.weights, names, "CTranslate2"))
    variables[with_slash(name)] = tensor;
  const std::map<std::string, std::int8_t> activations = {
      {"relu", 0}, {"gelu_tanh", 1}, {"silu", 2}, {"gelu", 3}};
  const auto flag = [](bool value) { return static_cast<std::int8_t>(value ? 1 : 0); };
  for (const std::string stack : {"encoder/", "decoder/"}) {
    variables[stack + "activation"] = activations.at(model.at("activation").get<std::string>());
    variables[stack + "num_heads"] = model.at("heads").get<std::int16_t>();
    variables[stack + "pre_norm"] = flag(pre);
    variables[stack + "scale_embeddings"] = flag(model.at("scale_embeddings").get<bool>());
  }
  variables["encoder/embeddings_merge"] = std::int8_t{0};
  variables["encoder/multi_query_attention"] = std::int8_t{0};
  for (const char* const off :
       {"alibi", "alibi_use_positive_positions", "scale_alibi", "start_from_zero_embedding"})
    variables[concat_text("decoder/", off)] = std::int8_t{0};
  variables["decoder/alignment_heads"] = std::int16_t{1};
  variables["decoder/alignment_layer"] = std::int16_t{-1};
  return variables;
}

class ModelBinWriter {
 public:
  explicit ModelBinWriter(FileWriter& file) : file_(file) {}
  template <class T>
  void number(T value) {
    file_.write({reinterpret_cast<const char*>(&value), sizeof value});
  }
  void text(const std::string& value) {
    number(static_cast<std::uint16_t>(value.size() + 1));
    file_.write(value);
    number('\0');
  }
  void variable(const std::string& name, const ModelBinVariable& value) {
    text(name);
    if (const auto* tensor = std::get_if<Tensor>(&value)) {
      const std::vector<float> values = tensor->to_vector<float>();
      const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(float));
      check(bytes < (std::int64_t{1} << 32), "CTranslate2: ", name, " takes ", bytes,
            " bytes, more than its format holds");
      number(static_cast<std::uint8_t>(tensor->rank()));
      for (const std::int64_t extent : tensor->shape()) number(static_cast<std::uint32_t>(extent));
      number(std::uint8_t{0});  // f32
      number(static_cast<std::uint32_t>(bytes));
      file_.write({reinterpret_cast<const char*>(values.data()), static_cast<std::size_t>(bytes)});
    } else if (const auto* byte = std::get_if<std::int8_t>(&value)) {
      scalar(std::uint8_t{1}, *byte);
    } else {
      scalar(std::uint8_t{2}, std::get<std::int16_t>(value));
    }
  }

 private:
  template <class T>
  void scalar(std::uint8_t type, T value) {
    number(std::uint8_t{0});
    number(type);
    number(static_cast<std::uint32_t>(sizeof value));
    number(value);
  }
  FileWriter& file_;
};

void check_ctranslate2_settings(const std::string& settings) {
  Misfits misfits(settings);
  for (const char* const stack :
       {"model.encoder_attention", "model.decoder_attention", "model.cross_attention"})
    misfits.expect(stack, {"\"dot_product\""});
  misfits.expect_classic_layers();
  misfits.expect("model.positions", {"\"sinusoidal\"", "\"sinusoidal_halves\"", "\"learned\""});
  misfits.expect("model.share_layers", {"\"none\""});
  misfits.expect("model.embedding_norm", {"false"});
  misfits.expect("model.pointer", {"false"});
  misfits.check_none("CTranslate2");
}

}  // namespace

void write_ctranslate2(const fs::path& path, RunContent run, const std::vector<std::string>& source,
                       const std::vector<std::string>& target, const std::string& unknown) {
  check_ctranslate2_settings(run.settings);
  const Json model = Json::parse(run.settings).at("model");
  const std::map<std::string, ModelBinVariable> variables = ctranslate2_variables(run, model);
  const auto token = [&](std::int64_t id) { return target.at(static_cast<std::size_t>(id)); };
  const Json config = {{"add_source_bos", false},        {"add_source_eos", true},
                       {"bos_token", token(run.begin)},  {"decoder_start_token", token(run.begin)},
                       {"eos_token", token(run.end)},    {"layer_norm_epsilon", model.at("epsilon")},
                       {"multi_query_attention", false}, {"unk_token", unknown}};
  fill_new_folder(path, [&](const fs::path& folder) {
    write_file_atomically(folder / "model.bin", [&](FileWriter& file) {
      ModelBinWriter writer(file);
      writer.number(binary_version);
      writer.text("TransformerSpec");
      writer.number(spec_revision);
      writer.number(static_cast<std::uint32_t>(variables.size()));
      for (const auto& [name, value] : variables) writer.variable(name, value);
      writer.number(std::uint32_t{0});
    });
    const auto write_vocabulary = [&](const char* name, const std::vector<std::string>& tokens) {
      write_file_atomically(folder / name, Json(tokens).dump(2) + "\n");
    };
    if (source == target) {
      write_vocabulary("shared_vocabulary.json", target);
    } else {
      write_vocabulary("source_vocabulary.json", source);
      write_vocabulary("target_vocabulary.json", target);
    }
    write_file_atomically(folder / "config.json", config.dump(2) + "\n");
  });
}

}  // namespace heed
