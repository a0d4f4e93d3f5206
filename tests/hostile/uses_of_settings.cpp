#include "heed/tests/hostile/hostile_uses.h"

namespace heed::test {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using Uses = std::vector<HostileUse>;

namespace {

const std::string largest = "9223372036854775807", huge = "1152921504606846976";  // 2^63 - 1 and 2^60

/// Values of settings that are refused by the last part of their name.
using Refused = std::vector<std::pair<std::string, std::vector<std::string>>>;

void add_training_sizes(const UsesOf& program, const std::string& task) {
  const bool has_encoder_alone = task == "classify" || task == "recommend";
  Refused refused = {
      {layers_setting(task), {"1000000000", largest, "-1", "2.5"}},
      {"model.width", {"2147483648", largest, "0", "-16", "17"}},
      {"model.heads", {"0", "-2", "4294967296", largest}},
      {"model.feed_forward", {"4611686018427387904", "0"}},
      {"model.dropout", {"nan", "1e400", "-0.1", "1.5", "null"}},
      {"model.epsilon", {"nan", "-1"}},
      {"training.batch_tokens", {"4611686018427387904", largest, "0", "-1"}},
      {"training.steps", {"-1", "0", "1e3", "10.0", "9223372036854775808"}},
      {"training.accumulation", {largest, "0"}},
      {"training.save_every", {"-1"}},
      {"training.clip_norm", {"nan", "-1"}},
      {"training.schedule.learning_rate", {"inf", "nan", "-1", "1e400"}},
      {"training.optimizer.beta1", {"1", "nan"}},
      {"training.label_smoothing", {"1", "-1"}},
      {"tokenizer.vocabulary", {"1099511627776", largest, "-1"}},
      {"seed", {"-1", "18446744073709551616", "1e3"}},
      {"threads", {"-1", "2147483648"}},
      {has_encoder_alone ? "data.max_tokens" : "model.max_length", {"1099511627776", largest, "0"}},
      {"data.max_bytes", {"0", "-1"}},
      {"data.valid_fraction", {"2", "nan", "-0.1"}}};
  if (task != "classify" && task != "language_model")
    refused.push_back({"data.max_tokens", {"1099511627776", "0"}});
  for (const auto& [setting, values] : refused)
    for (const std::string& value : values) {
      const std::string assigned = setting + "=" + value;
      program.train(assigned, {"--set", assigned}, 2, last_part(setting)).shared = true;
    }
  for (const std::string& count : {std::string("0"), std::string("-1"), std::string("1025"), largest,
                                   std::string("2.5"), std::string("nan"), std::string()})
    program.train("--ranks " + count, {"--ranks", count}, 2, "--ranks").shared = true;
}

void add_attention_sizes(const UsesOf& program, const std::string& attention) {
  const std::vector<std::tuple<std::string, std::string, std::vector<std::string>>> refused = {
      {"bigbird", "block", {"4294967296", largest, "0", "-1", "nan"}},
      {"bigbird", "random_blocks", {"4611686018427387904", "-1"}},
      {"sparse_transformer", "stride", {largest, "0"}},
      {"reformer", "chunk", {largest, "4294967296", "0"}},
      {"reformer", "rounds", {largest, "0"}},
      {"reformer", "buckets", {largest, "3"}},
      {"longformer", "window", {largest, "-1"}},
      {"longformer", "dilation", {largest, "0"}},
      {"routing_transformer", "clusters", {largest, "0"}},
      {"clusterformer", "clusters", {largest, "0"}},
      {"fastformer", "global_keys", {largest, "-1"}},
      {"hard_coded_gaussian", "sigma", {"0", "nan", "1e300"}},
      {"dot_product", "heads", {"4294967296", "3"}}};
  for (const auto& [name, option, values] : refused)
    for (const std::string& value : values) {
      const std::string assigned = option + "=" + value;
      program
          .train(name + " " + assigned,
                 {"--set", attention + "=" + name, "--set", attention + "." + assigned}, 2, option)
          .shared = true;
    }
}

/// The same, found in a run that somebody sent: the file says so itself where it was changed.
void add_received_sizes(const UsesOf& program, const std::string& attention) {
  const auto with = [](const std::string& group, const std::string& key, const OrderedJson& value) {
    return with_json("run/config.json", [=](OrderedJson& config) { config[group][key] = value; });
  };
  for (const auto& [name, option] : std::vector<std::pair<std::string, std::string>>{
           {"bigbird", "block"}, {"reformer", "chunk"}, {"sparse_transformer", "stride"}}) {
    const Before received = with("model", last_part(attention), {{"name", name}, {option, INT64_MAX}});
    program.ask("received: " + option, {"--unverified"}, 1, option, received);
    program.ask("received and checked: " + option, {}, 1, "changed", received);
    program.go_on("received: " + option, {}, 1, "config.json", received);
  }
  for (const auto& [group, key, value] :
       std::vector<std::tuple<std::string, std::string, OrderedJson>>{{"model", "width", INT64_MAX},
                                                                      {"model", "heads", 0},
                                                                      {"training", "steps", -1},
                                                                      {"training", "batch_tokens", INT64_MAX},
                                                                      {"model", "dropout", "nan"},
                                                                      {"training", "steps", 1e300}})
    program.ask("received: " + key, {"--unverified"}, 1, key, with(group, key, value));
}

void add_sizes_of_uses(Uses& uses) {
  const std::vector<std::pair<std::string, Refused>> refused = {
      {"translate",
       {{"decoding.batch_size", {huge, largest, "0", "-1"}},
        {"decoding.beam", {"1000000000", largest, "0"}},
        {"decoding.length_ratio", {"1e300", "nan", "inf", "-1"}},
        {"decoding.length_extra", {largest, "-1"}},
        {"decoding.length_penalty", {"1e300", "nan"}},
        {"decoding.max_source_tokens", {largest, "0"}}}},
      {"converse",
       {{"decoding.temperature", {"nan", "inf", "-1"}},
        {"decoding.top_p", {"nan", "0", "2"}},
        {"decoding.n_best", {huge, "0", "5"}}}},
      {"summarize", {{"evaluation.first_words", {largest, "-1"}}}},
      {"classify", {{"prediction.batch_size", {huge, largest, "0"}}, {"data.max_tokens", {largest, "0"}}}},
      {"language_model",
       {{"generation.tokens", {huge, largest, "0", "-5"}},
        {"generation.samples", {huge, largest, "0"}},
        {"generation.top_k", {largest, "-1"}},
        {"generation.top_p", {"nan", "0", "2"}},
        {"generation.min_p", {"nan", "-1", "2"}},
        {"generation.repetition_penalty", {"nan", "0", "-1"}},
        {"generation.temperature", {"nan", "inf", "-1"}},
        {"generation.seed", {"-1", "18446744073709551616"}}}}};
  for (const auto& [task, settings] : refused)
    for (const auto& [setting, values] : settings)
      for (const std::string& value : values)
        UsesOf(uses, task)
            .ask(setting + "=" + value, {"--set", setting + "=" + value}, 2, last_part(setting));
  for (const auto& [task, flag, value] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"translate", "--beam", "1000000000"},
           {"translate", "--batch-size", huge},
           {"classify", "--batch-size", largest},
           {"language_model", "--samples", "1e3"},
           {"language_model", "--top-k", "4611686018427387904"}})
    UsesOf(uses, task).ask(flag + " " + value, {flag, value}, 2, value);
  for (const auto& [setting, value] : std::vector<std::pair<std::string, std::string>>{
           {"stride", largest}, {"stride", "33"}, {"stride", "-1"}, {"sentences", huge}})
    UsesOf(uses, "language_model")
        .call(setting + "=" + value,
              {"evaluate", "--run", "{run}", "--set", "evaluation." + setting + "=" + value}, 2, setting);
}

}  // namespace

Uses uses_with_sizes_without_sense() {
  Uses uses;
  for (const std::string& task : hostile_tasks) {
    const UsesOf program(uses, task);
    add_training_sizes(program, task);
    add_attention_sizes(program, attention_setting(task));
    add_received_sizes(program, attention_setting(task));
    program.train("a model of a terabyte",
                  {"--set", layers_setting(task) + "=1000", "--set", "model.width=16384", "--set",
                   "model.feed_forward=65536"},
                  2, "GB");
    program.train("a step of a terabyte",
                  {"--set", "training.batch_tokens=1000000000", "--set", "model.width=1024"}, 2, "GB");
  }
  add_sizes_of_uses(uses);
  for (const auto& [task, setting] :
       std::vector<std::pair<std::string, std::string>>{{"translate", "data.numbers"},
                                                        {"translate", "data.held_out_numbers"},
                                                        {"classify", "data.listops.count"},
                                                        {"classify", "data.listops.max_depth"},
                                                        {"classify", "data.listops.max_arguments"},
                                                        {"language_model", "data.sentences"},
                                                        {"summarize", "data.reports"},
                                                        {"converse", "data.dialogues"},
                                                        {"converse", "data.turns"}})
    for (const std::string& value : {huge, std::string("-1")})
      UsesOf(uses, task)
          .train(setting + "=" + value, {"--set", setting + "=" + value}, 2, last_part(setting));
  UsesOf(uses, "classify")
      .train("ListOps expressions that there are not",
             {"--set", "data.listops.longer_than=999999", "--set", "data.listops.shorter_than=1000000"}, 1,
             "hardly any");
  return uses;
}

Uses uses_with_little_memory() {
  Uses uses;
  if (sanitized) return uses;  // its shadow takes terabytes of addresses
  const Arguments threads = {"--threads", "2"};
  for (const std::string& task : hostile_tasks)
    for (const std::uint64_t megabytes : {40, 80, 150, 300, 340, 400, 600, 1000}) {
      const std::string with = " with " + std::to_string(megabytes) + " MB of addresses";
      const auto limit = [&](HostileUse& use) {
        use.may_succeed = use.writes = true;
        use.limits.address_space = megabytes << 20;
      };
      limit(UsesOf(uses, task).train("train" + with, threads, 1, "addresses"));
      limit(UsesOf(uses, task).ask("predict" + with, threads, 1, "addresses"));
    }
  return uses;
}

namespace {

/// A row of wrong flags: what is wrong, the flags, and a part of the message.
struct WrongFlags {
  const char* name;
  std::string flags, says;
};

void add_wrong_training(const UsesOf& program, const std::string& attention) {
  for (const WrongFlags& one : std::vector<WrongFlags>{
           {"an option that the attention does not know",
            "--attention bigbird --set " + attention + ".blok=2", "block"},
           {"an option of another attention", "--attention fastformer --set " + attention + ".block=2",
            "block"},
           {"an attention named twice", "--attention bigbird --set " + attention + "=fastformer", attention},
           {"an attention that there is not", "--attention bigbrd", "bigbird"},
           {"a flag given twice", "--steps 3 --steps 4", "--steps"},
           {"--out given twice", "--out {t}/again", "--out"},
           {"--unverified without --resume", "--unverified", "--resume"},
           {"steps as 1e3", "--steps 1e3", "digits"},
           {"a seed below zero", "--seed -1", "seed"},
           {"a seed of 2^64", "--seed 18446744073709551616", "seed"},
           {"an unknown flag", "--stepz 3", "--steps"},
           {"an unknown setting", "--set model.widht=8", "model.width"},
           {"a number in letters", "--set model.width=wide", "model.width"},
           {"a group as setting", "--set model=3", "model"},
           {"a setting without a value", "--set training.steps", "key=value"},
           {"a setting without a name", "--set =3", "key=value"},
           {"a setting with escapes", "--set \x1b]0;title\x07=1", "\\x1b"},
           {"a setting that is not UTF-8", "--set caf\xe9=1", "\\xe9"},
           {"a value that is not UTF-8", "--set training.keep_best_by=caf\xe9", "keep_best_by"},
           {"a device of an unknown kind", "--device cpo", "cpu"},
           {"a device that there is not", "--device vulkan:99", "vulkan:99"},
           {"f16 on the CPU", "--precision f16 --device cpu", "f16"}})
    program.train(one.name, words(one.flags), 2, one.says).shared = true;
  program.train("steps of nothing", {"--steps", ""}, 2, "steps");
}

void add_wrong_configurations(const UsesOf& program) {
  const std::vector<std::tuple<std::string, std::string, std::string>> contents = {
      {"bytes behind a NUL", std::string("{\"seed\": 3}\0{\"seed\": 4}", 23), "NUL"},
      {"NUL at its end", std::string("{\"seed\": 3}\0", 12), "NUL"},
      {"no end", "{\n\"seed\":\n", "config.json"},
      {"an error in line 3", "{\n\"seed\": 3,\n\"training\": {,}\n}", "line 3"},
      {"a list", "[1, 2]", "config.json"},
      {"nothing", "", "config.json"},
      {"bytes that are not UTF-8", "{\"device\": \"caf\xe9\"}", "config.json"},
      {"a number beyond all", "{\"training\": {\"clip_norm\": 1e999}}", "config.json"},
      {"a nesting of 100,000", std::string(100'000, '['), "config.json"},
      {"a key that is not there", "{\"training\": {\"stepz\": 3}}", "training.steps"},
      {"a group that is not there", "{\"trainig\": {}}", "training"},
      {"a number for a group", "{\"model\": 3}", "model"},
      {"escapes", "{\"\\u001b[2J\": 3}", "\\x1b"}};
  for (const auto& [name, content, says] : contents)
    program
        .train("a configuration with " + name, {"--config", "{t}/config.json"}, 2, says,
               with_file("config.json", content))
        .shared = true;
}

void add_wrong_uses(const UsesOf& program) {
  for (const std::string setting : {"model.width=32", "model.dropout=0.5", "tokenizer.vocabulary=300",
                                    "training.steps=3", "seed=7", "model.norm=pre", "precision=f16"})
    program.ask("a use that changes the model: " + setting, {"--set", setting}, 2, "cannot be changed");
  program.ask("a use with a configuration that changes the model", {"--config", "{t}/config.json"}, 2,
              "cannot be changed", with_file("config.json", "{\"model\": {\"width\": 32}}"));
  program.ask("weights of a name that there is not", {"--weights", "newest"}, 2, "best or last");
  program.ask("--run twice", {"--run", "{run}"}, 2, "--run");
  program.go_on("another seed", {"--seed", "2"}, 1, "seed");
  program.go_on("another width", {"--set", "model.width=32"}, 1, "width");
  program.call("no command", {}, 2, "");
  program.call("a command that there is not", {"trian"}, 2, "train");
  program.call("a training without a folder", {"train"}, 2, "--out");
  program.call("a part of the data that there is not", {"evaluate", "--run", "{run}", "--part", "tset"}, 2,
               "test");
}

/// The rate is so large that nothing can come of it: that is said, and nothing is called the best.
void add_huge_rate(const UsesOf& program, const std::string& task, const std::string& rate) {
  HostileUse& use = program.train(
      "a learning rate of " + rate,
      {"--set", "training.schedule.learning_rate=" + rate, "--set", "training.schedule.name=constant",
       "--set", "training.schedule.warmup_steps=0", "--steps", "60"},
      1, "learning rate");
  use.may_succeed = use.writes = true;
  use.after = [=](const fs::path& folder, const ProgramResult& result) {
    CHECK_FALSE(contains(result.errors, "(kept)"));
    CHECK_FALSE(fs::exists(folder / "out/best.safetensors"));
    const bool warned = contains(result.errors, "learning_rate") || contains(result.errors, "learning rate");
    CHECK_MESSAGE(warned, result.errors);
    // What is kept can be used, or says why not.
    if (!fs::exists(folder / "out/trainer_state.json")) return;
    const ProgramResult answer =
        run_program(task, use_command(task, (folder / "out").string()), small_line(task));
    CHECK_MESSAGE((answer.status == 0 || answer.status == 1), answer.status);
  };
}

/// Flags of single tasks.
void add_flags_of_tasks(Uses& uses) {
  const UsesOf translate(uses, "translate"), language_model(uses, "language_model");
  for (const auto& [task, name, flags, says] : std::vector<std::array<std::string, 4>>{
           {"translate", "an unknown name of sources", "--sorce x", "--source"},
           {"translate", "--source without --target", "--source {t}/x", "--target"},
           {"translate", "a preset that there is not", "--preset hc-as", "hc-sa"},
           {"translate", "nothing begins what is written", "--set tokenizer.begin=", "tokenizer.begin"},
           {"summarize", "a table and files of lines", "--source {t}/x --target {t}/x --data {t}/x.csv",
            "not both"},
           {"converse", "--valid without --data", "--valid {t}/x", "--data"},
           {"language_model", "a tokenizer that there is not", "--tokenizer syllables", "characters"},
           {"language_model", "--valid without --data", "--valid {t}/x", "--data"},
           {"language_model", "no context", "--context 0", "max_length"},
           {"language_model", "more context than a batch", "--context 1000", "batch_tokens"},
           {"language_model", "a stride beyond the context", "--set evaluation.stride=40", "stride"},
           {"language_model", "a setting of other models", "--set model.encoder_layers=2", "encoder_layers"},
           {"language_model", "an unknown objective", "--set objective=both", "masked"},
           {"language_model", "a causal model by accuracy", "--set training.keep_best_by=accuracy",
            "accuracy"},
           {"language_model", "a masked model by perplexity",
            "--masked --set training.keep_best_by=perplexity", "perplexity"},
           {"recommend", "low-rank parts of a model that reads nothing",
            "--set model.lora_rank=2 --set news.represented_by=id", "lora_rank"}})
    UsesOf(uses, task).train(name, words(flags), 2, says);
  for (const std::string stack : {"decoder", "cross"})
    translate.train(stack + " attention with an option that it does not know",
                    {"--" + stack + "-attention", "bigbird", "--set", "model." + stack + "_attention.blok=2"},
                    2, "");
  language_model.train("a mark that the tokenizer of a masked model lacks",
                       {"--masked", "--set", "tokenizer.begin=[cls]"}, 1, "[cls]");
  const auto evaluate = [&](const std::string& name, const Arguments& flags, const std::string& says) {
    translate.call(name, joined({"evaluate", "--run", "{run}"}, flags), 2, says);
  };
  evaluate("evaluate with one of two files", {"--source", "{t}/x"}, "--target");
  evaluate("evaluate with a table and files of lines",
           {"--source", "{t}/x", "--target", "{t}/x", "--data", "{t}/x"}, "not both");
  evaluate("evaluate for people and for programs", {"--table", "--json"}, "give one");
  translate.call("score without pairs", {"score", "--run", "{run}"}, 2, "--source");
  translate.ask("a column of what is to be written", {"--data", "{t}/x", "--target-column", "2"}, 2,
                "unknown option --target-column");
  for (const auto& [name, prompt, says] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"of unknown characters", "the cat?!", "'?', '!'"},
           {"that is too long", std::string(33, 'a'), "33 tokens"}})
    language_model.call("a prompt " + name, {"generate", "--run", "{run}", "--prompt", prompt}, 2, says);
  translate.call("a flag that ends in the name of a setting",
                 {"train", "--out", "{t}/new", "--split-seed", "1"}, 2, "unknown option --split-seed;");
  language_model.call("a flag that is almost one", {"generate", "--run", "{run}", "--promt", "a"}, 2,
                      "--prompt");
  language_model.call("--prompt and --prompts",
                      {"generate", "--run", "{run}", "--prompt", "the", "--prompts"}, 2, "--prompt");
  UsesOf(uses, "match").go_on("folds", {"--folds", "2"}, 1, "data.folds");
  for (const std::string task : {"match", "rate"})
    UsesOf(uses, task).ask("texts of any length", {"--set", "data.max_tokens=16777216"}, 0, "");
}

}  // namespace

Uses uses_with_wrong_flags() {
  Uses uses;
  for (const std::string& task : hostile_tasks) {
    const UsesOf program(uses, task);
    const std::string attention = attention_setting(task);
    add_wrong_training(program, attention);
    add_wrong_configurations(program);
    add_wrong_uses(program);
    program
        .train("an option of the attention takes effect",
               {"--attention", "bigbird", "--set", attention + ".block=2", "--steps", "2"}, 0, "")
        .after = [=](const fs::path& folder, const ProgramResult&) {
      const OrderedJson config = OrderedJson::parse(content_of(folder / "out/config.json"));
      CHECK(config["model"][last_part(attention)] == OrderedJson({{"name", "bigbird"}, {"block", 2}}));
    };
    for (const char* rate : {"1e6", "1e30"}) add_huge_rate(program, task, rate);
  }
  add_flags_of_tasks(uses);
  return uses;
}

}  // namespace heed::test
