#include "heed/tests/hostile/hostile_uses.h"

#include <doctest/doctest.h>

#include "heed/tests/support.h"

namespace heed::test {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using Uses = std::vector<HostileUse>;

Uses uses_with_sizes_without_sense() {
  Uses uses;
  const std::string largest = "9223372036854775807";
  for (const std::string& task : hostile_tasks) {
    const auto refuse = [&](const std::string& setting, const std::vector<std::string>& values) {
      for (const std::string& value : values)
        uses.push_back({setting + "=" + value, task, train_command({"--set", setting + "=" + value}), 2,
                        last_part(setting)});
    };
    refuse(layers_setting(task), {"1000000000", largest, "-1", "2.5"});
    refuse("model.width", {"2147483648", largest, "0", "-16", "17"});
    refuse("model.heads", {"0", "-2", "4294967296", largest});
    refuse("model.feed_forward", {"4611686018427387904", "0"});
    refuse("model.dropout", {"nan", "1e400", "-0.1", "1.5", "null"});
    refuse("model.epsilon", {"nan", "-1"});
    refuse("training.batch_tokens", {"4611686018427387904", largest, "0", "-1"});
    refuse("training.steps", {"-1", "1e3", "10.0", "9223372036854775808"});
    refuse("training.accumulation", {largest, "0"});
    refuse("training.save_every", {"-1"});
    refuse("training.clip_norm", {"nan", "-1"});
    refuse("training.schedule.learning_rate", {"inf", "nan", "-1", "1e400"});
    refuse("training.optimizer.beta1", {"1", "nan"});
    refuse("training.label_smoothing", {"1", "-1"});
    refuse("tokenizer.vocabulary", {"1099511627776", largest, "-1"});
    refuse("seed", {"-1", "18446744073709551616", "1e3"});
    refuse("threads", {"-1", "2147483648"});
    const bool has_encoder_alone = task == "classify" || task == "recommend";
    refuse(has_encoder_alone ? "data.max_tokens" : "model.max_length", {"1099511627776", largest, "0"});
    refuse("data.max_bytes", {"0", "-1"});
    if (task != "classify" && task != "language_model") refuse("data.max_tokens", {"1099511627776", "0"});
    refuse("data.valid_fraction", {"2", "nan", "-0.1"});

    for (const char* count : {"0", "-1", "1025", "9223372036854775807", "2.5", "nan", ""})
      uses.push_back(
          {std::string("--ranks ").append(count), task, train_command({"--ranks", count}), 2, "--ranks"});

    const std::string attention = attention_setting(task);
    const auto refuse_option = [&](const std::string& name, const std::string& option,
                                   const std::vector<std::string>& values) {
      for (const std::string& value : values)
        uses.push_back({name + " " + option + "=" + value, task,
                        train_command({"--set", attention + "=" + name, "--set",
                                       attention + "." + option + "=" + value}),
                        2, option});
    };
    refuse_option("bigbird", "block", {"4294967296", largest, "0", "-1", "nan"});
    refuse_option("bigbird", "random_blocks", {"4611686018427387904", "-1"});
    refuse_option("sparse_transformer", "stride", {largest, "0"});
    refuse_option("reformer", "chunk", {largest, "4294967296", "0"});
    refuse_option("reformer", "rounds", {largest, "0"});
    refuse_option("reformer", "buckets", {largest, "3"});
    refuse_option("longformer", "window", {largest, "-1"});
    refuse_option("longformer", "dilation", {largest, "0"});
    refuse_option("routing_transformer", "clusters", {largest, "0"});
    refuse_option("clusterformer", "clusters", {largest, "0"});
    refuse_option("fastformer", "global_keys", {largest, "-1"});
    refuse_option("hard_coded_gaussian", "sigma", {"0", "nan", "1e300"});
    refuse_option("dot_product", "heads", {"4294967296", "3"});

    // The same, found in a run that somebody sent: the file says so itself where it was changed.
    for (const auto& [name, option] :
         {std::pair{"bigbird", "block"}, {"reformer", "chunk"}, {"sparse_transformer", "stride"}}) {
      const Before received =
          with_json("run/config.json", [=, name = name, option = option](OrderedJson& config) {
            config["model"][last_part(attention)] = {{"name", name}, {option, INT64_MAX}};
          });
      uses.push_back({std::string("received: ") + option, task, use_command(task, {"--unverified"}), 1,
                      option, small_line(task), received});
      uses.push_back({std::string("received and checked: ") + option, task, use_command(task), 1, "changed",
                      small_line(task), received});
      uses.push_back({std::string("received and trained on: ") + option,
                      task,
                      {"train", "--out", "{run}", "--resume", "--steps", "30"},
                      1,
                      "config.json",
                      "",
                      received});
    }
    for (const auto& [group, key, value] : {std::tuple{"model", "width", OrderedJson(INT64_MAX)},
                                            {"model", "heads", OrderedJson(0)},
                                            {"training", "steps", OrderedJson(-1)},
                                            {"training", "batch_tokens", OrderedJson(INT64_MAX)},
                                            {"model", "dropout", OrderedJson("nan")},
                                            {"training", "steps", OrderedJson(1e300)}})
      uses.push_back(
          {std::string("received: ") + key, task, use_command(task, {"--unverified"}), 1, key,
           small_line(task),
           with_json("run/config.json", [group = group, key = key, value = value](OrderedJson& config) {
             config[group][key] = value;
           })});

    uses.push_back({"a model of a terabyte", task,
                    train_command({"--set", layers_setting(task) + "=1000", "--set", "model.width=16384",
                                   "--set", "model.feed_forward=65536"}),
                    2, "GB"});
    uses.push_back({"a step of a terabyte", task,
                    train_command({"--set", "training.batch_tokens=1000000000", "--set", "model.width=1024"}),
                    2, "GB"});
  }
  const auto refuse_use = [&](const std::string& task, const std::string& setting,
                              const std::vector<std::string>& values) {
    for (const std::string& value : values)
      uses.push_back({setting + "=" + value, task, use_command(task, {"--set", setting + "=" + value}), 2,
                      last_part(setting), small_line(task)});
  };
  const std::string huge = "1152921504606846976";  // 2^60
  refuse_use("translate", "decoding.batch_size", {huge, largest, "0", "-1"});
  refuse_use("translate", "decoding.beam", {"1000000000", largest, "0"});
  refuse_use("translate", "decoding.length_ratio", {"1e300", "nan", "inf", "-1"});
  refuse_use("translate", "decoding.length_extra", {largest, "-1"});
  refuse_use("translate", "decoding.length_penalty", {"1e300", "nan"});
  refuse_use("translate", "decoding.max_source_tokens", {largest, "0"});
  refuse_use("converse", "decoding.temperature", {"nan", "inf", "-1"});
  refuse_use("converse", "decoding.top_p", {"nan", "0", "2"});
  refuse_use("converse", "decoding.n_best", {huge, "0", "5"});
  refuse_use("summarize", "evaluation.first_words", {largest, "-1"});
  refuse_use("classify", "prediction.batch_size", {huge, largest, "0"});
  refuse_use("classify", "data.max_tokens", {largest, "0"});
  refuse_use("language_model", "generation.tokens", {huge, largest, "0"});
  refuse_use("language_model", "generation.samples", {huge, largest, "0"});
  refuse_use("language_model", "generation.top_k", {largest, "-1"});
  refuse_use("language_model", "generation.top_p", {"nan", "0", "2"});
  refuse_use("language_model", "generation.temperature", {"nan", "inf", "-1"});
  refuse_use("language_model", "generation.seed", {"-1", "18446744073709551616"});
  for (const auto& [task, flag, value] : {std::tuple{"translate", "--beam", "1000000000"},
                                          {"translate", "--batch-size", huge.c_str()},
                                          {"classify", "--batch-size", largest.c_str()},
                                          {"language_model", "--samples", "1e3"},
                                          {"language_model", "--top-k", "4611686018427387904"}})
    uses.push_back({std::string(flag) + " " + value, task, use_command(task, {flag, value}), 2, value,
                    small_line(task)});
  uses.push_back({"evaluation.stride",
                  "language_model",
                  {"evaluate", "--run", "{run}", "--set", "evaluation.stride=" + largest},
                  2,
                  "stride"});
  uses.push_back({"evaluation.sentences",
                  "language_model",
                  {"evaluate", "--run", "{run}", "--set", "evaluation.sentences=" + huge},
                  2,
                  "sentences"});
  for (const auto& [task, setting] : {std::pair{"translate", "data.numbers"},
                                      {"translate", "data.held_out_numbers"},
                                      {"classify", "data.listops.count"},
                                      {"classify", "data.listops.max_depth"},
                                      {"classify", "data.listops.max_arguments"},
                                      {"language_model", "data.sentences"},
                                      {"summarize", "data.reports"},
                                      {"converse", "data.dialogues"},
                                      {"converse", "data.turns"}})
    for (const std::string& value : {huge, std::string("-1")})
      uses.push_back({std::string(setting) + "=" + value, task,
                      train_command({"--set", setting + std::string("=") + value}), 2, last_part(setting)});
  uses.push_back({"ListOps expressions that there are not", "classify",
                  train_command({"--set", "data.listops.longer_than=999999", "--set",
                                 "data.listops.shorter_than=1000000"}),
                  1, "hardly any"});
  return uses;
}

Uses uses_with_little_memory() {
  Uses uses;
  if (sanitized) return uses;  // its shadow takes terabytes of addresses
  for (const std::string& task : hostile_tasks)
    for (const std::uint64_t megabytes : {40, 80, 150, 300, 340, 400, 600, 1000}) {
      const auto row = [&](const char* name, const Arguments& arguments, const std::string& input) {
        uses.push_back({name + (" with " + std::to_string(megabytes)) + " MB of addresses",
                        task,
                        arguments,
                        1,
                        "addresses",
                        input,
                        {},
                        {},
                        true,
                        false,
                        true,
                        {.address_space = megabytes << 20}});
      };
      row("train", train_command({"--threads", "2"}), "");
      row("predict", use_command(task, {"--threads", "2"}), small_line(task));
    }
  return uses;
}

Uses uses_with_wrong_flags() {
  Uses uses;
  for (const std::string& task : hostile_tasks) {
    const std::string attention = attention_setting(task);
    const auto refuse = [&](const std::string& name, const Arguments& more, const std::string& says) {
      uses.push_back({name, task, train_command(more), 2, says});
    };
    refuse("an option that the attention does not know",
           {"--attention", "bigbird", "--set", attention + ".blok=2"}, "block");
    refuse("an option of another attention", {"--attention", "fastformer", "--set", attention + ".block=2"},
           "block");
    refuse("an attention named twice", {"--attention", "bigbird", "--set", attention + "=fastformer"},
           attention);
    refuse("an attention that there is not", {"--attention", "bigbrd"}, "bigbird");
    refuse("a flag given twice", {"--steps", "3", "--steps", "4"}, "--steps");
    refuse("--out given twice", {"--out", "{t}/again"}, "--out");
    refuse("--unverified without --resume", {"--unverified"}, "--resume");
    refuse("steps as 1e3", {"--steps", "1e3"}, "digits");
    refuse("steps of nothing", {"--steps", ""}, "steps");
    refuse("a seed below zero", {"--seed", "-1"}, "seed");
    refuse("a seed of 2^64", {"--seed", "18446744073709551616"}, "seed");
    refuse("an unknown flag", {"--stepz", "3"}, "--steps");
    refuse("an unknown setting", {"--set", "model.widht=8"}, "model.width");
    refuse("a group as setting", {"--set", "model=3"}, "model");
    refuse("a setting without a value", {"--set", "training.steps"}, "key=value");
    refuse("a setting without a name", {"--set", "=3"}, "key=value");
    refuse("a setting with escapes", {"--set", "\x1b]0;title\x07=1"}, "\\x1b");
    refuse("a setting that is not UTF-8", {"--set", "caf\xe9=1"}, "\\xe9");
    refuse("a value that is not UTF-8", {"--set", "training.keep_best_by=caf\xe9"}, "keep_best_by");
    refuse("a device that there is not", {"--device", "vulkan:99"}, "vulkan:99");
    refuse("f16 on the CPU", {"--precision", "f16", "--device", "cpu"}, "f16");
    const auto refuse_file = [&](const std::string& name, const std::string& content,
                                 const std::string& says) {
      uses.push_back({name, task, train_command({"--config", "{t}/config.json"}), 2, says, "",
                      with_file("config.json", content)});
    };
    refuse_file("a configuration with bytes behind a NUL", std::string("{\"seed\": 3}\0{\"seed\": 4}", 23),
                "NUL");
    refuse_file("a configuration that ends with NUL", std::string("{\"seed\": 3}\0", 12), "NUL");
    refuse_file("a configuration that ends too early", "{\n\"seed\":\n", "config.json");
    refuse_file("a configuration with an error in line 3", "{\n\"seed\": 3,\n\"training\": {,}\n}", "line 3");
    refuse_file("a configuration that is a list", "[1, 2]", "config.json");
    refuse_file("an empty configuration", "", "config.json");
    refuse_file("a configuration that is not UTF-8", "{\"device\": \"caf\xe9\"}", "config.json");
    refuse_file("a configuration with a number beyond all", "{\"training\": {\"clip_norm\": 1e999}}",
                "config.json");
    refuse_file("a configuration with a nesting of 100,000", std::string(100'000, '['), "config.json");
    refuse_file("a configuration with a key that is not there", "{\"training\": {\"stepz\": 3}}",
                "training.steps");
    refuse_file("a configuration with escapes", "{\"\\u001b[2J\": 3}", "\\x1b");

    uses.push_back(
        {"an option of the attention takes effect",
         task,
         train_command({"--attention", "bigbird", "--set", attention + ".block=2", "--steps", "2"}),
         0,
         "",
         "",
         {},
         [=](const fs::path& folder, const ProgramResult&) {
           const OrderedJson config = OrderedJson::parse(content_of(folder / "out/config.json"));
           CHECK(config["model"][last_part(attention)] == OrderedJson({{"name", "bigbird"}, {"block", 2}}));
         }});
    for (const char* setting : {"model.width=32", "model.dropout=0.5", "tokenizer.vocabulary=300",
                                "training.steps=3", "seed=7", "model.norm=pre", "precision=f16"})
      uses.push_back({std::string("a use that changes the model: ") + setting, task,
                      use_command(task, {"--set", setting}), 2, "cannot be changed", small_line(task)});
    uses.push_back({"a use with a configuration that changes the model", task,
                    use_command(task, {"--config", "{t}/config.json"}), 2, "cannot be changed",
                    small_line(task), with_file("config.json", "{\"model\": {\"width\": 32}}")});
    uses.push_back({"weights of a name that there is not", task, use_command(task, {"--weights", "newest"}),
                    2, "best or last", small_line(task)});
    uses.push_back({"a run that goes on with another seed",
                    task,
                    {"train", "--out", "{run}", "--resume", "--steps", "30", "--seed", "2"},
                    1,
                    "seed"});
    uses.push_back({"a run that goes on with another width",
                    task,
                    {"train", "--out", "{run}", "--resume", "--steps", "30", "--set", "model.width=32"},
                    1,
                    "width"});
    uses.push_back({"no command", task, {}, 2, "subcommand"});
    uses.back().says = "";
    uses.push_back(
        {"--run twice", task, use_command(task, {"--run", "{run}"}), 2, "--run", small_line(task)});
    uses.push_back({"a part of the data that there is not",
                    task,
                    {"evaluate", "--run", "{run}", "--part", "tset"},
                    2,
                    "test"});

    // The rate is so large that nothing can come of it: that is said, and nothing is called the best.
    for (const char* rate : {"1e6", "1e30"}) {
      uses.push_back(
          {std::string("a learning rate of ") + rate,
           task,
           train_command({"--set", std::string("training.schedule.learning_rate=") + rate, "--set",
                          "training.schedule.name=constant", "--set", "training.schedule.warmup_steps=0",
                          "--steps", "60"}),
           1,
           "learning rate",
           "",
           {},
           [=](const fs::path& folder, const ProgramResult& result) {
             CHECK_FALSE(contains(result.errors, "(best)"));
             CHECK_FALSE(fs::exists(folder / "out/best.safetensors"));
             const bool warned =
                 contains(result.errors, "learning_rate") || contains(result.errors, "learning rate");
             CHECK_MESSAGE(warned, result.errors);
             // What is kept can be used, or says why not.
             if (!fs::exists(folder / "out/trainer_state.json")) return;
             Arguments command = joined(predict_command(task), {"--run", (folder / "out").string()});
             const ProgramResult use = run_program(task, command, small_line(task));
             CHECK_MESSAGE((use.status == 0 || use.status == 1), use.status);
           },
           true,
           false,
           true});
    }
  }
  uses.push_back({"a run that goes on as folds",
                  "match",
                  {"train", "--out", "{run}", "--resume", "--folds", "2"},
                  1,
                  "data.folds"});
  uses.push_back(
      {"--source without --target", "translate", train_command({"--source", "{t}/x"}), 2, "--target"});
  uses.push_back({"evaluate with one of two files",
                  "translate",
                  {"evaluate", "--run", "{run}", "--source", "{t}/x"},
                  2,
                  "--target"});
  uses.push_back({"a table and files of lines", "summarize",
                  train_command({"--source", "{t}/x", "--target", "{t}/x", "--data", "{t}/x.csv"}), 2,
                  "not both"});
  uses.push_back({"nothing begins what is written", "translate", train_command({"--set", "tokenizer.begin="}),
                  2, "tokenizer.begin"});
  uses.push_back({"score without pairs", "translate", {"score", "--run", "{run}"}, 2, "--source"});
  uses.push_back({"evaluate with a table and files of lines",
                  "translate",
                  {"evaluate", "--run", "{run}", "--source", "{t}/x", "--target", "{t}/x", "--data", "{t}/x"},
                  2,
                  "not both"});
  uses.push_back({"--valid without --data", "converse", train_command({"--valid", "{t}/x"}), 2, "--data"});
  uses.push_back({"a mark that the tokenizer of a masked model lacks", "language_model",
                  train_command({"--masked", "--set", "tokenizer.begin=[cls]"}), 1, "[cls]"});
  uses.push_back({"--prompt and --prompts",
                  "language_model",
                  {"generate", "--run", "{run}", "--prompt", "the", "--prompts"},
                  2,
                  "--prompt"});
  uses.push_back({"low-rank parts of a model that reads nothing", "recommend",
                  train_command({"--set", "model.lora_rank=2", "--set", "news.represented_by=id"}), 2,
                  "lora_rank"});
  for (const auto& [name, flag] :
       {std::pair{"bigbird", "--decoder-attention"}, {"bigbird", "--cross-attention"}})
    uses.push_back({std::string(flag) + " with an option that it does not know", "translate",
                    train_command({flag, name, "--set",
                                   std::string("model.") +
                                       (std::string(flag) == "--decoder-attention" ? "decoder" : "cross") +
                                       "_attention.blok=2"}),
                    2, ""});
  for (const std::string task : {"match", "rate"})
    uses.push_back({"texts of any length", task, use_command(task, {"--set", "data.max_tokens=16777216"}), 0,
                    "", small_line(task)});
  return uses;
}

}  // namespace heed::test
