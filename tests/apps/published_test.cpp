// Published models without any other program: what is exported is imported again, and what is damaged is
// refused by name.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "heed/apps/hub/architecture.h"
#include "heed/apps/hub/exchange.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/train.h"
#include "heed/autograd/ops.h"
#include "heed/tests/fuzz/fuzz_support.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/made_part.h"
#include "heed/tests/support.h"
#include "heed/tests/temporary_folder.h"
#include "heed/text/safetensors.h"

namespace {

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

fs::path trained(const std::string& task, const fs::path& out, const std::vector<std::string>& more) {
  const TaskEntry& entry = task_entry(task);
  train_run(entry, small_settings_of(entry, more), {out});
  return out;
}

const std::vector<std::string> like_bert = {"model.norm=post", "model.positions=learned",
                                            "model.embedding_norm=true", "model.token_types=2",
                                            "model.scale_embeddings=false"};
const std::vector<std::string> with_head =
    joined(like_bert, {"objective=masked", "training.keep_best_by=loss", "model.output_transform=true"});
const std::vector<std::string> like_llama = {"model.positions=rotary", "model.norm_kind=rms",
                                             "model.activation=swiglu", "model.scale_embeddings=false"};
const std::vector<std::string> like_marian = {"model.positions=sinusoidal_halves", "model.output_bias=true"};

/// A run and what it is published as.
struct Published {
  fs::path run, model;
};

/// Runs of one kind of model each, made once: gpt2, bert (with its head), encoder, classes and marian.
const Published& published(const std::string& kind) {
  static const TemporaryFolder folder;
  static std::map<std::string, Published> made;
  if (const auto found = made.find(kind); found != made.end()) return found->second;
  const std::map<std::string, std::pair<const char*, std::vector<std::string>>> kinds = {
      {"gpt2", {"language_model", {}}},
      {"bert", {"language_model", with_head}},
      {"encoder", {"embed_text", like_bert}},
      {"classes",
       {"classify", joined(like_bert, {"model.pooling=first", "model.pooler=tanh", "model.sparse_features=0",
                                       "model.local_width=0", "tokenizer.begin=<s>",
                                       "data.file=" + small_texts().string(), "data.format=lines"})}},
      {"marian", {"translate", like_marian}}};
  const auto& [task, settings] = kinds.at(kind);
  const fs::path run = trained(task, folder / (kind + "-run"), settings), model = folder / kind;
  export_run(run, model);
  return made.emplace(kind, Published{run, model}).first->second;
}

std::string import_error(const fs::path& folder, const fs::path& out) {
  return error_of([&] { import_run(folder, out); });
}

// --- changes of a published model

using Change = std::function<void(const fs::path& model)>;

void change_json(const fs::path& file, const std::function<void(OrderedJson&)>& change) {
  OrderedJson json = OrderedJson::parse(content_of(file));
  change(json);
  write_content(file, json.dump());
}

void change_weights(const fs::path& folder,
                    const std::function<void(std::map<std::string, Tensor>&)>& change) {
  TensorFile file = load_safetensors(folder / "model.safetensors");
  change(file.tensors);
  save_safetensors(folder / "model.safetensors", file);
}

Change without(const std::string& name) {
  return [=](const fs::path& model) { fs::remove(model / name); };
}

Change with_content(const std::string& name, const std::string& content) {
  return [=](const fs::path& model) { write_content(model / name, content); };
}

Change with_key(const std::string& key, const OrderedJson& value) {
  return [=](const fs::path& model) {
    change_json(model / "config.json", [&](OrderedJson& json) { json[key] = value; });
  };
}

/// `weight`: undefined to leave it out.
Change with_weight(const std::string& name, const Tensor& weight) {
  return [=](const fs::path& model) {
    change_weights(model, [&](auto& weights) {
      weights.erase(name);
      if (weight.defined()) weights[name] = weight;
    });
  };
}

/// What importing a changed GPT-2 is answered with. Nothing may be left of the run.
std::string refused_after(const Change& change) {
  const TemporaryFolder folder;
  copy_run(published("gpt2").model, folder / "model");
  change(folder / "model");
  const std::string said = import_error(folder / "model", folder / "run");
  CHECK_FALSE(fs::exists(folder / "run"));
  return said;
}

void check_refused_after(const std::vector<std::pair<Change, std::string>>& rows) {
  for (const auto& row : rows) {
    const std::string said = refused_after(row.first);
    CHECK_MESSAGE(contains(said, row.second), said, ", not ", row.second);
  }
}

std::string answers_of(const fs::path& path, const std::vector<std::string>& lines,
                       const std::vector<std::string>& more = {}) {
  std::string text;
  Run run = Run::open(path, {.settings = more});
  for (const Prediction& answer : run.predict(lines, {.return_errors = true}))
    text += answer.text + "\n" + answer.error;
  return text;
}

}  // namespace

TEST_CASE("published: a run comes back from its layout with the same weights and answers") {
  const TemporaryFolder folder;
  struct Case {
    std::string task;
    std::vector<std::string> settings, lines, more = {};
  };
  const std::vector<Case> cases = {
      {"language_model",
       {"model.scale_embeddings=false", "model.attention_bias=true"},
       {"the cat"},
       {"generation.tokens=20"}},
      {"language_model",  // it computes with weights in 8 bits, and is exported with those it was trained to
       {"model.scale_embeddings=false", "model.attention_bias=true", "int8_weights=true"},
       {"the cat"},
       {"generation.tokens=20"}},
      {"language_model",
       joined(like_llama, {"model.decoder_attention={\"name\":\"dot_product\",\"kv_heads\":1}",
                           "model.rotary_base=500", "model.rotary_factor=4", "model.rotary_length=16"}),
       {"the cat"},
       {"generation.tokens=20"}},
      {"language_model",  // Qwen2
       joined(like_llama,
              {"model.decoder_attention={\"name\":\"dot_product\",\"output_bias\":false}",
               "model.attention_bias=true", "model.feed_forward_bias=false", "model.tie_embeddings=none"}),
       {"the cat"},
       {"generation.tokens=20"}},
      {"language_model",  // Qwen3
       joined(like_llama,
              {"model.decoder_attention={\"name\":\"dot_product\",\"qk_norm\":true}", "model.head_width=6",
               "model.feed_forward_bias=false", "tokenizer.begin=<|endoftext|>"}),
       {"the cat", ""},
       {"generation.tokens=20"}},
      {"language_model", with_head, {"the [MASK]"}},
      {"embed_text", like_bert, {"forty-two", "", "one"}},
      {"translate", joined(like_marian, {"model.max_length=64"}), {"forty-two"}, {"decoding.length_extra=2"}},
  };
  for (const Case& one : cases) {
    CAPTURE(one.task);
    const fs::path run = trained(one.task, folder / "run", one.settings);
    const ExchangeReport out = export_run(run, folder / "model");
    CHECK(out.task == one.task);
    const ExchangeReport in = import_run(folder / "model", folder / "again");
    CHECK(in.architecture == out.architecture);
    Run first = Run::open(run, {.settings = {"int8_weights=false"}}), second = Run::open(folder / "again");
    CHECK(first.task_name() == second.task_name());
    for (const NamedTensor& tensor : second.task().model().parameters()) {
      CAPTURE(tensor.name);
      const auto all = first.task().model().parameters();
      const auto found = std::ranges::find(all, tensor.name, &NamedTensor::name);
      if (found == all.end()) {  // a bias that the run lacks is 0
        for (const float value : tensor.tensor->to_vector<float>()) CHECK(value == 0);
        continue;
      }
      CHECK(found->tensor->to_vector<float>() == tensor.tensor->to_vector<float>());
    }
    if (one.settings != with_head)  // whose tokenizer puts no marks, and BERT's are taken
      CHECK(answers_of(run, one.lines, joined(one.more, {"int8_weights=false"})) ==
            answers_of(folder / "again", one.lines, one.more));
    for (const char* name : {"run", "model", "again"}) fs::remove_all(folder / name);
  }
}

TEST_CASE("published: the marks of a masked model may stand behind its words") {
  const TemporaryFolder folder;
  const fs::path model = folder / "model";
  copy_run(published("bert").model, model);
  import_run(model, folder / "first");
  OrderedJson json = OrderedJson::parse(content_of(model / "tokenizer.json"));
  std::int32_t mask = -1, last = -1;
  for (const auto& [token, id] : json["model"]["vocab"].items()) {
    last = std::max(last, id.get<std::int32_t>());
    if (token == "<mask>") mask = id;
  }
  const auto moved = [&](const OrderedJson& id) {
    const auto old = id.get<std::int32_t>();
    return old == mask ? last : old > mask ? old - 1 : old;
  };
  for (auto& id : json["model"]["vocab"]) id = moved(id);
  for (auto& token : json["added_tokens"]) token["id"] = moved(token["id"]);
  write_content(model / "tokenizer.json", json.dump());
  std::vector<std::int32_t> order;  // of the old rows
  for (std::int32_t id = 0; id <= last; ++id)
    if (id != mask) order.push_back(id);
  order.push_back(mask);
  change_weights(model, [&](std::map<std::string, Tensor>& weights) {
    for (const char* name : {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"})
      weights[name] = index_select(weights.at(name), 0, Tensor::from(order, {last + 1}));
  });
  import_run(model, folder / "second");
  const std::vector<std::string> lines = {"the [MASK]", "[MASK]he cat"};
  const std::string answers = answers_of(folder / "second", lines);
  CHECK(answers == answers_of(folder / "first", lines));
  CHECK(contains(answers, "he cat"));
}

TEST_CASE("published: the tokenizer of what is exported puts the marks around a text that the run reads") {
  const TemporaryFolder folder;
  const auto single_of = [&](const std::string& task, const std::vector<std::string>& settings) {
    export_run(trained(task, folder / "run", settings), folder / "model");
    const OrderedJson part =
        OrderedJson::parse(content_of(folder / "model/tokenizer.json")).at("post_processor");
    for (const char* name : {"run", "model"}) fs::remove_all(folder / name);
    std::string marks;
    for (const OrderedJson& one : part.is_null() ? OrderedJson::array() : part.at("single"))
      marks += one.items().begin().value().at("id").get<std::string>() + " ";
    return marks;
  };
  CHECK(single_of("translate", {"model.norm=post", "model.tie_embeddings=all"}) == "A </s> ");
  CHECK(single_of("embed_text", like_bert) == "A </s> ");
  CHECK(single_of("embed_text", joined(like_bert, {"tokenizer.begin=<s>"})) == "<s> A </s> ");
  OrderedJson tokenizer = OrderedJson::parse(content_of(published("encoder").model / "tokenizer.json"));
  tokenizer["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", true}};
  const fs::path file = write_content(folder / "gpt2.json", tokenizer.dump());
  CHECK(single_of("embed_text", joined(like_bert, {"tokenizer.file=\"" + file.string() + "\""})) ==
        "A </s> ");
  CHECK(single_of("language_model", {}).empty());
}

TEST_CASE("published: weights in 16 bits are read, and written as near as they can be") {
  const TemporaryFolder folder;
  const auto& [run, model] = published("gpt2");
  export_run(run, folder / "half", StoredFloat::f16);
  CHECK(fs::file_size(folder / "half/model.safetensors") <
        fs::file_size(model / "model.safetensors") * 6 / 10);
  const auto whole = load_safetensors(model / "model.safetensors").tensors,
             half = load_safetensors(folder / "half/model.safetensors").tensors;
  REQUIRE(whole.size() == half.size());
  for (const auto& entry : whole) {
    const auto& [name, tensor] = entry;
    CAPTURE(entry.first);
    const std::vector<float> a = tensor.to_vector<float>(), b = half.at(name).to_vector<float>();
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(b[i] == doctest::Approx(a[i]).epsilon(0.0006));
  }
  import_run(folder / "half", folder / "run");
  CHECK(Run::open(folder / "run").task_name() == "language_model");
}

TEST_CASE("published: Marian's models of SentencePiece become a tokenizer for each language") {
  const TemporaryFolder folder;
  trained("translate", folder / "run", {"model.output_bias=true"});
  export_run(folder / "run", folder / "marian");
  const OrderedJson config = OrderedJson::parse(content_of(folder / "marian/config.json"));
  OrderedJson vocabulary = OrderedJson::object();
  for (const char* const token : {"</s>", "<unk>", "\u2581the", "tree", "t", "\u2581"})
    vocabulary[token] = vocabulary.size();
  while (vocabulary.size() < config.at("vocab_size").get<std::size_t>())
    vocabulary[concat_text("word", vocabulary.size())] = vocabulary.size();
  with_key("eos_token_id", 0)(folder / "marian");  // as the list has it
  fs::remove(folder / "marian/tokenizer.json");
  write_content(folder / "marian/vocab.json", vocabulary.dump());
  const std::string model = fuzz::corpus("sentencepiece/two_words").at(0).second;
  write_content(folder / "marian/source.spm", model);
  CHECK(contains(import_error(folder / "marian", folder / "imported"), "nor source.spm, target.spm"));
  write_content(folder / "marian/target.spm", model);
  const ExchangeReport report = import_run(folder / "marian", folder / "imported");
  REQUIRE(report.remarks.size() == 2);
  CHECK(contains(report.remarks[0],
                 "2 pieces of source.spm without an id in vocab.json, the first \"\u2581old\""));
  const std::string answers = answers_of(folder / "imported", {"the tree"});
  export_run(folder / "imported", folder / "again");
  import_run(folder / "again", folder / "twice");
  CHECK(answers_of(folder / "twice", {"the tree"}) == answers);

  write_content(folder / "marian/vocab.json", "{\"</s>\": 0, \"<unk>\": 2}");
  CHECK(contains(import_error(folder / "marian", folder / "refused"), "must use the ids 0 to 1"));
  write_content(folder / "marian/vocab.json", vocabulary.dump());
  write_content(folder / "marian/source.spm", "no model");
  CHECK(contains(import_error(folder / "marian", folder / "refused"),
                 "source.spm is not a SentencePiece model"));
}

TEST_CASE("published: what is damaged, missing or unknown is refused by name, and leaves no run") {
  const std::string unknown = refused_after(with_key("model_type", "mamba"));
  CHECK(contains(unknown,
                 "\"mamba\", which heed does not know; it knows llama, mistral, phi3, qwen2, qwen3, "));
  CHECK(contains(unknown, "transformer.h.0.attn.c_attn.bias"));
  check_refused_after(
      {{without("config.json"), "no config.json"},
       {with_content("config.json", "{"), "not valid JSON"},
       {with_key("n_head", 5), "got width 16 and 5 heads"},
       {with_key("n_positions", 1 << 24),
        "\"n_positions\" is 16777216, but the weight transformer.wpe.weight has "},
       {with_key("vocab_size", 50257), "\"vocab_size\" is 50257, but the weight transformer.wte.weight has "},
       {with_key("n_layer", "two"), "\"n_layer\" of a gpt2 model must be an integer, is \"two\""},
       {with_key("activation_function", "mish"), "\"mish\", an activation that heed does not have"},
       {with_key("architectures", {"GPT2ForSequenceClassification"}),
        "the model is a GPT2ForSequenceClassification, whose head heed does not support; it supports "
        "GPT2LMHeadModel, GPT2Model"},
       {with_key("scale_attn_by_inverse_layer_idx", true), "scale_attn_by_inverse_layer_idx"},
       {without("tokenizer.json"),
        "has no tokenizer.json, nor source.spm, target.spm and vocab.json. Make one with python3"},
       {with_content("tokenizer.json", content_of(published("gpt2").model / "config.json")),
        "tokenizer.json"}});
}

TEST_CASE("published: a tokenizer without the marks that every answer needs is refused when it is imported") {
  const auto renamed = [](const fs::path& model, const std::string& mark) {
    change_json(model / "tokenizer.json", [&](OrderedJson& json) {
      OrderedJson& vocabulary = json["model"]["vocab"];
      vocabulary["other"] = vocabulary[mark];
      vocabulary.erase(mark);
      for (OrderedJson& token : json["added_tokens"])
        if (token["content"] == mark) token["content"] = "other";
    });
  };
  const TemporaryFolder folder;
  copy_run(published("encoder").model, folder / "encoder");
  renamed(folder / "encoder", "</s>");
  CHECK(contains(import_error(folder / "encoder", folder / "again"),
                 "tokenizer.json: the tokenizer has no token \"</s>\""));
  copy_run(published("bert").model, folder / "model");
  renamed(folder / "model", "<mask>");
  CHECK(contains(import_error(folder / "model", folder / "again"),
                 "tokenizer.json: the tokenizer has no token \"<mask>\""));
  CHECK_FALSE(fs::exists(folder / "again"));
}

TEST_CASE("published: a member of config.json with one supported value is refused by name with another") {
  for (const hub::Architecture& one : hub::architectures())
    for (const hub::MemberTable* const table : {one.members, &hub::common_members()})
      for (const auto& member : table->only.items()) {
        const std::string name = member.key();
        const OrderedJson value = member.value();
        CAPTURE(name);
        const auto refusal = [&](const OrderedJson& said) {
          OrderedJson json = {{"model_type", std::string(one.model_type)}};
          json[name] = said;
          return error_of([&] { hub::Config(json.dump()).expect(*table); });
        };
        CHECK(refusal(value).empty());
        CHECK(refusal(OrderedJson::array({value, value})).empty());
        const OrderedJson other = value.is_boolean() ? OrderedJson(!value.get<bool>()) : OrderedJson("other");
        CHECK(contains(refusal(other), concat_text('"', name, "\" is ", other.dump())));
        CHECK(contains(refusal(OrderedJson::array({value, other})), concat_text('"', name, '"')));
      }
}

TEST_CASE("published: the table in docs has the members of config.json with one supported value") {
  std::string page = "| `model_type` | supported values in `config.json` |\n|---|---|\n";
  const auto add_row = [&](const std::string& names, const hub::MemberTable& table) {
    std::string values;
    for (const auto& [name, value] : table.only.items())
      values +=
          concat_text(values.empty() ? "" : ", ", value.empty() ? concat_text("no `", name, '`')
                                                                : concat_text('`', name, "` ", value.dump()));
    page += concat_text("| ", names, " | ", values, " |\n");
  };
  add_row("all", hub::common_members());
  const auto all = hub::architectures();
  std::string names;
  for (std::size_t i = 0; i < all.size(); ++i) {  // those of one table follow each other
    names += concat_text(names.empty() ? "" : ", ", '`', all[i].model_type, '`');
    if (i + 1 < all.size() && all[i + 1].members == all[i].members) continue;
    add_row(std::exchange(names, ""), *all[i].members);
  }
  check_made_part("docs/guides/published.md", "members", page);
}

TEST_CASE("published: settings of training keep no model from being opened, and defaults agree") {
  const TemporaryFolder folder;
  struct Row {
    std::string kind, table, member;
  };
  for (const Row& row : {Row{"gpt2", "transformer.wpe.weight", "n_positions"},
                         {"bert", "bert.embeddings.position_embeddings.weight", "max_position_embeddings"},
                         {"encoder", "embeddings.position_embeddings.weight", "max_position_embeddings"}})
    for (const std::int64_t length : {512, 8192}) {
      CAPTURE(row.kind);
      CAPTURE(length);
      const fs::path model = folder / concat_text(row.kind, length);
      copy_run(published(row.kind).model, model);
      with_weight(row.table, Tensor::zeros({length, 16}))(model);
      with_key(row.member, length)(model);
      CHECK(error_of([&] { Run::open(model); }) == "");
      for (const TaskEntry* const task : task_table()) {
        if (task->stacks == Stacks::encoder_decoder) continue;  // of which no encoder is a part
        CAPTURE(task->name);
        OrderedJson json = {{"training.from", model.string()}};
        if (task->name == "language_model" && row.kind == "bert")
          json.update({{"objective", "masked"}, {"training.keep_best_by", "loss"}});
        const Settings settings = training_settings(
            *task, {.own_data = true, .settings = given_settings(*task, json.dump(), "test")});
        CHECK(error_of([&] { task->make(settings)->check_settings(); }) == "");
        if (task->name != "language_model") continue;
        const auto window = settings.get<std::int64_t>("model.max_length");
        CHECK((window == length || row.kind == "encoder"));
        CHECK(settings.get<std::int64_t>("training.batch_tokens") == std::max<std::int64_t>(window, 2048));
      }
    }
  Settings settings = task_entry("language_model").settings(true);
  settings.assign("training.batch_tokens=100");
  const std::unique_ptr<Task> task = task_entry("language_model").make(settings);
  CHECK(contains(error_of([&] { task->check_settings(); }), "training.batch_tokens is 100"));
}

TEST_CASE("published: a weight that is said to be tied is compared before it is left out") {
  const TemporaryFolder folder;
  const fs::path model = folder / "model", out = folder / "out";
  const auto import_with = [&](const std::string& name, const Tensor& weight) {
    fs::remove_all(out);
    const TensorFile before = load_safetensors(model / "model.safetensors");
    with_weight(name, weight)(model);
    const std::string said = import_error(model, out);
    save_safetensors(model / "model.safetensors", before);
    return said;
  };
  const auto weight_of = [&](const fs::path& file, const std::string& name) {
    return load_safetensors(file).tensors.at(name);
  };
  const auto tie_of = [&] { return Run::open(out).settings().get<std::string>("model.tie_embeddings"); };
  const auto imported_map = [&] {
    return weight_of(out / "model.safetensors", "output.weight").to_vector<float>();
  };

  copy_run(published("gpt2").model, model);
  with_key("tie_word_embeddings", true)(model);
  with_weight("lm_head.weight", {})(model);
  Tensor embedding = weight_of(model / "model.safetensors", "transformer.wte.weight");
  CHECK(import_with("lm_head.weight", embedding).empty());
  CHECK(tie_of() == "decoder");
  CHECK(import_with("lm_head.weight", embedding * 2).empty());
  CHECK(tie_of() == "none");
  CHECK(imported_map() == (embedding * 2).to_vector<float>());
  with_weight("lm_head.weight", embedding * 2)(model);
  const ExchangeReport report = import_run(model, folder / "again");
  REQUIRE_FALSE(report.remarks.empty());
  CHECK(contains(report.remarks.back(), "lm_head.weight is kept: it differs from the embedding"));
  fs::remove_all(model);

  copy_run(published("bert").model, model);
  embedding = weight_of(model / "model.safetensors", "bert.embeddings.word_embeddings.weight");
  const Tensor bias = weight_of(model / "model.safetensors", "cls.predictions.bias");
  CHECK(import_with("cls.predictions.decoder.weight", embedding).empty());
  CHECK(tie_of() == "decoder");
  CHECK(import_with("cls.predictions.decoder.weight", embedding + 1).empty());
  CHECK(tie_of() == "none");
  CHECK(imported_map() == (embedding + 1).to_vector<float>());
  export_run(out, folder / "untied");  // and comes back
  CHECK(
      load_safetensors(folder / "untied/model.safetensors").tensors.contains("cls.predictions.decoder.bias"));
  CHECK(import_error(folder / "untied", folder / "back").empty());
  CHECK(tensors_of(folder / "back/model.safetensors") == tensors_of(out / "model.safetensors"));
  CHECK(import_with("cls.predictions.decoder.bias", bias).empty());
  CHECK(
      contains(import_with("cls.predictions.decoder.bias", bias + 1),
               "weight cls.predictions.decoder.bias differs from cls.predictions.bias, to which it is tied"));
  fs::remove_all(model);

  copy_run(published("marian").model, model);
  embedding = weight_of(model / "model.safetensors", "model.shared.weight");
  for (const std::string name :
       {"lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}) {
    CHECK(import_with(name, embedding).empty());
    CHECK(contains(import_with(name, embedding + 1),
                   "weight " + name + " differs from model.shared.weight, to which it is tied"));
  }
  Tensor sinusoids = Tensor::zeros({2, 16});
  std::vector<float> values(32, 0);
  for (std::size_t i = 0; i < 8; ++i) {
    const double angle = std::pow(10000.0, -static_cast<double>(i) / 8);
    values[8 + i] = 1;
    values[16 + i] = static_cast<float>(std::sin(angle));
    values[24 + i] = static_cast<float>(std::cos(angle));
  }
  CHECK(import_with("model.encoder.embed_positions.weight", Tensor::from(values, {2, 16})).empty());
  values[20] += 0.1f;
  CHECK(contains(import_with("model.encoder.embed_positions.weight", Tensor::from(values, {2, 16})),
                 "weight model.encoder.embed_positions.weight holds"));
}

TEST_CASE("published: BERT's first names are read, and whatever stands before the names") {
  const TemporaryFolder folder;
  const auto before = [](std::string prefix) {
    return [prefix = std::move(prefix)](const std::string& name) { return prefix + name; };
  };
  const auto first_names = [](std::string name) {
    replace_all(name, "LayerNorm.weight", "LayerNorm.gamma");
    replace_all(name, "LayerNorm.bias", "LayerNorm.beta");
    return name;
  };
  const std::vector<std::function<std::string(std::string)>> changes = {first_names, before("model."),
                                                                        before("0.auto_model.")};
  for (const auto& [kind, weight] :
       std::vector<std::pair<std::string, std::string>>{{"encoder", "embeddings.LayerNorm.weight"},
                                                        {"bert", "cls.predictions.transform.LayerNorm.bias"},
                                                        {"gpt2", "transformer.ln_f.weight"},
                                                        {"marian", "model.shared.weight"}}) {
    import_run(published(kind).model, folder / "plain");
    for (const auto& change : changes) {
      const std::string changed = change(weight);
      CAPTURE(changed);
      copy_run(published(kind).model, folder / "changed");
      change_weights(folder / "changed", [&](auto& weights) {
        std::map<std::string, Tensor> renamed;
        for (const auto& [name, tensor] : weights) renamed[change(name)] = tensor;
        weights = std::move(renamed);
        REQUIRE(weights.contains(changed));
      });
      CHECK(import_error(folder / "changed", folder / "out") == "");
      CHECK(tensors_of(folder / "out/model.safetensors") == tensors_of(folder / "plain/model.safetensors"));
      for (const char* made : {"changed", "out"}) fs::remove_all(folder / made);
    }
    fs::remove_all(folder / "plain");
  }
}

TEST_CASE("published: the type of a tensor matters where it is used") {
  /// Adds a tensor of bytes to the file.
  const auto add = [](const fs::path& folder, const std::string& name, const std::string& type,
                      const std::vector<std::int64_t>& shape, std::size_t bytes) {
    const std::string file = content_of(folder / "model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    OrderedJson header = OrderedJson::parse(file.substr(8, length));
    const std::size_t end = file.size() - 8 - length;
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    const std::string text = header.dump();
    length = text.size();
    write_content(folder / "model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) +
                                                    text + file.substr(file.size() - end) +
                                                    std::string(bytes, '\xff'));
  };
  const TemporaryFolder folder;
  import_run(published("gpt2").model, folder / "plain");
  struct Unused {
    const char *name, *type;
    std::vector<std::int64_t> shape;
    std::size_t bytes;
  };
  const std::vector<Unused> cases = {{"transformer.h.0.attn.bias", "U8", {1, 1, 4, 4}, 16},
                                     {"transformer.h.0.attn.bias", "BOOL", {1, 1, 4, 4}, 16},
                                     {"transformer.h.0.attn.masked_bias", "F8_E4M3", {1}, 1},
                                     {"transformer.h.0.attn.masked_bias", "U64", {1}, 8},
                                     {"transformer.h.0.attn.bias", "F32", {1, 1, 1, 1, 1, 1, 1, 1, 1}, 4}};
  for (const Unused& one : cases) {
    CAPTURE(one.type);
    copy_run(published("gpt2").model, folder / "model");
    add(folder / "model", one.name, one.type, one.shape, one.bytes);
    CHECK(import_error(folder / "model", folder / "out") == "");
    CHECK(tensors_of(folder / "out/model.safetensors") == tensors_of(folder / "plain/model.safetensors"));
    for (const char* made : {"model", "out"}) fs::remove_all(folder / made);
  }
  CHECK(contains(refused_after([&](const fs::path& model) {
                   with_weight("transformer.ln_f.bias", {})(model);
                   add(model, "transformer.ln_f.bias", "U8", {16}, 16);
                 }),
                 "tensor \"transformer.ln_f.bias\" has dtype U8; heed reads F32"));
}

TEST_CASE("published: weights that are cut, missing, unknown or of another shape are refused by name") {
  const auto cut = [](const fs::path& model) {
    fs::resize_file(model / "model.safetensors", fs::file_size(model / "model.safetensors") / 2);
  };
  const auto for_pytorch = [](const fs::path& model) {
    fs::rename(model / "model.safetensors", model / "pytorch_model.bin");
  };
  check_refused_after(
      {{cut, "model.safetensors"},
       {with_weight("transformer.h.0.ln_1.bias", {}), "weights are missing: transformer.h.0.ln_1.bias"},
       {with_weight("adapter.weight", Tensor::zeros({2, 2})),
        "names that heed does not know: adapter.weight"},
       {with_weight("transformer.ln_f.weight", Tensor::zeros({3})), "decoder.norm.weight"},
       {with_weight("transformer.h.0.attn.c_attn.bias", Tensor::zeros({47})), "does not hold 3 equal parts"},
       {with_weight("transformer.ln_f.weight", Tensor::full({16}, std::nan(""))), "decoder.norm.weight"},
       {for_pytorch, "torch.load('pytorch_model.bin'"},
       {without("model.safetensors"), "neither model.safetensors nor model.safetensors.index.json"}});
}

TEST_CASE("published: an activation that config.json leaves out is the one that transformers takes") {
  const TemporaryFolder folder;
  copy_run(published("gpt2").model, folder / "model");
  change_json(folder / "model/config.json", [](OrderedJson& json) { json.erase("activation_function"); });
  import_run(folder / "model", folder / "run");
  CHECK(Run::open(folder / "run").settings().get<std::string>("model.activation") == "gelu_tanh");
}

TEST_CASE("published: a translator that begins or ends its texts otherwise is refused") {
  const TemporaryFolder folder;
  const fs::path model = folder / "model";
  export_run(trained("translate", folder / "run", {"model.norm=post", "model.tie_embeddings=all"}), model);
  with_key("forced_bos_token_id", 5)(model);
  CHECK(contains(import_error(model, folder / "again"), "\"forced_bos_token_id\" is 5"));
  with_key("forced_bos_token_id", nullptr)(model);
  with_key("eos_token_id", 3)(model);
  CHECK(contains(import_error(model, folder / "again"), "token 3 ends outputs"));
  change_json(model / "config.json", [](OrderedJson& json) { json.erase("eos_token_id"); });
  CHECK(import_error(model, folder / "again").empty());
}

TEST_CASE("published: weights in several files are read as one") {
  const auto split = [](const std::string& name = {}, const std::string& file = {}) -> Change {
    return [=](const fs::path& model) {
      TensorFile parts[2];
      OrderedJson map = OrderedJson::object();
      std::size_t i = 0;
      for (const auto& [weight, tensor] : load_safetensors(model / "model.safetensors").tensors) {
        const std::size_t part = i++ % 2;
        parts[part].tensors[weight] = tensor;
        map[weight] = concat_text("model-", part, ".safetensors");
      }
      for (const std::size_t part : {0, 1})
        save_safetensors(model / concat_text("model-", part, ".safetensors"), parts[part]);
      if (!name.empty()) map[name] = file;
      write_content(model / "model.safetensors.index.json", OrderedJson{{"weight_map", map}}.dump());
      fs::remove(model / "model.safetensors");
    };
  };
  const auto split_and = [&](const Change& more) -> Change {
    return [=](const fs::path& model) {
      split()(model);
      more(model);
    };
  };
  const TemporaryFolder folder;
  copy_run(published("gpt2").model, folder / "model");
  split()(folder / "model");
  import_run(folder / "model", folder / "run");
  import_run(published("gpt2").model, folder / "whole");
  CHECK(tensors_of(folder / "run/model.safetensors") == tensors_of(folder / "whole/model.safetensors"));
  const std::string elsewhere = "is not the name of a file in the folder";
  check_refused_after(
      {{split_and(without("model-1.safetensors")), "model-1.safetensors"},
       {split("transformer.wte.weight", "../elsewhere.safetensors"), elsewhere},
       {split("transformer.wte.weight", std::string("model-0.safetensors\0.", 21)), elsewhere},
       {split("nothing.weight", "model-0.safetensors"), "has no \"nothing.weight\""},
       {split_and(with_content("model.safetensors.index.json", "{}")), "weight_map"}});
}

TEST_CASE("published: what a layout does not have is listed, and nothing is overwritten") {
  const TemporaryFolder folder;
  const fs::path run =
      trained("language_model", folder / "run", {"model.norm=post", "model.decoder_attention=fastformer"});
  CHECK_THROWS_WITH_AS(export_run(run, folder / "out"),
                       doctest::Contains("model.norm is \"post\" (it has \"pre\"), model.decoder_attention"),
                       Error);
  CHECK_FALSE(fs::exists(folder / "out"));
  trained("language_model", folder / "modern",
          {"model.norm_kind=rms", "model.activation=swiglu",
           "model.decoder_attention={\"name\":\"dot_product\",\"kv_heads\":1}", "model.positions=alibi"});
  for (const char* misfit : {"model.norm_kind is \"rms\"", "model.activation is \"swiglu\"",
                             "model.positions is \"alibi\"", "kv_heads"})
    CHECK_THROWS_WITH_AS(export_run(folder / "modern", folder / "out"), doctest::Contains(misfit), Error);
  trained("language_model", folder / "rotary",
          {"model.positions=rotary", "model.decoder_attention=differential"});
  for (const char* misfit : {"model.norm_kind is \"layer\"", "model.activation is \"gelu\""})
    CHECK_THROWS_WITH_AS(export_run(folder / "rotary", folder / "out"), doctest::Contains(misfit), Error);
  CHECK_FALSE(fs::exists(folder / "out"));
  trained("classify", folder / "classes", {});
  CHECK_THROWS_WITH_AS(export_run(folder / "classes", folder / "out"), doctest::Contains("model.pooling is"),
                       Error);
  trained("match", folder / "pairs", {});
  CHECK_THROWS_WITH_AS(export_run(folder / "pairs", folder / "out"),
                       doctest::Contains("no published layout for a match run"), Error);
  write_content(folder / "full/file", "mine");
  CHECK_THROWS_WITH_AS(export_run(published("gpt2").run, folder / "full"), doctest::Contains("not empty"),
                       Error);
  CHECK_THROWS_AS(import_run(published("gpt2").model, folder / "full"), Error);
  CHECK(content_of(folder / "full/file") == "mine");
}

TEST_CASE(
    "published: on a full disk nothing is left of what was begun, and the same name can be tried again") {
  const TemporaryFolder folder;
  const auto& published_run = published("gpt2");
  const std::vector<std::function<void()>> works = {
      [&] { import_run(published_run.model, folder / "out"); },
      [&] { export_run(published_run.run, folder / "out"); },
  };
  for (std::size_t i = 0; i < works.size(); ++i) {
    CAPTURE(i);
    {
      const FullDisk full(4000);  // enough for the small files
      CHECK_THROWS_WITH_AS(works[i](), doctest::Contains("cannot write"), Error);
    }
    CHECK_FALSE(fs::exists(folder / "out"));
    CHECK_NOTHROW(works[i]());
    fs::remove_all(folder / "out");
  }
}

TEST_CASE("published: vectors that are pooled in one of the ways that heed has are imported") {
  const TemporaryFolder folder;
  const fs::path model = folder / "model";
  copy_run(published("encoder").model, model);
  const std::string deep = "{\"pooling_mode_mean_tokens\":false,\"deep\":" + std::string(200000, '[') +
                           std::string(200000, ']') + "}";
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"{\"pooling_mode_mean_tokens\":1}", "must be true or false, is 1"},
      {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_max_tokens\":true}",
       "pools its tokens in a way that heed does not support"},
      {"{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}",
       "it supports one of their mean"},
      {"{\"pooling_mode_cls_token\":false}", "pools its tokens in a way"},
      {deep, "nested too deeply"},
      {"[]", "is not a JSON object"},
  };
  for (const auto& [pooling, words] : refused) {
    write_content(model / "1_Pooling/config.json", pooling);
    CHECK(contains(import_error(model, folder / "again"), words));
    CHECK_FALSE(fs::exists(folder / "again"));
  }
  write_content(model / "1_Pooling/config.json",
                "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_max_tokens\":false}");
  CHECK(import_error(model, folder / "again").empty());

  const auto modules = [](const std::string& path, const std::string& last) {
    const std::string of = "{\"type\":\"sentence_transformers.models.";
    return "[" + of + "Transformer\",\"path\":\"\"}," + of + "Pooling\",\"path\":\"" + path + "\"}," + of +
           last + "\",\"path\":\"2\"}]";
  };
  fs::remove_all(folder / "again");
  write_content(model / "modules.json", modules("1_Pooling", "CNN"));
  CHECK(contains(import_error(model, folder / "again"), "through sentence_transformers.models.CNN"));
  write_content(model / "modules.json", modules("1_Pooling", "Dense"));
  write_content(model / "2/config.json", "{\"out_features\":8,\"activation_function\":\"torch.nn.Softmax\"}");
  CHECK(contains(import_error(model, folder / "again"), "\"torch.nn.Softmax\", which heed does not support"));
  write_content(model / "other/config.json", "{\"pooling_mode_mean_sqrt_len_tokens\":true}");
  write_content(model / "modules.json", modules("other", "Normalize"));
  CHECK(contains(import_error(model, folder / "again"), "pools its tokens in a way"));
  write_content(model / "modules.json", "{}");
  CHECK(contains(import_error(model, folder / "again"), "not a list of modules"));
  CHECK_FALSE(fs::exists(folder / "again"));
  write_content(model / "modules.json", modules("1_Pooling", "Normalize"));
  CHECK(import_error(model, folder / "again").empty());
  write_content(model / "other/config.json", "{\"pooling_mode_cls_token\":true}");
  write_content(model / "modules.json", modules("other", "Normalize"));
  CHECK(import_error(model, folder / "first").empty());
  CHECK(Run::open(folder / "first").settings().get<std::string>("model.pooling") == "first");

  trained("embed_text", folder / "attending", joined(like_bert, {"model.pooling=attention"}));
  CHECK_THROWS_WITH_AS(export_run(folder / "attending", folder / "out"),
                       doctest::Contains("model.pooling is \"attention\""), Error);
}

TEST_CASE("published: an imported run starts others, with another attention in a layer, and with low rank") {
  const TemporaryFolder folder;
  trained("embed_text", folder / "run", joined(like_bert, {"model.encoder_layers=2"}));
  export_run(folder / "run", folder / "model");
  import_run(folder / "model", folder / "imported");
  const Arguments from = {"--from",   (folder / "imported").string(),
                          "--ignore", "output,encoder.layers.1.attention",
                          "--data",   small_texts().string(),
                          "--format", "lines",
                          "--steps",  "10",
                          "--set",    "threads=1",
                          "--set",    "training.batch_tokens=256",
                          "--set",    "data.max_tokens=40",
                          "--set",    "data.long_texts=cut",
                          "--set",    "tokenizer.begin=<s>"};
  const fs::path mixed = folder / "mixed";
  const ProgramResult result =
      run_program("classify", joined({"train", "--out", mixed.string(), "--set",
                                      "model.encoder_attention=[\"dot_product\", \"synthesizer_dense\"]"},
                                     from));
  REQUIRE_MESSAGE(result.status == 0, result.errors);
  CHECK(contains(result.errors, "from the embed_text run"));
  const Run opened = Run::open(mixed);
  CHECK(opened.settings().get<std::int64_t>("model.width") == 16);
  CHECK(opened.settings().get<bool>("model.embedding_norm"));

  const fs::path low = folder / "low";
  const ProgramResult tuned =
      run_program("classify", joined({"train", "--out", low.string(), "--set", "model.lora_rank=2", "--set",
                                      "model.lora_maps=query,feed_forward.input"},
                                     from));
  REQUIRE_MESSAGE(tuned.status == 0, tuned.errors);
  const auto before = load_safetensors(folder / "imported/model.safetensors").tensors,
             after = load_safetensors(low / "model.safetensors").tensors;
  const std::string map = "encoder.layers.0.attention.query.";
  for (const char* name : {"embedding.weight", "encoder.layers.0.attention.key.weight", "input.norm.weight"})
    CHECK(before.at(name).to_vector<float>() == after.at(name).to_vector<float>());
  CHECK(before.at(map + "weight").to_vector<float>() == after.at(map + "weight").to_vector<float>());
  CHECK(after.at(map + "lora_a").shape() == Shape{2, 16});
  bool moved = false;
  for (const float value : after.at(map + "lora_b").to_vector<float>()) moved = moved || value != 0;
  CHECK(moved);
  CHECK_FALSE(after.contains("encoder.layers.0.attention.value.lora_a"));
  const auto optimizer = load_safetensors(low / "optimizer.safetensors").tensors;
  for (const auto& [name, tensor] : optimizer) CHECK_FALSE(contains(name, "embedding"));

  const ProgramResult wrong =
      run_program("classify", joined({"train", "--out", (folder / "no").string(), "--set",
                                      "model.lora_rank=2", "--set", "model.lora_maps=qeury"},
                                     from));
  CHECK(wrong.status == 2);
  CHECK(contains(wrong.errors, "no map of the model is called 'qeury'"));
  CHECK(run_program("classify",
                    joined({"train", "--out", (folder / "no").string(), "--set", "model.lora_rank=17"}, from))
            .status == 2);
  CHECK_FALSE(fs::exists(folder / "no"));
}

TEST_CASE("published: folders are opened where they lie, and start trainings that need them no longer") {
  const TemporaryFolder folder;
  const fs::path model = folder / "model";
  copy_run(published("classes").model, model);
  with_key("id2label", {{"0", "good"}, {"1", "bad"}})(model);
  import_run(model, folder / "imported");
  const std::vector<std::string> lines = {"good day", "bad", "", "good bad"};
  CHECK(answers_of(model, lines) == answers_of(folder / "imported", lines));
  CHECK(error_of([&] { Run::open(folder / "nothing"); }).find("there is no run") != std::string::npos);

  const TaskEntry& entry = task_entry("classify");
  const auto started = [&](const fs::path& from, const fs::path& out) {
    const GivenSettings given{.settings = given_settings(entry,
                                                         OrderedJson{{"training.from", from.string()},
                                                                     {"data.file", small_texts().string()},
                                                                     {"data.format", "lines"},
                                                                     {"training.steps", 4},
                                                                     {"training.save_every", 2},
                                                                     {"training.evaluate_every", 0},
                                                                     {"training.ignore", "output"}}
                                                             .dump(),
                                                         "test")};
    train_run(entry, training_settings(entry, given), {out});
    return open_run(out);
  };
  const std::shared_ptr<const RunFiles> first = started(model, folder / "first"),
                                        second = started(folder / "imported", folder / "second");
  for (const auto& [name, tensor] : first->weights("last").tensors)
    CHECK(tensor.to_vector<float>() == second->weights("last").tensors.at(name).to_vector<float>());
  CHECK(first->origin() == started(model, folder / "third")->origin());
  CHECK(first->text("classes.json") == open_run(model)->text("classes.json"));  // good, bad
  CHECK(Run::open(folder / "first", {.weights = "initial"}).task_name() == "classify");
  change_weights(model, [](std::map<std::string, Tensor>& weights) {
    weights.at("classifier.bias") = Tensor::ones(weights.at("classifier.bias").shape());
  });
  CHECK(contains(error_of([&] { Run::open(folder / "first", {.weights = "initial"}); }), "have changed"));
  fs::remove_all(model);
  GivenSettings resumed{.resumed = (folder / "first").string()};
  resumed.settings = given_settings(entry, R"({"training.steps": 6})", "test");
  TrainRequest request{folder / "first"};
  request.resume = true;
  CHECK(train_run(entry, training_settings(entry, resumed), request).finished);
  CHECK(contains(error_of([&] { Run::open(model); }), "there is no run"));
}

TEST_CASE("published: classes keep the order of their ids, and several labels a text are independent") {
  const TemporaryFolder folder;
  const fs::path model = folder / "model";
  copy_run(published("classes").model, model);
  CHECK(OrderedJson::parse(content_of(model / "config.json")).at("problem_type") ==
        "single_label_classification");
  const std::vector<std::string> lines = {"good day", "bad"};
  import_run(model, folder / "plain");
  const auto classes_of_run = [](const fs::path& run) { return Run::open(run).task().known_classes(); };
  using Names = std::vector<std::string>;
  CHECK(classes_of_run(folder / "plain") == Names{"bad", "good"});
  const auto turned = [](Tensor& weight) {
    weight = index_select(weight, 0, Tensor::from(std::vector<std::int32_t>{1, 0}, {2}));
  };
  change_weights(model, [&](std::map<std::string, Tensor>& weights) {
    turned(weights.at("classifier.weight"));
    turned(weights.at("classifier.bias"));
  });
  with_key("id2label", {{"0", "good"}, {"1", "bad"}})(model);
  import_run(model, folder / "turned");
  CHECK(classes_of_run(folder / "turned") == Names{"good", "bad"});
  CHECK(answers_of(folder / "turned", lines) == answers_of(folder / "plain", lines));
  export_run(folder / "turned", folder / "out");
  CHECK(OrderedJson::parse(content_of(folder / "out/config.json")).at("id2label") ==
        OrderedJson{{"0", "good"}, {"1", "bad"}});

  const auto logit_of = [](const Prediction& answer, const std::string& name, bool independent) {
    const auto found = std::ranges::find(answer.alternatives, name, &Prediction::Alternative::text);
    const double p = found->probability;
    return independent ? std::log(p / (1 - p)) : std::log(p);
  };
  with_key("problem_type", "multi_label_classification")(model);
  import_run(model, folder / "sets");
  export_run(folder / "sets", folder / "sets-out");
  CHECK(OrderedJson::parse(content_of(folder / "sets-out/config.json")).at("problem_type") ==
        "multi_label_classification");
  import_run(folder / "sets-out", folder / "again");
  for (const char* const name : {"sets", "again"}) {
    const std::vector<Prediction> one = Run::open(folder / "turned").predict(lines),
                                  many = Run::open(folder / name).predict(lines);
    for (std::size_t i = 0; i < lines.size(); ++i)  // of the same logits
      CHECK(logit_of(many[i], "good", true) - logit_of(many[i], "bad", true) ==
            doctest::Approx(logit_of(one[i], "good", false) - logit_of(one[i], "bad", false)).epsilon(1e-3));
  }
  with_key("problem_type", "regression")(model);
  CHECK(contains(import_error(model, folder / "no"), "problem_type"));
  with_key("problem_type", nullptr)(model);
  with_key("id2label", nullptr)(model);
  import_run(model, folder / "unnamed");
  CHECK(classes_of_run(folder / "unnamed") == Names{"LABEL_0", "LABEL_1"});
  with_key("id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}})(model);
  CHECK(contains(import_error(model, folder / "no"), "names more classes than the 2 outputs"));
  with_key("id2label", {{"0", "same"}, {"1", "same"}})(model);
  CHECK(contains(import_error(model, folder / "no"), "two classes are called \"same\""));
}

TEST_CASE("published: what sentence-transformers keeps beside a model is taken over, and written") {
  const TemporaryFolder folder;
  const fs::path model = folder / "model";
  copy_run(published("encoder").model, model);
  import_run(model, folder / "plain");
  const auto imported = [&](const std::string& name) {
    fs::remove_all(folder / name);
    import_run(model, folder / name);
    return folder / name;
  };
  const std::vector<std::string> lines = {"forty-two one three seven nine eleven thousand"};

  with_content("config_sentence_transformers.json",
               R"({"prompts": {"query": "forty-"}, "default_prompt_name": "query"})")(model);
  CHECK(answers_of(imported("prompt"), {"two"}) == answers_of(folder / "plain", {"forty-two"}));
  CHECK(answers_of(folder / "prompt", {"two"}, {"tokenizer.prompt="}) ==
        answers_of(folder / "plain", {"two"}));
  export_run(folder / "prompt", folder / "prompt-out");
  import_run(folder / "prompt-out", folder / "prompt-again");
  CHECK(answers_of(folder / "prompt-again", {"two"}) == answers_of(folder / "plain", {"forty-two"}));
  with_content("config_sentence_transformers.json", R"({"default_prompt_name": "query"})")(model);
  CHECK(contains(import_error(model, folder / "no"), "is not one of the \"prompts\""));
  with_content("config_sentence_transformers.json", R"({"prompts": {"query": "a ", "passage": ""}})")(model);
  CHECK(contains(import_run(model, folder / "named").remarks.back(), "may be that for query \"a \""));
  without("config_sentence_transformers.json")(model);

  // Both files of a limit: sentence-transformers' own counts.
  with_content("sentence_bert_config.json", R"({"max_seq_length": 5})")(model);
  with_content("tokenizer_config.json", R"({"model_max_length": 4})")(model);
  const std::string cut = answers_of(folder / "plain", lines, {"data.max_tokens=5"});
  CHECK(cut != answers_of(folder / "plain", lines));
  CHECK(answers_of(imported("short"), lines) == cut);
  Run opened = Run::open(folder / "short");
  opened.predict(lines);
  CHECK(contains(opened.task().take_remarks().back(), "= 5 and was cut; the model reads no more"));
  Run shorter = Run::open(folder / "short", {.settings = {"data.max_tokens=3"}});
  shorter.predict(lines);
  CHECK(contains(shorter.task().take_remarks().back(), "; data.max_tokens=5 reads more"));
  export_run(folder / "short", folder / "short-out");
  CHECK(OrderedJson::parse(content_of(folder / "short-out/tokenizer_config.json")).at("model_max_length") ==
        5);
  import_run(folder / "short-out", folder / "short-again");
  CHECK(answers_of(folder / "short-again", lines) == cut);
  without("sentence_bert_config.json")(model);
  CHECK(answers_of(imported("short"), lines) == answers_of(folder / "plain", lines, {"data.max_tokens=4"}));
  with_content("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})")(model);
  CHECK(answers_of(imported("short"), lines) == answers_of(folder / "plain", lines));
  with_content("sentence_bert_config.json", R"({"max_seq_length": "5"})")(model);
  CHECK(contains(import_error(model, folder / "no"), "must be a number from 1"));
  without("sentence_bert_config.json")(model);

  change_json(model / "modules.json", [](OrderedJson& modules) { modules.erase(2); });  // Normalize
  const auto vector_of = [&](const fs::path& run) { return Run::open(run).predict(lines).front().vector; };
  const std::vector<float> unit = vector_of(folder / "plain"), raw = vector_of(imported("raw"));
  double length = 0;
  for (const float x : raw) length += static_cast<double>(x) * static_cast<double>(x);
  CHECK(std::abs(length - 1) > 0.01);
  for (std::size_t i = 0; i < raw.size(); ++i)
    CHECK(static_cast<double>(raw[i]) / std::sqrt(length) == doctest::Approx(unit[i]).epsilon(1e-4));
  export_run(folder / "raw", folder / "raw-out");
  import_run(folder / "raw-out", folder / "raw-again");
  CHECK(vector_of(folder / "raw-again") == raw);
  for (const std::string path : {"../1_Pooling", "/1_Pooling", "1_Pooling/../.."}) {
    change_json(model / "modules.json", [&](OrderedJson& modules) { modules[1]["path"] = path; });
    CHECK(contains(import_error(model, folder / "no"), "outside the folder"));
  }
  change_json(model / "modules.json", [](OrderedJson& modules) { modules[0]["type"] = "own.Transformer"; });
  change_json(model / "modules.json", [](OrderedJson& modules) { modules[1]["path"] = "1_Pooling"; });
  CHECK(contains(import_error(model, folder / "no"), "through own.Transformer"));
  without("modules.json")(model);
  CHECK(contains(import_run(model, folder / "alone").remarks.back(), "there is no modules.json"));
  for (const std::string head : {"MultipleChoice", "QuestionAnswering"}) {
    with_key("architectures", {"BertFor" + head})(model);
    CHECK(contains(
        import_error(model, folder / "no"),
        "the model is a BertFor" + head + ", whose head heed does not support; it supports BertModel"));
  }
}

TEST_CASE("published: low-rank parts are merged when a run is exported, and answer the same") {
  const TemporaryFolder folder;
  trained("embed_text", folder / "run",
          joined(like_bert, {"model.lora_rank=3", "model.lora_maps=query,value,output",
                             "training.schedule.learning_rate=0.05"}));
  export_run(folder / "run", folder / "model");
  import_run(folder / "model", folder / "merged");
  const auto published = load_safetensors(folder / "model/model.safetensors").tensors;
  for (const auto& [name, tensor] : published) CHECK_FALSE(contains(name, "lora"));
  // The imported run puts a mark before each text, so that the vectors are compared without.
  Run low = Run::open(folder / "run");
  const TensorFile merged = load_safetensors(folder / "merged/model.safetensors");
  auto kind_settings = low.settings();
  kind_settings.assign("model.lora_rank=0");
  const auto plain = low.task().entry().make(kind_settings);
  plain->open_files([&](std::string_view name) { return low.task().files().at(std::string(name)); });
  plain->build({});
  std::vector<std::pair<std::string, Tensor>> targets;
  for (const NamedTensor& one : plain->model().state()) targets.emplace_back(one.name, one.tensor->detach());
  std::size_t filled = 0;
  for (auto& [name, tensor] : targets)
    if (const auto found = merged.tensors.find(name); found != merged.tensors.end()) {
      const std::vector<float> values = found->second.to_vector<float>();
      tensor.assign(std::span<const float>(values));
      ++filled;
    }
  CHECK(filled == targets.size());
  plain->model().state_changed();
  const std::vector<std::string> lines = {"forty-two", "one hundred"};
  const auto a = low.predict(lines), b = plain->predict(lines, {});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::istringstream first(a[i].text), second(b[i].text);
    double x = 0, y = 0;
    std::size_t count = 0;
    while (first >> x && second >> y) {
      CHECK(x == doctest::Approx(y).epsilon(1e-4).scale(1));
      ++count;
    }
    CHECK(count == 16);
  }
}
