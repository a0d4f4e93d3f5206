// Settings: declared once, laid over each other, refused by name, kind and range; and the list of all in
// docs/reference/settings.md.

#include "heed/apps/tasks/settings.h"

#include <nlohmann/json.hpp>

#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/task.h"
#include "heed/base/names.h"
#include "heed/models/options.h"
#include "heed/tests/model_support.h"

namespace {

struct SomeSettings {
  enum class Norm { post, pre } norm = Norm::post;
  bool header = false;
  std::int64_t steps = 1000;
  double rate = 0.5;
  std::string file = {};
  std::vector<std::string> columns = {};
};

void for_each_setting(auto&& visit, SomeSettings& some) {
  visit(some.header, "data.header", "A flag");
  visit(some.steps, "training.steps", 0, 1'000'000, "Steps");
  visit(some.rate, "training.rate", 0, 1, "Rate");
  visit(some.file, "data.file", "File");
  visit(some.norm, "model.norm", {"post", "pre"}, "Norm");
  visit(some.columns, "data.columns", "Columns");
}

Settings some_settings() {
  Settings settings;
  settings.declare("", SomeSettings());
  settings.declare_json("model", {"encoder_attention", "Attention", {.kind = Setting::Kind::attention}},
                        "\"dot_product\"");
  return settings;
}

struct Columns {
  std::string column = {};
  std::vector<std::string> columns = {};
};

void for_each_setting(auto&& visit, Columns& all) {
  visit(all.column, "column", "A column", {.kind = Setting::Kind::column});
  visit(all.columns, "columns", "Columns");
}

/// The message of the SettingsError that `change` must throw.
template <class Change>
std::string refused_change(Change&& change) {
  Settings settings = some_settings();
  try {
    change(settings);
  } catch (const SettingsError& error) {
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace

TEST_CASE("settings: a list of columns is a name, names between commas, or JSON") {
  Settings settings = task_entry("classify").settings(true);
  for (const auto& [given, list] :
       std::vector<std::pair<std::string, std::string>>{{"text", R"(["text"])"},
                                                        {"title,body", R"(["title","body"])"},
                                                        {"2", R"(["2"])"},
                                                        {R"(["a,b","c"])", R"(["a,b","c"])"},
                                                        {R"("a,b")", R"(["a,b"])"}}) {
    settings.assign("data.text_columns=" + given);
    CHECK(settings.json("data.text_columns") == list);
  }
}

TEST_CASE("settings keep their kinds through text, JSON and copies") {
  Settings settings = some_settings();
  settings.assign("training.steps=500");
  settings.assign("training.rate=1");
  settings.assign("data.file=12");
  settings.assign("data.columns=[2,3]");
  settings.set("data.header", "true", "--header");
  const Settings copy = settings;
  settings.assign("training.steps=7");
  CHECK(copy.get<std::int64_t>("training.steps") == 500);
  CHECK(copy.get<double>("training.rate") == 1.0);
  CHECK(copy.get<std::string>("data.file") == "12");
  CHECK(copy.get<std::vector<std::string>>("data.columns") == std::vector<std::string>{"2", "3"});
  CHECK(copy.get<bool>("data.header"));
  CHECK(copy.json("training") == R"({"steps":500,"rate":1.0})");
  Settings again = some_settings();
  again.merge(copy.json(), "saved");
  CHECK(again.json() == copy.json());
  CHECK_THROWS_AS(copy.get<bool>("training.steps"), Error);
  CHECK_THROWS_AS(copy.get<bool>("training.step"), Error);
}

TEST_CASE("settings are read into the struct that declared them") {
  Settings settings = some_settings();
  settings.assign("model.norm=pre");
  settings.assign("training.steps=7");
  settings.assign("data.columns=[2,3]");
  const auto some = settings.read<SomeSettings>("");
  CHECK(some.norm == SomeSettings::Norm::pre);
  CHECK(some.steps == 7);
  CHECK(some.rate == 0.5);
  CHECK(some.columns == std::vector<std::string>{"2", "3"});
  CHECK_ERROR(check_ranges("owner", SomeSettings{.rate = 2}), "owner: training.rate is 2; it must be 0 to 1");
}

TEST_CASE("settings: what is wrong is named with what is allowed") {
  const auto assigned = [](const std::string& text) {
    return refused_change([&](Settings& settings) { settings.assign(text); });
  };
  CHECK(contains(assigned("training.stesp=5"), "did you mean 'training.steps'?"));
  CHECK(contains(assigned("training.steps=1e3"), "an integer written in digits (0 to 1000000), not 1e3"));
  CHECK(contains(assigned("training.steps=-1"), "0 to 1000000, not -1"));
  CHECK(contains(assigned("training.steps=9223372036854775808"), "0 to 1000000"));
  CHECK(contains(assigned("training.steps=18446744073709551615"), "0 to 1000000"));
  CHECK(contains(assigned("training.rate=2"), "0 to 1, not 2"));
  CHECK(contains(assigned("training.rate=1e999"), "a number"));
  CHECK(contains(assigned("training.rate=nan"), "a number"));
  CHECK(contains(assigned("model.norm=pro"), "post or pre, not 'pro'; did you mean 'pre'?"));
  CHECK(contains(assigned("data.header=yes"), "true or false"));
  CHECK(contains(assigned("data.columns=[1,2.5]"), "a list of texts or numbers"));
  CHECK(contains(assigned("training=5"), "group of settings"));
  CHECK(contains(assigned("training.steps"), "expected key=value"));
  const auto merged = [](const std::string& json) {
    return refused_change([&](Settings& settings) { settings.merge(json, "file.json"); });
  };
  CHECK(contains(merged(R"({"training": {"steps": 1, "steps": 2}})"), "the member \"steps\" occurs twice"));
  CHECK(contains(merged("{\n\"training\": {\n\"steps\": ,\n}}"), "file.json, line 3: not valid JSON"));
  CHECK(contains(merged(std::string("{}\0", 3)), "NUL"));
  CHECK(contains(merged("[]"), "expected an object"));
  CHECK(contains(merged(std::string(100, '[') + std::string(100, ']')), "file.json"));
  CHECK(contains(refused_change([](Settings& settings) { settings.merge_file("/no/such/file"); }),
                 "/no/such/file"));
}

TEST_CASE("settings: a file with many members is read in a time that follows their number, not its square") {
  std::string members, list;
  for (int i = 0; i < 100'000; ++i) {
    members += (i > 0 ? ",\"m" : "\"m") + std::to_string(i) + "\":{}";
    list += i > 0 ? ",{}" : "{}";
  }
  const double begin = cpu_seconds();
  CHECK(
      contains(refused_change([&](Settings& settings) { settings.merge("{" + members + "}", "file.json"); }),
               "unknown setting 'm0'"));
  CHECK_THROWS_AS(option_from_json("sizes", "[" + list + "]"), Error);
  CHECK(cpu_seconds() - begin < (sanitized ? 40 : 4));
}

TEST_CASE("settings: a range without its end says so") {
  for (const TaskEntry* entry : task_table()) {
    CAPTURE(entry->name);
    Settings settings = entry->settings(false);
    for (const Setting& setting : settings.declared()) {
      if (!setting.name.ends_with("dropout") && setting.high != below_one) continue;
      CAPTURE(setting.name);
      CHECK_THROWS_WITH_AS(settings.assign(setting.name + "=1.0"),
                           doctest::Contains("must be at least 0 and below 1, not 1.0"), SettingsError);
      settings.assign(setting.name + "=0.999");
    }
  }
}

TEST_CASE("a column is given by number or by name, and several as a list") {
  Settings settings;
  settings.declare("", Columns());
  settings.merge(R"({"column": 3, "columns": [1, "text"]})", "test");
  CHECK(settings.get<std::string>("column") == "3");
  CHECK(settings.json("columns") == R"(["1","text"])");
  settings.assign("column=label");
  settings.assign("columns=text");
  CHECK(settings.get<std::string>("column") == "label");
  CHECK(settings.get<std::vector<std::string>>("columns") == std::vector<std::string>{"text"});
  settings.assign("columns=[2,3]");
  CHECK(settings.json("columns") == R"(["2","3"])");
  CHECK_THROWS_AS(settings.assign("columns=[[2]]"), SettingsError);
  CHECK_THROWS_AS(settings.assign("column=1.5"), SettingsError);
  CHECK_THROWS_AS(settings.assign("column=caf\xe9"), SettingsError);
}

TEST_CASE("settings below an attention are its options") {
  Settings settings = some_settings();
  settings.assign("model.encoder_attention=longformer");
  settings.assign("model.encoder_attention.window=64");
  settings.assign("model.encoder_attention.part.with.dots=true");
  CHECK(settings.json("model.encoder_attention") ==
        R"({"name":"longformer","window":64,"part.with.dots":true})");
  settings.assign(R"(model.encoder_attention=["fastformer","dot_product"])");
  CHECK_THROWS_AS(settings.assign("model.encoder_attention.window=3"), SettingsError);
  CHECK_THROWS_AS(settings.assign("model.encoder_attention=3"), SettingsError);
}

TEST_CASE("defaults can be changed for other data, and are what the table shows") {
  Settings settings = some_settings();
  settings.change_defaults(R"({"training": {"steps": 20}})");
  CHECK(settings.get<std::int64_t>("training.steps") == 20);
  CHECK(contains(settings_table(settings), "training.steps = 20\n    an integer, 0 to 1000000. Steps"));
}

TEST_CASE("a name of an attention keeps the options set for it, and says which it drops") {
  Settings settings = task_entry("classify").settings(true);
  settings.assign(R"(model.encoder_attention={"name": "longformer", "window": 9})");
  CHECK(choose_attentions(settings, Stacks::encoder, {.attention = "longformer"}).empty());
  CHECK(contains(settings.json("model.encoder_attention"), "9"));
  const std::vector<std::string> notes =
      choose_attentions(settings, Stacks::encoder, {.attention = "fastformer"});
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes[0], "window"));
  CHECK_THROWS_AS(choose_attentions(settings, Stacks::encoder, {.attention = "fastfromer"}), SettingsError);
}

TEST_CASE("every task checks its settings without building the model") {
  for (const TaskEntry* entry : task_table()) {
    CAPTURE(entry->name);
    for (const bool own_data : {false, true}) {
      const auto refused = [&](const std::vector<std::string>& assignments) -> std::string {
        try {
          Settings settings = entry->settings(own_data);
          for (const std::string& assignment : assignments) settings.assign(assignment);
          entry->make(settings)->check_settings();
        } catch (const SettingsError& error) {
          return error.what();
        }
        return "";
      };
      CHECK(refused({}) == "");
      const std::string attention = attention_settings(entry->stacks).front();
      CHECK(contains(refused({attention + "=longformer", attention + ".widnow=3"}), "widnow"));
      CHECK(contains(refused({attention + "=bigbird", attention + ".block=4294967296"}), "4294967296"));
      CHECK(contains(refused({"model.width=65536", "model.feed_forward=1048576", "model.heads=1"}),
                     "this machine has"));
    }
  }
}

namespace {

/// A setting that some tasks mean alike: each of its defaults, with the tasks that have it.
struct SettingRow {
  struct Default {
    std::string value, tasks = {};
    std::size_t count = 0;
  };
  std::string name, allowed, help;
  std::vector<Default> defaults = {};

  bool is(const Setting& setting) const {
    return name == setting.name && allowed == allowed_text(setting) && help == setting.help;
  }
};

/// The rows of all tasks, those of one name together, in the order of the tasks.
std::vector<SettingRow> setting_rows() {
  std::vector<SettingRow> rows;
  for (const TaskEntry* entry : task_table()) {
    const Settings settings = entry->settings(true);
    for (const Setting& setting : settings.declared()) {
      auto row = std::ranges::find_if(rows, [&](const SettingRow& one) { return one.is(setting); });
      if (row == rows.end()) {
        const auto last = std::find_if(rows.rbegin(), rows.rend(),
                                       [&](const SettingRow& one) { return one.name == setting.name; });
        row = rows.insert(last == rows.rend() ? rows.end() : last.base(),
                          {setting.name, allowed_text(setting), setting.help});
      }
      auto value = std::ranges::find(row->defaults, setting.initial, &SettingRow::Default::value);
      if (value == row->defaults.end()) value = row->defaults.insert(value, {setting.initial});
      if (value->count++ != 0) value->tasks += ", ";
      value->tasks += entry->name;
    }
  }
  return rows;
}

/// The page: a table for each part of the settings.
std::string settings_page() {
  std::map<std::string, std::string> tables;
  std::vector<std::string> parts;
  for (SettingRow& row : setting_rows()) {
    const std::size_t dot = row.name.find('.');
    const std::string part = dot == std::string::npos ? "run" : row.name.substr(0, dot);
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
    std::ranges::stable_sort(row.defaults, std::greater(), &SettingRow::Default::count);
    std::string defaults, tasks;
    std::size_t count = 0;
    for (const SettingRow::Default& one : row.defaults) {
      defaults += defaults.empty() ? "`" + one.value + "`" : ", `" + one.value + "` (" + one.tasks + ")";
      tasks += (tasks.empty() ? "" : ", ") + one.tasks;
      count += one.count;
    }
    if (count < task_table().size()) row.help += " *(" + tasks + ")*";
    tables[part] +=
        concat_text("| `", row.name, "` | ", defaults, " | ", row.allowed, " | ", row.help, " |\n");
  }
  std::string page =
      "# All settings\n"
      "\n"
      "All settings with their defaults, as `train --help-settings` prints them for your own data. The "
      "built-in data uses\n"
      "other model sizes and numbers of steps. If defaults differ between tasks, the most frequent one comes "
      "first and the\n"
      "others name their tasks. A setting that only some tasks have names these at the end. `./dev docs` "
      "makes this page.\n";
  for (const std::string& part : parts)
    page +=
        concat_text("\n## ", part, "\n\n| setting | default | allowed | description |\n|---|---|---|---|\n",
                    tables[part]);
  return page;
}

}  // namespace

TEST_CASE("settings: the table in docs/reference/settings.md is that of the tasks") {
  const std::string expected = settings_page();
  const std::string path = std::string(HEED_SOURCE_DIR) + "/docs/reference/settings.md";
  if (std::getenv("HEED_WRITE_DOCS")) write_file_atomically(path, expected);
  CHECK_MESSAGE(read_file(path) == expected,
                "the page is out of date: ./dev docs makes the table in docs anew");
}

TEST_CASE("settings: an error has its parts, and programs need not read its message") {
  Settings settings = task_entry("classify").settings(true);
  const auto error_of = [&](const std::string& assignment) {
    try {
      settings.assign(assignment);
    } catch (const SettingsError& error) {
      return error;
    }
    return SettingsError("");
  };
  const SettingsError range = error_of("model.width=0"), choice = error_of("model.norm=pro"),
                      kind = error_of("model.dropout=true"), name = error_of("model.widht=8");
  CHECK(range.setting == "model.width");
  CHECK(range.value == "0");
  CHECK(range.allowed == "1 to 65536");
  CHECK(range.hint == "");
  CHECK(choice.value == "pro");
  CHECK(choice.hint == "pre");
  CHECK(contains(choice.what(), choice.allowed));
  CHECK(kind.setting == "model.dropout");
  CHECK(kind.value == "true");
  CHECK(name.setting == "model.widht");
  CHECK(name.hint == "model.width");
  CHECK(name.allowed == "");
}
