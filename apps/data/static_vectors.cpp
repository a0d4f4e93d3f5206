#include "heed/apps/data/static_vectors.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/base/unicode.h"
#include "heed/core/tensor.h"
#include "heed/text/safetensors.h"

namespace heed {
namespace {

using Json = nlohmann::json;

/// Returns a tokenizer.json that does not cut or pad texts.
std::string without_lengths(std::string_view text, const std::string& source) {
  auto json = parse_json<Json>(text, source);
  check(json.is_object(), source, " is not a JSON object");
  json["truncation"] = json["padding"] = nullptr;
  return json.dump();
}

/// Returns the table [tokens, width] of a file, as StaticVectors describes it, and its width.
std::pair<std::vector<float>, std::int64_t> read_table(const TensorFile& file, std::int64_t tokens,
                                                       const std::string& source) {
  const auto tensor = [&](const char* name) {
    const auto found = file.tensors.find(name);
    return found == file.tensors.end() ? Tensor() : found->second;
  };
  Tensor rows = tensor("embeddings");
  if (!rows.defined()) rows = tensor("embedding.weight");
  check(rows.defined() && rows.rank() == 2 && rows.dtype() == DType::f32 && rows.size(1) > 0, source,
        " has no vectors: neither \"embeddings\" nor \"embedding.weight\" is a matrix of floats");
  const Tensor factors = tensor("weights"), mapping = tensor("mapping");
  const std::int64_t count = rows.size(0), width = rows.size(1);
  check(
      mapping.defined() ? mapping.shape() == Shape{tokens} && mapping.dtype() == DType::i32 : count == tokens,
      source, ": tokenizer.json has ", tokens, " tokens, but there are ",
      mapping.defined() ? mapping.size(0) : count, " vectors: they do not belong together");
  check(!factors.defined() || (factors.shape() == Shape{tokens} && factors.dtype() == DType::f32), source,
        ": \"weights\" must have a float for each of ", tokens, " tokens");
  const std::vector<float> all = rows.to_vector<float>(),
                           scale = factors.defined() ? factors.to_vector<float>() : std::vector<float>();
  const std::vector<std::int32_t> places =
      mapping.defined() ? mapping.to_vector<std::int32_t>() : std::vector<std::int32_t>();
  std::vector<float> table;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const auto at = static_cast<std::size_t>(token);
    const std::int64_t row = places.empty() ? token : places[at];
    check(row >= 0 && row < count, source, ": \"mapping\" sends token ", token, " to row ", row, " of ",
          count);
    for (std::int64_t i = 0; i < width; ++i) {
      table.push_back(all[static_cast<std::size_t>(row * width + i)] * (scale.empty() ? 1 : scale[at]));
      check(std::isfinite(table.back()), source, ": the vector of token ", token, " is not finite");
    }
  }
  return {std::move(table), width};
}

}  // namespace

StaticVectors StaticVectors::load(const std::filesystem::path& folder) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 32;
  const bool is_nested =
      !path_exists(folder / "model.safetensors") && path_exists(folder / "0_StaticEmbedding");
  const std::filesystem::path own = is_nested ? folder / "0_StaticEmbedding" : folder;
  for (const char* const name : {"tokenizer.json", "model.safetensors"})
    check(path_exists(own / name), folder, " is no folder of static vectors: it has no ", name);
  return {read_file(own / "tokenizer.json", most_bytes), read_file(own / "model.safetensors", most_bytes),
          own.string()};
}

StaticVectors::StaticVectors(std::string_view tokenizer, std::string_view tensors, const std::string& source)
    : json_(without_lengths(tokenizer, source + "/tokenizer.json")),
      tokenizer_(Tokenizer::from_json(json_, source + "/tokenizer.json")) {
  UnsupportedTensors unread;
  const std::string file = source + "/model.safetensors";
  std::tie(table_, width_) =
      read_table(parse_safetensors(tensors, file, {}, &unread), tokenizer_.vocabulary_size(), file);
  for (const char* const mark : {"[UNK]", "<unk>"})
    if (const auto id = tokenizer_.find(mark)) unknown_ = *id;
}

std::string StaticVectors::tensors() const {
  const std::int64_t tokens = std::ssize(table_) / width_;
  return safetensors_text({{{"embeddings", Tensor::from(table_, {tokens, width_})}}, {}});
}

std::vector<float> StaticVectors::operator()(std::string_view text) const {
  std::vector<double> sum(static_cast<std::size_t>(width_));
  for (const std::int32_t token : tokenizer_.encode(unicode::beginning(text, 1 << 16)))
    for (std::size_t i = 0; token != unknown_ && i < sum.size(); ++i)
      sum[i] += static_cast<double>(table_[static_cast<std::size_t>(token) * sum.size() + i]);
  double squares = 0;
  for (const double one : sum) squares += one * one;
  std::vector<float> vector;
  for (const double one : sum)
    vector.push_back(static_cast<float>(squares > 0 ? one / std::sqrt(squares) : 0));
  return vector;
}

}  // namespace heed
