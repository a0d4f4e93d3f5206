#include "heed/apps/hub/exchange.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/apps/hub/architecture.h"
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

namespace heed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// What a published folder holds.
struct PublishedModel {
  std::string config;                 ///< the text of config.json
  std::string tokenizer;              ///< the text of tokenizer.json, that of the sources if there are two
  std::string target_tokenizer = {};  ///< empty: the same
  std::map<std::string, Tensor> tensors = {};  ///< by published name; 16-bit floats were converted to f32
  UnreadTensors unread = {};
  std::vector<std::string> remarks = {};
};

constexpr std::int64_t most_text_of_published =
    std::int64_t{1} << 28;  // bytes of a text file: a tokenizer takes tens of millions

void read_shards(const fs::path& folder, const fs::path& index, PublishedModel& model) {
  const Json json = parse_json<Json>(read_file(index, most_text_of_published), index.string());
  const Json map = json.is_object() ? json.value("weight_map", Json()) : Json();
  check(map.is_object() && !map.empty(), index,
        " has no \"weight_map\" that says which file holds which weight");
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [name, file] : map.items()) {
    check(file.is_string(), index, ": the file of \"", name, "\" is not a string");
    const auto text = file.get<std::string>();
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

std::string sentencepiece_json(const fs::path& file, const std::vector<std::string>& tokens,
                               PublishedModel& model) {
  const std::string origin = file.string();
  SentencePieceTokenizer made =
      sentencepiece_tokenizer(read_sentencepiece(read_file(file, most_text_of_published), origin), tokens);
  if (!made.without_id.empty())
    model.remarks.push_back(
        concat_text("left out: ", made.without_id.size(), " pieces of ", file.filename().string(),
                    " without an id in vocab.json, the first \"", made.without_id.front(), '"'));
  return std::move(made.json);
}

/// A SentencePiece model for each language, and one list of ids for both.
void read_sentencepieces(const fs::path& folder, PublishedModel& model) {
  const fs::path vocabulary = folder / "vocab.json";
  const auto json = parse_json<Json>(read_file(vocabulary, most_text_of_published), vocabulary.string());
  const std::vector<std::string> tokens = json_parts::tokens_by_id(json, vocabulary.string());
  model.tokenizer = sentencepiece_json(folder / "source.spm", tokens, model);
  model.target_tokenizer = sentencepiece_json(folder / "target.spm", tokens, model);
}

void read_tokenizers(const fs::path& folder, PublishedModel& model) {
  if (path_exists(folder / "tokenizer.json")) {
    model.tokenizer = read_file(folder / "tokenizer.json", most_text_of_published);
    if (path_exists(folder / "target_tokenizer.json"))
      model.target_tokenizer = read_file(folder / "target_tokenizer.json", most_text_of_published);
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

PublishedModel read_published(const fs::path& folder) {
  std::error_code unreadable;
  check(fs::is_directory(folder, unreadable), folder,
        " is not a folder with config.json, model.safetensors and tokenizer.json");
  check(path_exists(folder / "config.json"), "there is no model in ", folder, ": it has no config.json");
  PublishedModel model;
  model.config = read_file(folder / "config.json", most_text_of_published);
  read_published_weights(folder, model);
  read_tokenizers(folder, model);
  return model;
}

/// sentence-transformers keeps beside the model how token vectors are pooled. heed takes their mean.
void check_pooling(const fs::path& folder, const fs::path& file) {
  if (!path_exists(file)) return;
  const Json json = parse_json<Json>(read_file(file, 1 << 20), file.string());
  check(json.is_object(), file, " is not a JSON object");
  bool by_mean = false, otherwise = false;
  for (const auto& [name, value] : json.items()) {
    if (!name.starts_with("pooling_mode_")) continue;
    check(value.is_boolean(), file, ": \"", name, "\" must be true or false, is ", value.dump());
    (name == "pooling_mode_mean_tokens" ? by_mean : otherwise) |= value.get<bool>();
  }
  check(by_mean && !otherwise, folder,
        " does not pool its tokens by their mean, the only pooling that heed supports: ", json.dump());
}

/// modules.json lists the stages of a text. heed supports a model, pooling, and normalisation to length 1.
void check_sentence_transformer(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  if (!path_exists(file)) return check_pooling(folder, folder / "1_Pooling/config.json");
  const Json modules = parse_json<Json>(read_file(file, 1 << 20), file.string());
  check(modules.is_array(), file, " is not a list of modules");
  const auto text = [&](const Json& module, const char* name) {
    check(module.is_object() && module.contains(name) && module[name].is_string(), file,
          ": a module has no \"", name, "\" that is a string: ", module.dump());
    return module[name].get<std::string>();
  };
  for (const Json& module : modules) {
    const std::string type = text(module, "type"), kind = type.substr(type.rfind('.') + 1);
    check(kind == "Transformer" || kind == "Pooling" || kind == "Normalize", folder,
          " sends its vectors through ", type, ", which heed does not support");
    if (kind == "Pooling") check_pooling(folder, folder / text(module, "path") / "config.json");
  }
}

/// A tokenizer.json may truncate and pad texts. In heed data.max_tokens truncates and batches pad.
std::string without_lengths(const std::string& text, ExchangeReport& report) {
  auto json = parse_json<nlohmann::json>(text, "tokenizer.json");
  check(json.is_object(), "tokenizer.json is not a JSON object");
  bool changed = false;
  for (const char* const part : {"truncation", "padding"}) {
    if (json.value(part, nlohmann::json()).is_null()) continue;
    report.remarks.push_back(concat_text("left out of tokenizer.json: ", part, ' ', json[part].dump()));
    json[part] = nullptr;
    changed = true;
  }
  return changed ? json.dump() : text;
}

/// Texts end in </s>, and a masked model fills in <mask>: without these tokens a run could not answer.
void check_marks(const Tokenizer& tokenizer, const std::string& file, bool is_masked) {
  try {
    tokenizer.id_of("</s>");
    if (is_masked) tokenizer.id_of("<mask>");
  } catch (Error& error) {
    error.add_context(file + ": ");
    throw;
  }
}

/// A published vocabulary is often rounded up. Rows without a token are dropped from all weights that have a
/// row for each token.
void fit_vocabulary(std::map<std::string, Tensor>& weights, std::int64_t tokens, ExchangeReport& report) {
  const std::int64_t rows = weights.at("embedding.weight").size(0);
  check(rows >= tokens, "tokenizer.json has ", tokens, " tokens, but the embedding ", rows,
        " rows: they do not belong together");
  if (rows == tokens) return;
  const NoGrad no_grad;
  for (const char* const name : {"embedding.weight", "output.weight", "output.bias", "output_bias"})
    if (const auto found = weights.find(name); found != weights.end() && found->second.size(0) == rows)
      found->second = contiguous(slice(found->second, 0, 0, tokens));
  report.remarks.push_back(
      concat_text("left out: ", rows - tokens, " rows of the embedding without a token"));
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

RunContent run_content(Run& run, std::map<std::string, Tensor> weights, const Tokenizer& tokenizer) {
  const auto id = [&](std::string_view mark) {
    try {
      return static_cast<std::int64_t>(tokenizer.id_of(mark));
    } catch (const Error&) {
      return std::int64_t{-1};
    }
  };
  const Json tokens = Json::parse(run.settings().json("tokenizer"));
  const std::string begin = tokens.value("begin", "");
  return {std::string(run.task()),
          run.settings().json(),
          std::move(weights),
          tokenizer.vocabulary_size(),
          id(begin.empty() ? "<s>" : begin),
          tokenizer.id_of("</s>"),
          id("<pad>")};
}

const Architecture& layout_for_run(const RunContent& run) {
  for (const Architecture* one : architectures())
    if (one->exports(run)) return *one;
  fail("there is no published layout for a ", run.task,
       " run; there are those for language_model (GPT-2, BERT), embed_text "
       "(BERT) and translate, summarize and converse (Marian)");
}

std::map<std::string, Tensor> tensors_on_host(const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, tensor] : tensors)
    if (tensor.dtype() == DType::f32) out[name] = Tensor::from(tensor.to_vector<float>(), tensor.shape());
  return out;
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
                                   {"bos_token", "<s>"}}) {
    try {
      config[role] = tokenizer.token(tokenizer.id_of(mark));
    } catch (const Error&) {  // it has no such mark
    }
  }
  return config.dump(2) + "\n";
}

}  // namespace

ExchangeReport import_run(const fs::path& folder, const fs::path& out) {
  RunFolder::check_new(out);
  PublishedModel model = read_published(folder);
  const Architecture& architecture = architecture_of(model.config, model.tensors);
  const std::string what = folder.string();
  ImportPlan plan = architecture.import_plan(model.config, model.tensors);
  if (plan.task == "embed_text") check_sentence_transformer(folder);
  ExchangeReport report{std::string(architecture.name), plan.task, 0, std::move(model.remarks)};
  for (std::string& remark : plan.remarks) report.remarks.push_back(std::move(remark));
  model.tokenizer = without_lengths(model.tokenizer, report);

  const TaskKind& kind = task_kind(plan.task);
  Settings settings = kind.settings(true);
  settings.merge(plan.settings, "config.json");
  const Tokenizer tokenizer = Tokenizer::from_json(model.tokenizer, "tokenizer.json");
  check_marks(tokenizer, "tokenizer.json", Json::parse(plan.settings).value("objective", "") == "masked");
  check(plan.end < 0 || plan.end == tokenizer.id_of("</s>"), "config.json: token ", plan.end,
        " ends what is written, but in tokenizer.json that is token ", tokenizer.id_of("</s>"));
  if (plan.begin >= 0) {
    check(plan.begin < tokenizer.vocabulary_size(), "config.json: token ", plan.begin,
          " begins what is written, but tokenizer.json has ", tokenizer.vocabulary_size(), " tokens");
    settings.set("tokenizer.begin", tokenizer.token(static_cast<std::int32_t>(plan.begin)), "config.json");
  }
  NamedFiles files = {{"tokenizer.json", tokenizer.to_json()}};
  if (!model.target_tokenizer.empty()) {
    const Tokenizer target = Tokenizer::from_json(model.target_tokenizer, "target_tokenizer.json");
    check_marks(target, "target_tokenizer.json", false);
    files["target_tokenizer.json"] = target.to_json();
    settings.set("tokenizer.separate", "true", "target_tokenizer.json");
  }
  std::unique_ptr<Learner> learner = kind.make(std::move(settings));
  learner->check_settings();
  learner->open_files([&](std::string_view name) {
    const auto found = files.find(std::string(name));
    check(found != files.end(), "a published model has no ", name);
    return found->second;
  });
  std::map<std::string, Tensor> weights = our_weights(model.tensors, model.unread, plan, what);
  learner->build({});
  fit_vocabulary(weights, tokenizer.vocabulary_size(), report);
  load_model_state(learner->model(), weights, what);
  report.parameters = learner->model().parameter_count();

  fill_new_folder(out, [&](const fs::path& staged) {
    RunFolder run = RunFolder::create(
        staged, {std::string(kind.name), learner->settings().json("", 2) + "\n", learner->files(), {}, {}});
    save_imported_weights(run, learner->model());
  });
  return report;
}

ExchangeReport export_run(const fs::path& path, const fs::path& out, StoredFloat stored) {
  Run run = Run::open(path, {.device = "cpu", .settings = {"int8_weights=false"}});
  const Tokenizers tokenizers = tokenizers_of_exported(run);
  RunContent content = run_content(
      run, merged_low_rank(tensors_on_host(model_state(run.learner().model())), model_config(run.settings())),
      tokenizers.target);
  const Architecture& architecture = layout_for_run(content);
  // A causal model adds no special tokens, a masked one only if tokenizer.begin is set.
  const std::string begin = content.task == "embed_text" || content.task == "language_model"
                                ? run.settings().get<std::string>("tokenizer.begin")
                                : "";
  const bool has_end = content.task != "language_model" || !begin.empty();
  ExportPlan plan = architecture.export_plan(std::move(content));
  const std::map<std::string, Tensor> weights = published_weights(plan.weights, plan.names, path.string());
  fill_new_folder(out, [&](const fs::path& folder) {
    write_file_atomically(folder / "tokenizer_config.json", tokenizer_config(tokenizers.source));
    write_file_atomically(folder / "tokenizer.json", with_marks(tokenizers.source, begin, has_end));
    if (tokenizers.are_two)
      write_file_atomically(folder / "target_tokenizer.json", with_marks(tokenizers.target, "", has_end));
    save_safetensors(folder / "model.safetensors", {weights, {{"format", "pt"}}}, stored);
    write_file_atomically(folder / "config.json", plan.config);
  });
  return {
      std::string(architecture.name), std::string(run.task()), run.learner().model().parameter_count(), {}};
}

std::map<std::string, Tensor> published_tensors(Run& run, const std::map<std::string, Tensor>& ours) {
  RunContent content = run_content(run, tensors_on_host(ours), tokenizers_of_exported(run).target);
  const Architecture& architecture = layout_for_run(content);
  const ExportPlan plan = architecture.export_plan(std::move(content));
  return published_weights(plan.weights, plan.names, "the run");
}

}  // namespace heed
