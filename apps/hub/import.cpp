#include "heed/apps/hub/exchange.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "heed/apps/hub/architecture.h"
#include "heed/apps/tasks/class_heads.h"
#include "heed/apps/tasks/language_model.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/digest.h"
#include "heed/base/file.h"
#include "heed/base/fork.h"
#include "heed/base/json.h"
#include "heed/text/sentencepiece.h"
#include "heed/text/tokenizer.h"
#include "heed/training/checkpoint.h"
#include "heed/training/run_folder.h"

// Reads published folders, converts them to runs on disk, or opens them in place as runs.

namespace heed::hub {
namespace {

namespace fs = std::filesystem;

/// The contents of a published folder.
struct PublishedModel {
  std::string config;  ///< the text of config.json
  PublishedTexts texts = {};
  Tensors tensors = {};  ///< by published name; 16-bit floats were converted to f32
  UnsupportedTensors unread = {};
  std::vector<std::string> remarks = {};
};

constexpr std::int64_t most_text_of_published = std::int64_t{1} << 28;  // a tokenizer takes tens of millions

std::string text_of_published(const fs::path& file) {
  return read_file(file, most_text_of_published);
}

Json json_of_published(const fs::path& file) {
  return parse_json<Json>(text_of_published(file), file.string());
}

/// A module of sentence-transformers, a stage that texts pass through.
struct SentenceModule {
  std::string type;  ///< "sentence_transformers.models.Pooling"
  fs::path folder;
  bool is(std::string_view name) const {
    return type.starts_with("sentence_transformers.") && type.ends_with(concat_text('.', name));
  }
};

/// Reads modules.json; empty if there is none.
std::vector<SentenceModule> sentence_modules(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  if (!path_exists(file)) return {};
  const Json json = json_of_published(file);
  check(json.is_array(), file, " is not a list of modules");
  std::vector<SentenceModule> modules;
  for (const Json& module : json) {
    const std::string where = concat_text(file, ": a module");
    const fs::path path = json_parts::text_in(module, "path", where);
    check(path.is_relative() && std::ranges::count(path, fs::path("..")) == 0, where, " has the path ", path,
          ", outside the folder");
    modules.push_back({json_parts::text_in(module, "type", where), folder / path});
  }
  return modules;
}

/// Returns the folder of the model itself: sentence-transformers may keep it in a subfolder.
fs::path folder_of_model(const fs::path& folder) {
  if (path_exists(folder / "config.json")) return folder;
  for (const SentenceModule& module : sentence_modules(folder))
    if (module.is("Transformer")) return module.folder;
  return folder;
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
    UnsupportedTensors unread;
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
       {std::pair("source.spm", &model.texts.tokenizer), {"target.spm", &model.texts.target_tokenizer}}) {
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
    model.texts.tokenizer = text_of_published(folder / "tokenizer.json");
    if (path_exists(folder / "target_tokenizer.json"))
      model.texts.target_tokenizer = text_of_published(folder / "target_tokenizer.json");
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

/// Returns a file as a JSON object; an empty one if there is no such file.
Json object_of_published(const fs::path& file) {
  if (!path_exists(file)) return Json::object();
  Json json = json_of_published(file);
  check(json.is_object(), file, " is not a JSON object");
  return json;
}

PublishedModel read_published(const fs::path& given) {
  const fs::path folder = folder_of_model(given);
  std::error_code unreadable;
  check(fs::is_directory(folder, unreadable), folder,
        " is not a folder with config.json, model.safetensors and tokenizer.json");
  check(path_exists(folder / "config.json"), "there is no model in ", folder, ": it has no config.json");
  PublishedModel model;
  model.config = text_of_published(folder / "config.json");
  read_published_weights(folder, model);
  read_tokenizers(folder, model);
  model.texts.tokenizer_config = object_of_published(folder / "tokenizer_config.json");
  if (const fs::path file = folder / "generation_config.json"; path_exists(file))
    model.texts.generation = text_of_published(file);
  return model;
}

/// Returns a tokenizer.json that first makes texts lower-case.
std::string in_lower_case(const std::string& text) {
  Json json = parse_json<Json>(text, "tokenizer.json");
  check(json.is_object(), "tokenizer.json is not a JSON object");
  Json steps = Json::array({{{"type", "Lowercase"}}});
  if (!json_parts::is_null(json, "normalizer")) steps.push_back(json["normalizer"]);
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
  return json.dump();
}

/// Returns the value of model.pooling from the pooling file of sentence-transformers; "": there is no such
/// file.
std::string pooling_of_published(const fs::path& folder, const fs::path& file) {
  if (!path_exists(file)) return "";
  const Json json = json_of_published(file);
  check(json.is_object(), file, " is not a JSON object");
  std::vector<std::string> modes;
  for (const auto& [name, value] : json.items()) {
    if (!name.starts_with("pooling_mode_")) continue;
    check(value.is_boolean(), file, ": \"", name, "\" must be true or false, is ", dumped(value));
    if (value.get<bool>()) modes.push_back(name);
  }
  for (const auto& [published, ours] : sentence_poolings)
    if (modes == std::vector<std::string>{published}) return ours;
  fail(folder,
       " pools its tokens in a way that heed does not support; it supports one of their mean, weighted mean "
       "or "
       "maximum, and the first or last of them alone: ",
       dumped(json));
}

/// Reads a Dense module, which becomes the pooler.
void take_dense_module(const fs::path& folder, ImportPlan& plan, Tensors& weights) {
  const Config config(text_of_published(folder / "config.json"), (folder / "config.json").string());
  const std::string kind = config.value("activation_function", "torch.nn.modules.activation.Tanh");
  const auto* const known =
      std::ranges::find(dense_activations, kind, [](const auto& pair) { return pair.first; });
  check(known != std::end(dense_activations), folder, ": \"activation_function\" is \"", kind,
        "\", which heed does not support; it supports Tanh, ReLU, GELU and Identity");
  const std::int64_t width = config.integer("out_features", 1, 65536);
  plan.settings["model"].update({{"pooler", known->second}, {"pooler_width", width}});
  for (auto& [name, tensor] : load_safetensors(folder / "model.safetensors").tensors)
    weights["2_Dense." + name] = tensor;
  if (!config.value("bias", true).get<bool>()) weights["2_Dense.linear.bias"] = Tensor::zeros({width});
  plan.names.add_map({"2_Dense.linear", "pooler"});
}

/// Returns the prompt that sentence-transformers puts before every text; "": none. Those that it puts
/// on request become a remark.
std::string prompt_of_sentences(const fs::path& file, std::vector<std::string>& remarks) {
  const Json json = object_of_published(file), name = json.value("default_prompt_name", Json()),
             prompts = json.value("prompts", Json());
  if (name.is_null()) {
    std::vector<std::string> others;
    for (const auto& [its_name, prompt] : prompts.items())
      if (prompt.is_string() && prompt != "") others.push_back(concat_text(its_name, ' ', dumped(prompt)));
    if (!others.empty())
      remarks.push_back(
          concat_text("no prompt is put before texts; tokenizer.prompt may be that for ", listed(others)));
    return "";
  }
  check(name.is_string() && prompts.is_object() && prompts.value(name.get<std::string>(), Json()).is_string(),
        file, ": \"default_prompt_name\" is ", dumped(name), ", which is not one of the \"prompts\"");
  return prompts.at(name.get<std::string>());
}

/// Takes over how sentence-transformers makes vectors: pooling, a map, length 1 or not, and the prompt.
void take_sentence_modules(const fs::path& folder, ImportPlan& plan, Tensors& weights) {
  const std::vector<SentenceModule> modules = sentence_modules(folder);
  fs::path pooling = folder / "1_Pooling";
  bool normalises = modules.empty();
  for (const SentenceModule& module : modules) {
    const bool is_dense = module.is("Dense"),
               is_second = is_dense && plan.settings["model"].contains("pooler");
    check((module.is("Transformer") || module.is("Pooling") || module.is("Normalize") || is_dense) &&
              !is_second && !(is_dense && normalises),
          folder, " sends its vectors through ", module.type, is_dense ? " twice or after Normalize" : "",
          ", which heed does not support");
    if (is_dense) take_dense_module(module.folder, plan, weights);
    if (module.is("Pooling")) pooling = module.folder;
    normalises = normalises || module.is("Normalize");
  }
  if (modules.empty())
    plan.remarks.emplace_back("there is no modules.json: vectors are the mean of the tokens, with length 1");
  const fs::path file = pooling / "config.json";
  if (const std::string kind = pooling_of_published(folder, file); !kind.empty())
    plan.settings["model"]["pooling"] = kind;
  const std::string prompt = prompt_of_sentences(folder / "config_sentence_transformers.json", plan.remarks);
  check(prompt.empty() || json_parts::flag(object_of_published(file), "include_prompt", true, file.string()),
        file, ": \"include_prompt\" is false, which heed does not support with the prompt \"", prompt, '"');
  plan.settings["tokenizer"]["prompt"] = prompt;
  plan.settings["prediction"]["normalise"] = normalises;
}

/// Takes over the longest text that a folder names, and sentence-transformers' lower case.
void take_text_limits(const fs::path& folder, ImportPlan& plan, PublishedModel& model) {
  std::int64_t& most = plan.settings["data"]["max_tokens"].get_ref<std::int64_t&>();
  const auto limit = [&, positions = most](const fs::path& file, const Json& object, const char* name) {
    const Json value = object.value(name, Json());
    if (value.is_null()) return false;
    check(value.is_number() && value >= 1, file, ": \"", name, "\" must be a number from 1, is ",
          dumped(value));
    if (value < positions) {  // without a limit, a file has 1e30
      most = value.get<std::int64_t>();
      plan.remarks.push_back(concat_text(
          plan.task == "tag" ? "longer texts are read in parts of " : "texts are cut at ", most, " tokens (",
          name, " of ", file.filename().string(), "), of ", positions, " positions"));
    }
    return true;
  };
  for (const char* const kind : {"bert", "roberta", "distilbert", "xlm-roberta", "mpnet"}) {
    const fs::path file = folder / concat_text("sentence_", kind, "_config.json");
    if (plan.task != "embed_text" || !path_exists(file)) continue;
    const Json object = object_of_published(file);
    if (json_parts::flag(object, "do_lower_case", false, file.string()))
      model.texts.tokenizer = in_lower_case(model.texts.tokenizer);
    if (limit(file, object, "max_seq_length")) return;
    break;
  }
  limit(folder / "tokenizer_config.json", model.texts.tokenizer_config, "model_max_length");
}

/// Drops rows without a token from all weights with a row per token: published vocabularies are
/// often rounded up.
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

/// Drops the learned positions behind the longest text.
void fit_positions(Tensors& weights, const Settings& settings) {
  const auto found = weights.find("input.positions.weight");
  if (found == weights.end() || !settings.has("data.max_tokens")) return;
  const NoGrad no_grad;
  const std::int64_t most = settings.read<TextLimits>("data").max_tokens;
  if (found->second.size(0) > most) found->second = contiguous(slice(found->second, 0, 0, most));
}

void save_imported_weights(RunFolder& folder, Module& model) {
  TrainerState state;
  state.identity = folder.identity();
  state.platform = platform_name({});
  folder.commit([&](const OpenFolder& staging) {
    staging.write("model.safetensors", [&](FileWriter& file) { write_model(file, model, {{"step", "0"}}); });
    state.files["model.safetensors"] = {file_digest(staging, "model.safetensors"), 0};
    staging.write("trainer_state.json", trainer_state_text(state));
  });
}

/// A published folder as a run whose model is not built yet.
struct ImportedRun {
  std::unique_ptr<Task> task;  ///< with its files
  Tensors weights;             ///< by the names of its model
  std::string architecture;
  std::vector<std::string> remarks;
};

ImportedRun imported(const fs::path& folder) {
  PublishedModel model = read_published(folder);
  const Config config(model.config);
  const Architecture& architecture = find_architecture(config, model.tensors);
  config.expect(common_members());
  config.expect(*architecture.members);
  ImportPlan plan = architecture.import_plan(config, model.tensors);
  if (plan.task == "embed_text") take_sentence_modules(folder, plan, model.tensors);
  if (plan.task == "embed_text" || plan.task == "classify" || plan.task == "rate" || plan.task == "tag")
    take_text_limits(folder_of_model(folder), plan, model);
  std::vector<std::string> remarks = std::move(model.remarks);
  remarks.insert(remarks.end(), plan.remarks.begin(), plan.remarks.end());
  const TaskEntry& entry = task_entry(plan.task);
  Settings settings = entry.settings(true);
  settings.merge(plan.settings.dump(), "config.json");
  NamedFiles files = imported_files(model.texts, config, plan, settings, remarks);
  Tensors weights = our_weights(model.tensors, model.unread, plan, folder.string());
  for (const std::string& name : plan.zeros)
    weights[name] = Tensor::zeros({weights.at("embedding.weight").size(1)});
  if (!plan.labels.empty()) files["classes.json"] = classes_to_json(plan.labels);
  if (plan.task == "rate") files["scale.json"] = R"({"mean": 0, "deviation": 1})";
  std::unique_ptr<Task> task = entry.make(std::move(settings));
  task->open_files([&](std::string_view name) {
    const auto found = files.find(std::string(name));
    check(found != files.end(), "a published model has no ", name);
    return found->second;
  });
  task->check_build();
  const Tokenizer tokenizer = Tokenizer::from_json(files.at("tokenizer.json"), "tokenizer.json");
  fit_vocabulary(weights, tokenizer.vocabulary_size(), remarks);
  fit_positions(weights, task->settings());
  return {std::move(task), std::move(weights), std::string(architecture.name), std::move(remarks)};
}

// --- folders opened in place

/// Whether a folder has the config.json of a published model.
bool is_published(const fs::path& folder) {
  const fs::path file = folder_of_model(folder) / "config.json";
  if (!path_exists(file)) return false;
  const auto json = nlohmann::json::parse(text_of_published(file), nullptr, false);
  return json.is_object() && json.contains("model_type");
}

/// Returns a value that changes when a file in the folder or its subfolders does.
std::string describe_state(const fs::path& folder) {
  std::set<std::string> files;
  fs::recursive_directory_iterator one(folder, fs::directory_options::skip_permission_denied);
  for (; one != fs::recursive_directory_iterator(); ++one) {
    if (one.depth() > 0) one.disable_recursion_pending();
    if (std::error_code error; one->is_regular_file(error))
      files.insert(concat_text('/', one->path().string(), ' ', one->file_size(error), ' ',
                               one->last_write_time(error).time_since_epoch().count()));
  }
  std::string state = fs::absolute(folder).string();
  for (const std::string& file : files) state += file;
  return state;
}

/// The last run read, kept until its weights are taken, because starting from a folder opens it
/// several times.
struct LastRead {
  std::mutex mutex;
  std::string state;
  std::shared_ptr<const RunFiles> run;

  static LastRead& instance() {
    static auto* const own = new PerProcess<LastRead>;
    return own->get();
  }
};

/// A published model as a run, which has only "last" weights.
class PublishedRun : public RunFiles {
 public:
  PublishedRun(const fs::path& folder, const RunManifest& manifest, std::string digest, ImportedRun made)
      : RunFiles(folder, made.task->settings().json("", 2) + "\n", manifest),
        files_(made.task->files()),
        weights_(std::move(made.weights)),
        digest_(std::move(digest)),
        remarks_(std::move(made.remarks)) {}

  static std::shared_ptr<const RunFiles> of(const fs::path& folder) {
    ImportedRun made = imported(folder);
    Digest of_weights, of_all;
    for (const auto& [name, tensor] : made.weights) {
      const std::vector<float> values = tensor.to_vector<float>();
      of_weights.add(name);
      of_weights.add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    }
    std::string digest = of_weights.hex();
    of_all.add(digest + made.task->settings().json("", 2) + "\n");
    RunManifest manifest;
    for (const auto& [name, content] : made.task->files()) {
      of_all.add(name + content);
      manifest.files[name] = compute_digest(content);
    }
    manifest.task = made.task->entry().name;
    manifest.identity = of_all.hex();
    return std::make_shared<PublishedRun>(folder, manifest, std::move(digest), std::move(made));
  }

  std::string text(std::string_view name) const override {
    digest_of_file(name);
    return files_.at(std::string(name));
  }
  bool has_checkpoint() const override { return true; }
  bool has_best() const override { return false; }
  SavedFile saved(std::string_view which) const override {
    check(which == "last", path(), " has no ", which,
          " weights: it is not a run of heed, and has only one set of weights");
    return {digest_, 0};
  }
  Weights weights(std::string_view which) const override {
    std::string digest = saved(which).digest;
    LastRead& last = LastRead::instance();
    const std::lock_guard alone(last.mutex);
    last.run = nullptr;
    return {weights_, std::move(digest)};
  }
  std::vector<std::string> remarks() const override { return remarks_; }

 private:
  const NamedFiles files_;
  const Tensors weights_;
  const std::string digest_;
  const std::vector<std::string> remarks_;
};

}  // namespace
}  // namespace heed::hub

namespace heed {

ExchangeReport import_run(const std::filesystem::path& folder, const std::filesystem::path& out) {
  using namespace hub;
  RunFolder::check_new(out);
  ImportedRun made = imported(folder);
  Task& task = *made.task;
  task.build({});
  load_model_state(task.model(), made.weights, folder.string());
  const std::string name(task.entry().name);
  fill_new_folder(out, [&](const std::filesystem::path& staged) {
    RunFolder run =
        RunFolder::create(staged, {name, task.settings().json("", 2) + "\n", task.files(), {}, {}});
    save_imported_weights(run, task.model());
  });
  return {std::move(made.architecture), name, task.model().parameter_count(), std::move(made.remarks)};
}

std::shared_ptr<const RunFiles> open_run(const std::filesystem::path& folder, bool verify) {
  using namespace hub;
  std::error_code unreadable;
  if (!std::filesystem::is_directory(folder, unreadable) || path_exists(folder / "run.json") ||
      !is_published(folder))
    return RunFiles::open(folder, verify);
  LastRead& last = LastRead::instance();
  const std::lock_guard lock(last.mutex);
  std::string state = describe_state(folder);
  if (last.run && last.state == state) return last.run;
  last.run = nullptr;  // before another takes memory
  last.run = PublishedRun::of(folder);
  last.state = std::move(state);
  return last.run;
}

}  // namespace heed
