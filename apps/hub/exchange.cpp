#include "heed/apps/hub/exchange.h"

#include "heed/apps/hub/architecture.h"
#include "heed/apps/tasks/language_model.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/models/layers.h"
#include "heed/text/tokenizer.h"
#include "heed/training/checkpoint.h"

namespace heed::hub {

std::int64_t find_mark_id(const Tokenizer& tokenizer, std::string_view mark) {
  try {
    return tokenizer.id_of(mark);
  } catch (const Error&) {
    return -1;
  }
}

namespace {

RunContent run_content(Run& run, const Tensors& weights, const Tokenizer& tokenizer) {
  Json settings = Json::parse(run.settings().json());
  const std::string begin = settings.value(Json::json_pointer("/tokenizer/begin"), ""),
                    end = settings.value(Json::json_pointer("/tokenizer/end"), "");
  RunContent content{.task = std::string(run.task_name()),
                     .settings = std::move(settings),
                     .weights = {},
                     .vocabulary = tokenizer.vocabulary_size(),
                     .begin = find_mark_id(tokenizer, begin.empty() ? "<s>" : begin),
                     .end = find_mark_id(tokenizer, end.empty() ? "</s>" : end),
                     .pad = find_mark_id(tokenizer, "<pad>")};
  if (run.task_name() == "language_model" && !run.settings().read<Generation>("generation").past_end) {
    content.ends = {content.end};
    for (const std::string& mark : run.settings().read<TextTokenizer>("tokenizer").more_ends)
      content.ends.push_back(tokenizer.id_of(mark));
  }
  content.labels = run.task().known_classes();
  if (const auto file = run.task().files().find("scale.json"); file != run.task().files().end())
    content.scale = parse_json<Json>(file->second, file->first);
  for (const auto& [name, tensor] : weights)
    if (tensor.dtype() == DType::f32)
      content.weights[name] = Tensor::from(tensor.to_vector<float>(), tensor.shape());
  return content;
}

/// The tokenizers of inputs and outputs; the same if the run has only one.
struct Tokenizers {
  Tokenizer source, target;
  bool are_two = false;
};

Tokenizers tokenizers_of_exported(Run& run) {
  const auto files = run.task().files();
  const auto found = files.find("tokenizer.json"), own = files.find("target_tokenizer.json");
  check(found != files.end(), "this ", run.task_name(), " run has no tokenizer: it reads no text");
  const Tokenizer source = Tokenizer::from_json(found->second, found->first);
  if (own == files.end()) return {source, source};
  return {source, Tokenizer::from_json(own->second, own->first), true};
}

/// Returns the tokenizer.json of a run for `transformers`. There, the tokenizer adds special tokens
/// around a text; in heed, the task does. Without them the exported model would silently read
/// something else. A tokenizer that came with a post-processor keeps it, unless it adds no tokens,
/// as in GPT-2.
std::string with_marks(const Tokenizer& tokenizer, const std::string& begin, bool has_end) {
  std::string text = tokenizer.to_json();
  Json file = Json::parse(text);
  const Json& part = file.at("post_processor");
  const bool puts_none = part.is_null() || (part.is_object() && part.value("type", Json()) == "ByteLevel");
  if (!puts_none || (begin.empty() && !has_end)) return text;
  Json special = Json::object(), single = Json::array();
  const auto add_mark = [&](std::string_view name, Json& list) {
    const std::int32_t id = tokenizer.id_of(name);
    const std::string& mark = tokenizer.token(id);
    list.push_back({{"SpecialToken", {{"id", mark}, {"type_id", 0}}}});
    special[mark] = {{"id", mark}, {"ids", {id}}, {"tokens", {mark}}};
  };
  const auto add_text = [&](const char* which, Json& list) {
    list.push_back({{"Sequence", {{"id", which}, {"type_id", 0}}}});
    if (has_end) add_mark("</s>", list);
  };
  if (!begin.empty()) add_mark(begin, single);
  add_text("A", single);
  Json pair = single;
  add_text("B", pair);
  file["post_processor"] = {
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
  return file.dump(2);
}

/// Returns tokenizer_config.json.
std::string tokenizer_config(const Tokenizer& tokenizer, const Settings& settings) {
  const char* const limit = settings.has("model.max_length") ? "model.max_length" : "data.max_tokens";
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"model_max_length", settings.get<std::int64_t>(limit)}};
  for (const auto& [role, mark] : {std::pair{"unk_token", "<unk>"},
                                   {"pad_token", "<pad>"},
                                   {"eos_token", "</s>"},
                                   {"mask_token", "<mask>"},
                                   {"bos_token", "<s>"}})
    if (const std::int64_t id = find_mark_id(tokenizer, mark); id >= 0)
      config[role] = tokenizer.token(static_cast<std::int32_t>(id));
  return config.dump(2) + "\n";
}

}  // namespace
}  // namespace heed::hub

namespace heed {

ExchangeReport export_run(const std::filesystem::path& path, const std::filesystem::path& out,
                          StoredFloat stored) {
  using namespace hub;
  Run run = Run::open(path, {.device = "cpu", .settings = {"int8_weights=false"}});
  const Tokenizers tokenizers = tokenizers_of_exported(run);
  RunContent content = run_content(
      run, merge_low_rank(model_state(run.task().model()), model_config(run.settings())), tokenizers.target);
  const Architecture& architecture = find_architecture(content);
  // A causal model adds no mark at the end; in a masked model, tokenizer.begin decides.
  const bool is_one_stack =
      content.task != "translate" && content.task != "summarize" && content.task != "converse";
  const std::string begin = is_one_stack ? run.settings().read<BeginMark>("tokenizer").begin : "";
  const bool is_causal = content.settings.value("objective", "") == "causal",
             has_end = content.task != "language_model" || (!is_causal && !begin.empty());
  const ExportPlan plan = architecture.export_plan(std::move(content));
  const Tensors weights = published_weights(plan, path.string());
  fill_new_folder(out, [&](const std::filesystem::path& folder) {
    write_file_atomically(folder / "tokenizer_config.json",
                          tokenizer_config(tokenizers.source, run.settings()));
    for (const auto& [name, json] : plan.beside) {
      std::filesystem::create_directories((folder / name).parent_path());
      write_file_atomically(folder / name, json.dump(2) + "\n");
    }
    write_file_atomically(folder / "tokenizer.json", with_marks(tokenizers.source, begin, has_end));
    if (tokenizers.are_two)
      write_file_atomically(folder / "target_tokenizer.json", with_marks(tokenizers.target, "", has_end));
    if (!plan.dense.empty())
      save_safetensors(folder / "2_Dense/model.safetensors", {plan.dense, {{"format", "pt"}}}, stored);
    save_safetensors(folder / "model.safetensors", {weights, {{"format", "pt"}}}, stored);
    write_file_atomically(folder / "config.json", plan.config.dump(2) + "\n");
  });
  return {
      std::string(architecture.name), std::string(run.task_name()), run.task().model().parameter_count(), {}};
}

StoredFloat stored_float(const std::string& dtype) {
  check_name("dtype", dtype, {"f32", "f16", "bf16"});
  return dtype == "f32" ? StoredFloat::f32 : dtype == "f16" ? StoredFloat::f16 : StoredFloat::bf16;
}

std::map<std::string, Tensor> published_tensors(Run& run, const std::map<std::string, Tensor>& ours) {
  hub::RunContent content = hub::run_content(run, ours, hub::tokenizers_of_exported(run).target);
  const hub::Architecture& architecture = hub::find_architecture(content);
  return hub::published_weights(architecture.export_plan(std::move(content)), "the run",
                                /*are_gradients=*/true);
}

}  // namespace heed
