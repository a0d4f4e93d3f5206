#include "heed/apps/hub/exchange.h"

#include <algorithm>
#include <set>

#include "heed/apps/hub/architecture.h"
#include "heed/apps/tasks/language_model.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/digest.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/data/sentencepiece.h"
#include "heed/data/tokenizer.h"
#include "heed/models/layers.h"
#include "heed/training/checkpoint.h"
#include "heed/training/run_folder.h"

namespace heed::hub {
namespace {

namespace fs = std::filesystem;

/// What a published folder holds.
struct PublishedModel {
  std::string config;                 ///< the text of config.json
  std::string tokenizer;              ///< the text of tokenizer.json, that of the sources if there are two
  std::string target_tokenizer = {};  ///< empty: the same
  std::string end = {};               ///< "eos_token" of tokenizer_config.json; empty: it names none
  Tensors tensors = {};               ///< by published name; 16-bit floats were converted to f32
  UnreadTensors unread = {};
  std::vector<std::string> remarks = {};
};

constexpr std::int64_t most_text_of_published = std::int64_t{1} << 28;  // a tokenizer takes tens of millions

std::string text_of_published(const fs::path& file) {
  return read_file(file, most_text_of_published);
}

Json json_of_published(const fs::path& file) {
  return parse_json<Json>(text_of_published(file), file.string());
}

void read_shards(const fs::path& folder, const fs::path& index, PublishedModel& model) {
  const Json json = json_of_published(index);
  const Json map = json.is_object() ? json.value("weight_map", Json()) : Json();
  check(map.is_object() && !map.empty(), index,
        " has no \"weight_map\" that says which file holds which weight");
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [name, file] : map.items()) {
    const std::string text = json_parts::text_of(file, concat_text(index, ": weight_map.", name));
    check(!text.empty() && text != "." && text != ".." &&
              text.find_first_of(std::string_view("/\0", 2)) == std::string::npos,
          index, ": ", file.dump(), " is not the name of a file in the folder");
    files[text].insert(name);
  }
  for (const auto& [file, names] : files) {
    UnreadTensors unread;
    TensorFile shard = load_safetensors(folder / file, {}, &unread);
    for (const std::string& name : names)
      check(shard.tensors.contains(name) || unread.contains(name), folder / file, " has no \"", name,
            "\", which ", index.filename(), " says it holds");
    const auto check_new = [&, path = folder / file](const std::string& name) {
      check(!model.tensors.contains(name) && !model.unread.contains(name), path, ": \"", name,
            "\" is in another file, too");
    };
    for (const auto& [name, tensor] : shard.tensors) check_new(name);
    for (const auto& [name, reason] : unread) check_new(name);
    model.tensors.merge(shard.tensors);
    model.unread.merge(unread);
  }
}

void read_published_weights(const fs::path& folder, PublishedModel& model) {
  const fs::path whole = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (path_exists(whole)) {
    model.tensors = load_safetensors(whole, {}, &model.unread).tensors;
    return;
  }
  if (path_exists(index)) return read_shards(folder, index, model);
  check(!path_exists(folder / "pytorch_model.bin"), folder,
        " has its weights only in pytorch_model.bin, which is a pickled program. Convert it to safetensors: "
        "python3 -c \"import torch, safetensors.torch as s; w = torch.load('pytorch_model.bin', "
        "weights_only=True); "
        "s.save_file({k: v.clone().contiguous() for k, v in w.items()}, 'model.safetensors')\"");
  fail("there is no model in ", folder,
       ": it has neither model.safetensors nor model.safetensors.index.json");
}

/// A SentencePiece model for each language, and one list of ids for both.
void read_sentencepieces(const fs::path& folder, PublishedModel& model) {
  const fs::path vocabulary = folder / "vocab.json";
  const std::vector<std::string> tokens =
      json_parts::tokens_by_id(json_of_published(vocabulary), vocabulary.string());
  for (auto& [name, json] :
       {std::pair("source.spm", &model.tokenizer), {"target.spm", &model.target_tokenizer}}) {
    const fs::path file = folder / name;
    SentencePieceTokenizer made =
        sentencepiece_tokenizer(read_sentencepiece(text_of_published(file), file.string()), tokens);
    if (!made.without_id.empty())
      model.remarks.push_back(concat_text("left out: ", made.without_id.size(), " pieces of ", name,
                                          " without an id in vocab.json, the first \"",
                                          made.without_id.front(), '"'));
    *json = std::move(made.json);
  }
}

void read_tokenizers(const fs::path& folder, PublishedModel& model) {
  if (path_exists(folder / "tokenizer.json")) {
    model.tokenizer = text_of_published(folder / "tokenizer.json");
    if (path_exists(folder / "target_tokenizer.json"))
      model.target_tokenizer = text_of_published(folder / "target_tokenizer.json");
    return;
  }
  if (path_exists(folder / "source.spm") && path_exists(folder / "target.spm") &&
      path_exists(folder / "vocab.json"))
    return read_sentencepieces(folder, model);
  fail(folder,
       " has no tokenizer.json, nor source.spm, target.spm and vocab.json. Make one with python3 -c \"from "
       "transformers import AutoTokenizer; "
       "AutoTokenizer.from_pretrained('.').backend_tokenizer.save('tokenizer.json')\"");
}

/// "eos_token" of tokenizer_config.json, a text or an object with its "content".
std::string end_of_published(const fs::path& file) {
  if (!path_exists(file)) return "";
  const Json json = json_of_published(file);
  Json end = json.is_object() ? json.value("eos_token", Json()) : Json();
  if (end.is_object()) end = end.value("content", Json());
  return end.is_string() ? end.get<std::string>() : "";
}

PublishedModel read_published(const fs::path& folder) {
  std::error_code unreadable;
  check(fs::is_directory(folder, unreadable), folder,
        " is not a folder with config.json, model.safetensors and tokenizer.json");
  check(path_exists(folder / "config.json"), "there is no model in ", folder, ": it has no config.json");
  PublishedModel model;
  model.config = text_of_published(folder / "config.json");
  read_published_weights(folder, model);
  read_tokenizers(folder, model);
  model.end = end_of_published(folder / "tokenizer_config.json");
  return model;
}

/// sentence-transformers keeps beside the model how token vectors are pooled. heed takes their mean.
void check_pooling(const fs::path& folder, const fs::path& file) {
  if (!path_exists(file)) return;
  const Json json = json_of_published(file);
  check(json.is_object(), file, " is not a JSON object");
  bool by_mean = false, otherwise = false;
  for (const auto& [name, value] : json.items()) {
    if (!name.starts_with("pooling_mode_")) continue;
    check(value.is_boolean(), file, ": \"", name, "\" must be true or false, is ", dumped(value));
    (name == "pooling_mode_mean_tokens" ? by_mean : otherwise) |= value.get<bool>();
  }
  check(by_mean && !otherwise, folder,
        " does not pool its tokens by their mean, the only pooling that heed supports: ", dumped(json));
}

/// modules.json lists the stages of a text. heed supports a model, pooling, and normalisation to length 1.
void check_sentence_transformer(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  if (!path_exists(file)) return check_pooling(folder, folder / "1_Pooling/config.json");
  const Json modules = json_of_published(file);
  check(modules.is_array(), file, " is not a list of modules");
  for (const Json& module : modules) {
    const std::string where = concat_text(file, ": a module"),
                      type = json_parts::text_in(module, "type", where),
                      kind = type.substr(type.rfind('.') + 1);
    check(kind == "Transformer" || kind == "Pooling" || kind == "Normalize", folder,
          " sends its vectors through ", type, ", which heed does not support");
    if (kind == "Pooling")
      check_pooling(folder, folder / json_parts::text_in(module, "path", where) / "config.json");
  }
}

/// A tokenizer.json may truncate and pad texts. In heed data.max_tokens truncates and batches pad.
std::string without_lengths(const std::string& text, std::vector<std::string>& remarks) {
  auto json = parse_json<nlohmann::json>(text, "tokenizer.json");
  check(json.is_object(), "tokenizer.json is not a JSON object");
  bool changed = false;
  for (const char* const part : {"truncation", "padding"}) {
    if (json_parts::is_null(json, part)) continue;
    remarks.push_back(concat_text("left out of tokenizer.json: ", part, ' ', dumped(json[part])));
    json[part] = nullptr;
    changed = true;
  }
  return changed ? json.dump() : text;
}

/// -1 for a mark that the tokenizer does not have, under whatever name.
std::int64_t id_of_mark(const Tokenizer& tokenizer, std::string_view mark) {
  try {
    return tokenizer.id_of(mark);
  } catch (const Error&) {
    return -1;
  }
}

/// The mark that the post-processor of a tokenizer.json puts before a text; "": none.
std::string mark_before_texts(const nlohmann::json& part) {
  if (!part.is_object()) return "";
  if (part.value("type", "") == "Sequence") {
    for (const auto& one : part.value("processors", nlohmann::json::array()))
      if (std::string mark = mark_before_texts(one); !mark.empty()) return mark;
    return "";
  }
  const auto single = part.value("single", nlohmann::json());
  if (part.value("type", "") != "TemplateProcessing" || !single.is_array() || single.empty()) return "";
  const auto first = single.front().value("SpecialToken", nlohmann::json());
  return first.is_object() ? first.value("id", "") : "";
}

/// Tells the settings of a language model which marks begin and end its texts. Of several tokens that end
/// one, which config.json may list, it is the tokenizer's, or else the first.
void set_marks_of_texts(const PublishedModel& model, const Tokenizer& tokenizer, const ImportPlan& plan,
                        Settings& settings) {
  if (plan.ends_text.empty()) return;
  const std::int64_t own = model.end.empty() ? -1 : id_of_mark(tokenizer, model.end);
  const std::int64_t end = std::ranges::count(plan.ends_text, own) > 0 ? own : plan.ends_text.front();
  check(end < tokenizer.vocabulary_size(), "config.json: token ", end,
        " ends a text, but tokenizer.json has ", tokenizer.vocabulary_size(), " tokens");
  if (id_of_mark(tokenizer, text_mark) != end)
    settings.set("tokenizer.end", tokenizer.token(static_cast<std::int32_t>(end)), "config.json");
  const auto json = parse_json<nlohmann::json>(model.tokenizer, "tokenizer.json");
  if (const std::string begin = mark_before_texts(json.value("post_processor", nlohmann::json()));
      !begin.empty())
    settings.set("tokenizer.begin", begin, "tokenizer.json");
}

/// The tokenizers of a run, of which the settings are told. Texts end in </s>, and a masked model fills in
/// <mask>: without these tokens a run could not answer.
NamedFiles imported_tokenizers(const PublishedModel& model, const ImportPlan& plan, Settings& settings) {
  NamedFiles files;
  const auto add = [&](const std::string& name, const std::string& text, bool is_masked) {
    const Tokenizer tokenizer = Tokenizer::from_json(text, name);
    for (const auto& [mark, is_needed] : {std::pair("</s>", plan.ends_text.empty()), {"<mask>", is_masked}})
      check(!is_needed || id_of_mark(tokenizer, mark) >= 0, name, ": the tokenizer has no token \"", mark,
            '"');
    files[name] = tokenizer.to_json();
    return tokenizer;
  };
  const Tokenizer tokenizer =
      add("tokenizer.json", model.tokenizer, plan.settings.value("objective", "") == "masked");
  check(plan.end < 0 || plan.end == tokenizer.id_of("</s>"), "config.json: token ", plan.end,
        " ends what is written, but in tokenizer.json that is token ", tokenizer.id_of("</s>"));
  set_marks_of_texts(model, tokenizer, plan, settings);
  if (plan.begin >= 0) {
    check(plan.begin < tokenizer.vocabulary_size(), "config.json: token ", plan.begin,
          " begins what is written, but tokenizer.json has ", tokenizer.vocabulary_size(), " tokens");
    settings.set("tokenizer.begin", tokenizer.token(static_cast<std::int32_t>(plan.begin)), "config.json");
  }
  if (!model.target_tokenizer.empty()) {
    add("target_tokenizer.json", model.target_tokenizer, false);
    settings.set("tokenizer.separate", "true", "target_tokenizer.json");
  }
  return files;
}

/// A published vocabulary is often rounded up. Rows without a token are dropped from all weights that have a
/// row for each token.
void fit_vocabulary(Tensors& weights, std::int64_t tokens, std::vector<std::string>& remarks) {
  const std::int64_t rows = weights.at("embedding.weight").size(0);
  check(rows >= tokens, "tokenizer.json has ", tokens, " tokens, but the embedding ", rows,
        " rows: they do not belong together");
  if (rows == tokens) return;
  const NoGrad no_grad;
  for (const char* const name : {"embedding.weight", "output.weight", "output.bias", "output_bias"})
    if (const auto found = weights.find(name); found != weights.end() && found->second.size(0) == rows)
      found->second = contiguous(slice(found->second, 0, 0, tokens));
  remarks.push_back(concat_text("left out: ", rows - tokens, " rows of the embedding without a token"));
}

void save_imported_weights(RunFolder& folder, Module& model) {
  TrainerState state;
  state.identity = folder.identity();
  state.platform = platform_name({});
  folder.commit([&](const OpenFolder& staging) {
    staging.write("model.safetensors", [&](FileWriter& file) { write_model(file, model, {{"step", "0"}}); });
    state.files["model.safetensors"] = {digest_of_file(staging, "model.safetensors"), 0};
    staging.write("trainer_state.json", trainer_state_text(state));
  });
}

RunContent run_content(Run& run, const Tensors& weights, const Tokenizer& tokenizer) {
  Json settings = Json::parse(run.settings().json());
  const std::string begin = settings.value(Json::json_pointer("/tokenizer/begin"), ""),
                    end = settings.value(Json::json_pointer("/tokenizer/end"), "");
  RunContent content{.task = std::string(run.task()),
                     .settings = std::move(settings),
                     .weights = {},
                     .vocabulary = tokenizer.vocabulary_size(),
                     .begin = id_of_mark(tokenizer, begin.empty() ? "<s>" : begin),
                     .end = tokenizer.id_of(end.empty() ? "</s>" : end),
                     .pad = id_of_mark(tokenizer, "<pad>")};
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
  const auto files = run.learner().files();
  const auto found = files.find("tokenizer.json"), own = files.find("target_tokenizer.json");
  check(found != files.end(), "this ", run.task(), " run has no tokenizer: it reads no text");
  const Tokenizer source = Tokenizer::from_json(found->second, found->first);
  if (own == files.end()) return {source, source};
  return {source, Tokenizer::from_json(own->second, own->first), true};
}

/// The tokenizer.json of a run for `transformers`. There the tokenizer adds the special tokens around a text,
/// here the task does; without them the exported model would silently read something else. A tokenizer that
/// came with a post-processor keeps it, unless that adds no tokens, as GPT-2's.
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

std::string tokenizer_config(const Tokenizer& tokenizer) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [role, mark] : {std::pair{"unk_token", "<unk>"},
                                   {"pad_token", "<pad>"},
                                   {"eos_token", "</s>"},
                                   {"mask_token", "<mask>"},
                                   {"bos_token", "<s>"}})
    if (const std::int64_t id = id_of_mark(tokenizer, mark); id >= 0)
      config[role] = tokenizer.token(static_cast<std::int32_t>(id));
  return config.dump(2) + "\n";
}

}  // namespace
}  // namespace heed::hub

namespace heed {

ExchangeReport import_run(const std::filesystem::path& folder, const std::filesystem::path& out) {
  using namespace hub;
  RunFolder::check_new(out);
  PublishedModel model = read_published(folder);
  const Config config(model.config);
  const Architecture& architecture = architecture_of(config, model.tensors);
  const ImportPlan plan = architecture.import_plan(config, model.tensors);
  if (plan.task == "embed_text") check_sentence_transformer(folder);
  std::vector<std::string> remarks = std::move(model.remarks);
  remarks.insert(remarks.end(), plan.remarks.begin(), plan.remarks.end());
  model.tokenizer = without_lengths(model.tokenizer, remarks);

  const TaskKind& kind = task_kind(plan.task);
  Settings settings = kind.settings(true);
  settings.merge(plan.settings.dump(), "config.json");
  const NamedFiles files = imported_tokenizers(model, plan, settings);
  const std::unique_ptr<Learner> learner = kind.make(std::move(settings));
  learner->check_settings();
  learner->open_files([&](std::string_view name) {
    const auto found = files.find(std::string(name));
    check(found != files.end(), "a published model has no ", name);
    return found->second;
  });
  Tensors weights = our_weights(model.tensors, model.unread, plan, folder.string());
  learner->build({});
  const Tokenizer tokenizer = Tokenizer::from_json(files.at("tokenizer.json"), "tokenizer.json");
  fit_vocabulary(weights, tokenizer.vocabulary_size(), remarks);
  load_model_state(learner->model(), weights, folder.string());

  fill_new_folder(out, [&](const std::filesystem::path& staged) {
    RunFolder run = RunFolder::create(
        staged, {std::string(kind.name), learner->settings().json("", 2) + "\n", learner->files(), {}, {}});
    save_imported_weights(run, learner->model());
  });
  return {std::string(architecture.name), std::string(kind.name), learner->model().parameter_count(),
          std::move(remarks)};
}

ExchangeReport export_run(const std::filesystem::path& path, const std::filesystem::path& out,
                          StoredFloat stored) {
  using namespace hub;
  Run run = Run::open(path, {.device = "cpu", .settings = {"int8_weights=false"}});
  const Tokenizers tokenizers = tokenizers_of_exported(run);
  RunContent content =
      run_content(run, merged_low_rank(model_state(run.learner().model()), model_config(run.settings())),
                  tokenizers.target);
  const Architecture& architecture = architecture_of(content);
  // A causal model adds no mark at the end; whether the others add any, a masked one's tokenizer.begin says.
  const std::string begin = content.task == "embed_text" || content.task == "language_model"
                                ? run.settings().get<std::string>("tokenizer.begin")
                                : "";
  const bool is_causal = content.settings.value("objective", "") == "causal",
             has_end = content.task != "language_model" || (!is_causal && !begin.empty());
  const ExportPlan plan = architecture.export_plan(std::move(content));
  const Tensors weights = published_weights(plan, path.string());
  fill_new_folder(out, [&](const std::filesystem::path& folder) {
    write_file_atomically(folder / "tokenizer_config.json", tokenizer_config(tokenizers.source));
    write_file_atomically(folder / "tokenizer.json", with_marks(tokenizers.source, begin, has_end));
    if (tokenizers.are_two)
      write_file_atomically(folder / "target_tokenizer.json", with_marks(tokenizers.target, "", has_end));
    save_safetensors(folder / "model.safetensors", {weights, {{"format", "pt"}}}, stored);
    write_file_atomically(folder / "config.json", plan.config.dump(2) + "\n");
  });
  return {
      std::string(architecture.name), std::string(run.task()), run.learner().model().parameter_count(), {}};
}

std::map<std::string, Tensor> published_tensors(Run& run, const std::map<std::string, Tensor>& ours) {
  hub::RunContent content = hub::run_content(run, ours, hub::tokenizers_of_exported(run).target);
  const hub::Architecture& architecture = hub::architecture_of(content);
  return hub::published_weights(architecture.export_plan(std::move(content)), "the run");
}

}  // namespace heed
