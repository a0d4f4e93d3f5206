// Runs that start from other runs or from vectors of words, with frozen parts and learning rates of parts.

#include <nlohmann/json.hpp>

#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/run.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/text/safetensors.h"
#include "heed/text/tokenizer.h"

namespace {

namespace fs = std::filesystem;

/// Trains a small run in this process; what it said.
std::string said_in_training(const std::string& task, const fs::path& out,
                             const std::vector<std::string>& more, bool resume = false) {
  const TaskEntry& entry = task_entry(task);
  std::string said;
  TrainRequest request{out, resume, true, {}};
  request.callbacks.message = [&](std::string_view text) { said.append(text).append("\n"); };
  train_run(entry, small_settings_of(entry, more), request);
  return said;
}

std::string training_error(const std::string& task, const fs::path& out,
                           const std::vector<std::string>& more) {
  return error_of([&] { said_in_training(task, out, more); });
}

Floats tensor_in(const fs::path& run, const std::string& name) {
  return load_safetensors(run / "model.safetensors").tensors.at(name).to_vector<float>();
}

/// The setting that starts from a run.
std::string from(const fs::path& run) {
  return "training.from=\"" + run.string() + "\"";
}

/// Settings of a task that take the model of a run.
Settings taken_from(const fs::path& run, const std::string& task) {
  Settings settings = task_entry(task).settings(false);
  apply_model_settings(settings, run.string());
  return settings;
}

/// Models of one shape, whatever the task.
std::vector<std::string> like_the_classifier(const std::vector<std::string>& more) {
  return joined(
      {"model.norm=pre", "model.positions=learned", "model.activation=gelu", "tokenizer.kind=characters"},
      more);
}

/// Eight lines of two classes, as a setting.
std::string texts_of_classes(const fs::path& file, const std::string& first, const std::string& second) {
  std::string lines;
  for (int i = 0; i < 8; ++i) lines += first + " a cat runs\n" + second + " a dog runs\n";
  return "data.file=\"" + write_content(file, lines).string() + "\"";
}

}  // namespace

TEST_CASE("--from: a language model serves a classifier, causal or masked") {
  const TemporaryFolder folder;
  for (const std::string objective : {"causal", "masked"}) {
    CAPTURE(objective);
    const fs::path pretrained = folder / objective, run = folder / (objective + "_classes");
    said_in_training("language_model", pretrained,
                     like_the_classifier({"objective=" + objective, "training.keep_best_by=loss"}));
    // The texts of the classifier are made of other characters: those that are not known are refused by name.
    const std::string data =
        write_content(folder / "texts",
                      "a the cat runs\nb the dogs run\n" + std::string() + "a the dog runs\nb the cats run\n")
            .string();
    const std::vector<std::string> settings = like_the_classifier(
        {"data.file=\"" + data + "\"", "data.format=lines", "data.valid_fraction=0", "data.max_tokens=32",
         from(pretrained), "training.freeze=embedding", "training.batch_tokens=64", "training.ema_decay=0"});
    const std::string refused = training_error("classify", run, settings);
    CHECK(contains(refused, "output.weight ("));
    CHECK(refused.ends_with("give training.ignore=output"));
    const std::string said = said_in_training("classify", run, joined(settings, {"training.ignore=output"}));
    CAPTURE(said);
    CHECK(contains(said, "from the language_model run"));
    CHECK(content_of(run / "tokenizer.json") == content_of(pretrained / "tokenizer.json"));
    // Frozen weights are those of the best of the run that it started from, bit for bit.
    const auto best = load_safetensors(pretrained / "best.safetensors").tensors;
    CHECK(tensor_in(run, "embedding.weight") == best.at("embedding.weight").to_vector<float>());
    const auto origin = nlohmann::json::parse(content_of(run / "run.json")).at("origin");
    CHECK(origin.at("task") == "language_model");
    CHECK(Run::open(run).predict(std::vector<std::string>{"the cat runs"}).front().error == "");
  }
}

TEST_CASE("--from: trained weights take small steps, the parts that start afresh the usual ones") {
  const TemporaryFolder folder;
  const fs::path pretrained = folder / "text";
  said_in_training("language_model", pretrained,
                   like_the_classifier({"objective=masked", "training.keep_best_by=loss"}));
  const TaskEntry& entry = task_entry("classify");
  const auto chosen = [&](std::vector<GivenSetting> more) {
    more.insert(more.begin(), {"training.from", pretrained.string()});
    return training_settings(entry, {.own_data = true, .settings = std::move(more)});
  };
  const std::string rate = "training.schedule.learning_rate";
  const Settings plain = chosen({{"training.ignore", "output,pooling"}, {"training.freeze", "pooling"}});
  const auto width = plain.get<double>("model.width"), usual = entry.settings(true).get<double>(rate);
  CHECK(plain.get<double>(rate) == doctest::Approx(0.02 / width));
  const double times = usual / (0.02 / width);
  CHECK(plain.get<std::string>("training.part_rates") == concat_text("output=", times));
  CHECK(plain.get<std::string>("training.optimizer.name") == "adamw");

  const Settings own =
      chosen({{"training.ignore", "output"}, {rate, "0.5"}, {"model.sparse_features", "64"}});
  CHECK(own.get<double>(rate) == 0.5);
  CHECK(own.get<std::string>("training.part_rates") == "");
  CHECK(own.get<std::int64_t>("model.sparse_features") == 64);
  const Settings bare = chosen({{"training.ignore", "output"}, {"model.sparse_features", "0"}});
  CHECK(bare.get<std::string>("training.part_rates") == concat_text("output=", times));
  CHECK(chosen({{"model.lora_rank", "2"}}).get<double>(rate) == usual);
  CHECK(chosen({{"model.lora_rank", "0"}}).get<double>(rate) == plain.get<double>(rate));
}

TEST_CASE("Of steps and epochs, one that is given alone replaces the other, and the earlier of both counts") {
  const TemporaryFolder folder;
  const TaskEntry& entry = task_entry("classify");
  const auto limits = [&](std::vector<GivenSetting> given, const fs::path& resumed = {}) {
    const Settings settings = training_settings(entry, {.settings = std::move(given), .resumed = resumed});
    return std::pair(settings.get<std::int64_t>("training.steps"),
                     settings.get<std::int64_t>("training.epochs"));
  };
  const GivenSetting steps{"training.steps", "5"}, epochs{"training.epochs", "2"};
  using Limits = std::pair<std::int64_t, std::int64_t>;
  CHECK(limits({steps}) == Limits{5, 0});
  CHECK(limits({epochs}) == Limits{0, 2});
  CHECK(limits({steps, epochs}) == Limits{5, 2});
  train_run(entry, small_settings_of(entry, {"training.steps=2"}), {folder / "run"});
  CHECK(limits({epochs}, folder / "run") == Limits{0, 2});
  CHECK(limits({steps}, folder / "run") == Limits{5, 0});
  CHECK(limits({steps, epochs}, folder / "run") == Limits{5, 2});
}

TEST_CASE("--from: so many passes are enough, unless steps are given") {
  const TemporaryFolder folder;
  const fs::path first = folder / "first";
  const std::vector<std::string> data =
      like_the_classifier({texts_of_classes(folder / "texts", "no", "yes"), "data.format=lines",
                           "data.valid_fraction=0", "training.ema_decay=0", "training.batch_tokens=64"});
  said_in_training("classify", first, data);
  const auto steps_after = [&](const std::string& name, const std::vector<std::string>& more) {
    const TaskEntry& entry = task_entry("classify");
    std::vector<GivenSetting> given;
    for (const std::string& one : joined(joined(data, {from(first)}), more))
      given.push_back({one.substr(0, one.find('=')), one.substr(one.find('=') + 1)});
    train_run(entry, training_settings(entry, {.settings = given}), {folder / name, false, true, {}});
    return Run::open(folder / name).settings().get<std::int64_t>("training.steps");
  };
  CHECK(steps_after("few", {}) == 100);
  CHECK(steps_after("given", {"training.steps=3"}) == 3);
}

TEST_CASE("--from: a language model reads the titles of a recommender, all of it or with low-rank parts") {
  const TemporaryFolder folder;
  const fs::path pretrained = folder / "text";
  const std::vector<std::string> shape = {"model.norm=pre", "model.positions=learned",
                                          "model.activation=gelu", "tokenizer.kind=bpe"};
  said_in_training("language_model", pretrained,
                   joined(shape, {"objective=masked", "training.keep_best_by=loss"}));
  std::vector<std::string> settings = joined(shape, {from(pretrained), "training.ema_decay=0"});
  const auto there = load_safetensors(pretrained / "best.safetensors").tensors;
  const auto same = [&](const fs::path& run, const std::string& name) {
    return tensor_in(run, "title." + name) == there.at(name).to_vector<float>();
  };
  const std::string query = "encoder.layers.0.attention.query.weight";
  const std::string own = "anyone,category,identity,title.pooling,user_encoder,user_pooling,user_positions";
  CHECK(training_error("recommend", folder / "refused", settings).ends_with("give training.ignore=" + own));
  settings.push_back("training.ignore=" + own);
  said_in_training("recommend", folder / "frozen", joined(settings, {"training.freeze=title"}));
  for (const std::string name : {"embedding.weight", query.c_str()}) CHECK(same(folder / "frozen", name));
  said_in_training("recommend", folder / "all", settings);
  CHECK_FALSE(same(folder / "all", query));
  said_in_training("recommend", folder / "low", joined(settings, {"model.lora_rank=2"}));
  for (const std::string name : {"embedding.weight", query.c_str()}) CHECK(same(folder / "low", name));
  for (const float value : tensor_in(folder / "low", "title.encoder.layers.0.attention.query.lora_b"))
    CHECK(value != 0);
}

TEST_CASE("--from: what tells classes is taken from a run of the same classes alone") {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& run, const std::string& data,
                         const std::vector<std::string>& more) {
    return said_in_training(
        "classify", folder / run,
        joined({data, "data.format=lines", "data.valid_fraction=0", "tokenizer.kind=words",
                "model.sparse_features=97", "training.ema_decay=0"},
               more));
  };
  const std::string mine = texts_of_classes(folder / "mine.txt", "a", "b"),
                    others = texts_of_classes(folder / "others.txt", "c", "d"),
                    start = from(folder / "first");
  train("first", mine, {});
  const std::string refused = error_of([&] { train("others", others, {start}); });
  CHECK(contains(refused, "output.weight (which means something else there)"));
  const std::string ignore = refused.substr(refused.rfind('=') + 1);
  CHECK_MESSAGE(ignore == "output", refused);
  train("others", others, {start, "training.ignore=" + ignore});
  train("mine", mine, {start, "training.freeze=sparse,output"});
  CHECK(tensor_in(folder / "mine", "sparse.weight") == tensor_in(folder / "first", "sparse.weight"));
  train("same", texts_of_classes(folder / "same.txt", "b", "a"), {start});  // in another order
}

TEST_CASE("--from with low-rank parts: nothing else below the task's own parts is trained") {
  const TemporaryFolder folder;
  const fs::path first = folder / "first", low = folder / "low";
  said_in_training("classify", first,
                   {"model.local_width=3", "training.ema_decay=0", "training.evaluate_every=0"});
  said_in_training("classify", low,
                   {from(first), "model.local_width=3", "model.lora_rank=2", "training.ema_decay=0"});
  for (const char* name : {"embedding.weight", "local.map.weight", "encoder.layers.0.attention.query.weight"})
    CHECK(tensor_in(low, name) == tensor_in(first, name));
  CHECK_FALSE(tensor_in(low, "output.weight") == tensor_in(first, "output.weight"));
}

TEST_CASE("--from: vectors of categories are taken from a run that numbers them alike alone") {
  const TemporaryFolder folder;
  const std::string sport = "N1\tsport\ta\tthe game\t\t\t\t\n", money = "N2\tmoney\tb\tthe bank\t\t\t\t\n";
  std::string clicks;
  for (int i = 0; i < 20; ++i)
    clicks += std::to_string(i) + "\tU1\t11/1" + std::to_string(i % 10) + "/2019 9:05:58 AM\tN1\tN1-1 N2-0\n";
  const auto train = [&](const char* run, const std::string& news, std::vector<std::string> more) {
    const fs::path data = write_content(folder / "clicks.tsv", clicks),
                   titles = write_content(folder / (run + std::string(".tsv")), news);
    return said_in_training(
        "recommend", folder / run,
        joined({"data.file=\"" + data.string() + "\"", "data.news=\"" + titles.string() + "\"",
                "data.valid_fraction=0", "data.test_fraction=0", "training.ema_decay=0"},
               std::move(more)));
  };
  const std::string start = from(folder / "first");
  train("first", sport + money, {});
  CHECK(contains(error_of([&] { train("other", money + sport, {start}); }),
                 "category.weight (which means something else there)"));
  train("same", sport + money, {start, "training.freeze=category"});
  CHECK(tensor_in(folder / "same", "category.weight") == tensor_in(folder / "first", "category.weight"));
}

TEST_CASE("--from: what does not fit is said, and what cannot be is refused") {
  const TemporaryFolder folder;
  const fs::path first = folder / "first";
  said_in_training("classify", first, {});
  const std::string start = from(first), attention = "model.encoder_attention=linformer";
  const std::string wider = training_error("classify", folder / "wider",
                                           {start, "model.feed_forward=24", "training.ignore=output"});
  CHECK(contains(wider, "encoder.layers.0.feed_forward.input.weight ([24, 16] here and [16, 16] there)"));
  CHECK(contains(wider, "the settings differ: model.feed_forward is 24 here and 16 there"));
  // What a message says is to be ignored will do.
  const std::string refused = training_error("classify", folder / "attention", {start, attention});
  CHECK(contains(refused, "model.encoder_attention is \"linformer\" here and \"dot_product\" there"));
  CHECK_FALSE(fs::exists(folder / "attention"));
  const std::string ignore = refused.substr(refused.rfind(' ') + 1);
  CHECK(contains(said_in_training("classify", folder / "attention", {start, attention, ignore}),
                 "from the classify run"));
  CHECK(contains(training_error("classify", folder / "other", {start, "training.ignore=encodr"}),
                 "the model has no part \"encodr\" to start afresh (training.ignore); it has embedding"));
  said_in_training("language_model", folder / "text", {});
  CHECK(contains(training_error("classify", folder / "other",
                                {from(folder / "text"), "model.width=32", "model.feed_forward=24",
                                 "model.positions=none"}),
                 "model.width is 32 here and 16 there"));
  CHECK(contains(training_error("classify", folder / "none", {from(folder / "nothing")}), "no run"));
  CHECK(contains(training_error("classify", folder / "frozen", {"training.freeze=encodr"}), "encodr"));
  for (const char* const run : {"wider", "other", "frozen"}) CHECK_FALSE(fs::exists(folder / run));
}

TEST_CASE("--from: learned positions come along, or the setting that asks for more of them is refused") {
  const TemporaryFolder folder;
  const auto taken = [&](const std::string& task, const fs::path& run, const std::string& setting) {
    return taken_from(run, task).get<std::int64_t>(setting);
  };
  for (const std::string objective : {"causal", "masked"}) {
    CAPTURE(objective);
    const fs::path run = folder / objective;
    const std::vector<std::string> same = {"objective=" + objective, "training.keep_best_by=loss",
                                           "model.positions=learned", "training.batch_tokens=256"};
    said_in_training("language_model", run, joined(same, {"model.max_length=16"}));
    const std::vector<std::string> start = joined(same, {from(run)});
    CHECK(taken("language_model", run, "model.max_length") == 16);
    CHECK(
        contains(training_error("language_model", folder / "longer", joined(start, {"model.max_length=32"})),
                 "model.max_length is 32 here and 16 there"));
    CHECK_FALSE(fs::exists(folder / "longer"));
    // A shorter one takes the first positions, and says nothing of what is new or left.
    const std::string said = said_in_training("language_model", folder / (objective + "-shorter"),
                                              joined(start, {"model.max_length=8"}));
    CHECK_FALSE(contains(said, "without a place"));
    // Texts of other tasks have limits of their own; one that reads two texts at once needs twice the
    // positions.
    CHECK(taken("classify", run, "data.max_tokens") == 16);
    CHECK(taken("embed_text", run, "data.max_tokens") == 16);
    CHECK(taken("match", run, "data.max_tokens") == 8);
    CHECK(training_error("classify", folder / "longer",
                         {from(run), "model.positions=learned", "data.max_tokens=40"}) != "");
  }
  said_in_training("classify", folder / "short", {"model.positions=learned", "data.max_tokens=60"});
  CHECK(taken("match", folder / "short", "data.max_tokens") == 30);
  CHECK(taken("language_model", folder / "short", "model.max_length") == 60);
  said_in_training("classify", folder / "any", {"data.max_tokens=60"});
  CHECK(taken("match", folder / "any", "data.max_tokens") == 30);
}

TEST_CASE("--from: a run that was ended before its first checkpoint begins again from there") {
  const TemporaryFolder folder;
  const fs::path source = folder / "source", ended = folder / "ended";
  said_in_training("classify", source, {});
  const std::vector<std::string> settings = {from(source), "training.freeze=embedding"};
  const auto lose_checkpoint = [&] {
    for (const char* file :
         {"trainer_state.json", "model.safetensors", "optimizer.safetensors", "best.safetensors"})
      fs::remove(ended / file);
  };
  said_in_training("classify", ended, settings);
  const std::string whole = tensors_of(ended / "model.safetensors");
  lose_checkpoint();
  fs::remove(ended / "metrics.jsonl");
  CHECK(contains(said_in_training("classify", ended, settings, /*resume=*/true), "from the classify run"));
  CHECK(tensors_of(ended / "model.safetensors") == whole);
  lose_checkpoint();
  fs::remove_all(source);
  said_in_training("classify", source, {"seed=5"});
  CHECK_ERROR(said_in_training("classify", ended, settings, /*resume=*/true), "have changed");
}

TEST_CASE("--from: model and tokenizer are the other run's, and what has no place or is overruled is named") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run", pooled = folder / "pooled", words = folder / "words";
  said_in_training("language_model", run,
                   {"objective=masked", "training.keep_best_by=loss", "model.output_transform=true",
                    "model.tie_embeddings=none"});
  const Settings taken = taken_from(run, "language_model");
  CHECK(taken.get<bool>("model.output_transform"));
  CHECK(taken.get<std::string>("model.tie_embeddings") == "none");
  const std::string said = said_in_training("language_model", folder / "tied",
                                            {"objective=masked", "training.keep_best_by=loss", from(run)});
  CHECK(contains(said, "model.output_transform is false here and true there"));
  CHECK(contains(said, "without a place in this model: "));

  said_in_training("classify", pooled, {"model.pooling=max"});
  CHECK(taken_from(pooled, "match").get<std::string>("model.pooling") == "max");
  said_in_training("classify", words, {"tokenizer.kind=words", "tokenizer.min_frequency=1"});
  CHECK(taken_from(words, "match").get<std::string>("tokenizer.kind") == "words");
  CHECK(taken_from(words, "match").get<std::int64_t>("tokenizer.min_frequency") == 1);
  CHECK(contains(said_in_training("classify", folder / "other", {from(words), "tokenizer.kind=bpe"}),
                 "the settings differ: tokenizer.kind is \"bpe\" here and \"words\" there"));
}

TEST_CASE("--from: a model of two stacks starts none of one, nor the other way round") {
  const TemporaryFolder folder;
  for (const char* const task : {"translate", "classify"}) said_in_training(task, folder / task, {});
  for (const auto& [task, other] : {std::pair("translate", "classify"), {"classify", "translate"}})
    CHECK_THROWS_WITH_AS(taken_from(folder / other, task), doctest::Contains("a single stack"),
                         SettingsError);
}

TEST_CASE("part rates and frozen parts: broken off and resumed, the same bits") {
  const TemporaryFolder folder;
  const auto with_steps = [](const std::string& steps) {
    return std::vector<std::string>{"training.part_rates=embedding=0.1,encoder=0.5", "training.freeze=output",
                                    "training.schedule.name=constant", steps};
  };
  said_in_training("classify", folder / "whole", with_steps("training.steps=20"));
  said_in_training("classify", folder / "broken", with_steps("training.steps=10"));
  const std::string before = content_of(folder / "broken" / "config.json");
  CHECK_ERROR(
      said_in_training("classify", folder / "broken", with_steps("training.steps=5"), /*resume=*/true),
      "has made 10 steps, but this training ends after 5");
  CHECK(content_of(folder / "broken" / "config.json") == before);
  said_in_training("classify", folder / "broken", with_steps("training.steps=20"), /*resume=*/true);
  CHECK(tensors_of(folder / "broken" / "model.safetensors") ==
        tensors_of(folder / "whole" / "model.safetensors"));
}

TEST_CASE("another limit of lengths changes no model: answers stay as they are") {
  const TemporaryFolder folder;
  std::string line;
  for (int i = 0; i < 15; ++i) line += "[MAX 2 9 ] ";
  const std::vector<std::string> lines = {line};
  for (const std::string attention : {"sparse_transformer", "clusterformer", "linformer"}) {
    CAPTURE(attention);
    const fs::path run = folder / attention;
    said_in_training("classify", run, {"model.encoder_attention=" + attention, "model.positions=learned"});
    const double before = Run::open(run).predict(lines)[0].probability;
    for (const char* const limit : {"data.max_tokens=100", "data.max_tokens=1000"})
      CHECK(Run::open(run, {.settings = {limit}}).predict(lines)[0].probability == before);
  }
}

TEST_CASE("--embeddings: rows of known words are those of the file, as the layers see them") {
  const TemporaryFolder folder;
  const std::string data =
      write_content(folder / "texts", "a good day\nb bad day\na good night\nb bad night\n").string();
  std::string good = "good", bad = "bad";
  for (int i = 0; i < 16; ++i) {
    good += " 0." + std::to_string(i + 10);
    bad += " -1.5";
  }
  const auto settings = [&](const std::string& file) {
    return std::vector<std::string>{"data.file=\"" + data + "\"", "data.format=lines",
                                    "data.valid_fraction=0",      "tokenizer.kind=words",
                                    "tokenizer.min_frequency=1",  "training.freeze=embedding",
                                    "training.batch_tokens=64",   "model.sparse_features=0",
                                    "training.ema_decay=0",       "training.embeddings=\"" + file + "\""};
  };
  const std::string file =
      write_content(folder / "vectors", good + "\nunheard" + good.substr(4) + "\n" + bad + "\n");
  const std::string said = said_in_training("classify", folder / "run", settings(file));
  CAPTURE(said);
  CHECK(contains(said, "vectors for 2 of the"));
  const Tokenizer tokenizer = Tokenizer::load(folder / "run" / "tokenizer.json");
  const Floats rows = tensor_in(folder / "run", "embedding.weight");
  const auto at = static_cast<std::size_t>(tokenizer.id_of("bad")) * 16;
  for (std::size_t i = 0; i < 16; ++i)
    CHECK(rows[at + i] == doctest::Approx(-1.5 / 4));  // sqrt(16): scale_embeddings

  const auto refused = [&](const std::string& content, const std::string& why) {
    CHECK(contains(
        training_error("classify", folder / "no", settings(write_content(folder / "wrong", content))), why));
  };
  refused("good 1 2 3\n", "3 numbers, but model.width is 16");
  refused(good + "\nbad 1 2 3\n", "wrong:2: ");
  refused(good.substr(0, good.size() - 4) + "nan\n", "finite");
  refused("", "");
  refused("elsewhere" + good.substr(4) + "\n", "none of its words");
  CHECK_FALSE(fs::exists(folder / "no"));
}
