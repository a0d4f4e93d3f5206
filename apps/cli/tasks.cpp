// The programs of the tasks, whose main() calls run_task() with their name.
// language_model, which can do more, and tag, which brings its own task, have files of their own.
//
//   translate train --source train.en.gz --target train.de.gz --valid-fraction 0.01 --out run
//   translate predict --run run < english > german
//   translate score --run run --source english --target german
//   summarize train --data articles.csv --source-column 3 --target-column 2 --test test.csv --out run
//   converse train --data dialogues.txt --test dialogues_test.txt --out run
//   echo "Good morning . __eou__ Hello , how are you ?" | converse predict --run run --method sample
//   classify train --data subj.all --format lines --encoding cp1252 --out runs/subj
//   classify evaluate --run runs/subj
//   match train --data WikiQA-train.txt --config examples/configs/wikiqa.json --out runs/wikiqa
//   embed_text train --data pairs.tsv --out runs/pairs
//   recommend train --data behaviors.tsv --news news.tsv --out runs/mind
//   printf 'N138 N64727\tN50329 N11853\n' | recommend predict --run runs/mind --json

#include <algorithm>

#include "heed/apps/cli/task_program.h"

namespace {

using namespace heed::programs;

/// The parts of a program that differ between tasks.
struct Row {
  const char* name;
  const char* by_rule;  ///< the built-in data
  const char* suits;    ///< the user data that its defaults suit
  const char* example;  ///< example flags of train, for the help
  const char* answer;   ///< the name of an answer
  const char* files;    ///< data for evaluate other than the run's
  void (*add_flags)(TaskProgram& program);
};

void add_text_to_text_flags(TaskProgram& program) {
  add_pair_flags(program);
  add_decoding_flags(program);
}

void add_text_columns_flags(TaskProgram& program) {
  for (auto* flags : {&program.train_flags, &program.evaluate_flags, &program.predict_flags})
    flags->emplace_back("data.text_columns");
}

constexpr Row rows[] = {
    {"translate", "German translations of English number words",
     "tens of thousands of pairs of sentences (29,000 captions: examples/configs/multi30k.json)",
     "--source train.en --target train.de --valid-fraction 0.01 --out runs/en-de", "translation",
     "A table of pairs",
     [](TaskProgram& program) {
       add_text_to_text_flags(program);
       program.has_preset = true;
     }},
    {"summarize", "headlines of short reports",
     "a few thousand texts with summaries that copy words of the text (news: "
     "examples/configs/ag_news_headlines.json)",
     "--data news.csv --source-column text --target-column title --out runs/news", "summary",
     "A table of pairs", add_text_to_text_flags},
    {"converse", "small talk", "thousands of short dialogues (examples/configs/dailydialog.json)",
     "--data dialogues.txt --test dialogues_test.txt --out runs/talk", "reply", "Dialogues",
     [](TaskProgram& program) {
       program.train_flags = {"data.file", "data.valid", "data.test", "data.valid_fraction", "data.turns"};
       add_decoding_flags(program);
     }},
    {"classify", "the values of short ListOps expressions",
     "a few thousand short texts, such as subj, mpqa, mr and cr (long ones: examples/configs/20news.json)",
     "--data reviews.csv --label-column stars --text-columns text --out runs/reviews", "label",
     "Labelled texts",
     [](TaskProgram& program) {
       add_labelled_flags(program);
       add_text_columns_flags(program);
       program.train_flags.emplace_back("data.labels");
     }},
    {"match", "answers to simple questions",
     "a few thousand pairs of sentences, such as snli, mrpc, quora and rte",
     "--data pairs.tsv --test pairs_test.tsv --out runs/pairs", "label", "Pairs", add_labelled_flags},
    {"rate", "the value of a number from its English words",
     "a few thousand texts with a number each, such as the stars of reviews",
     "--data reviews.csv --label-column stars --text-columns text --out runs/stars", "number", "Rated texts",
     [](TaskProgram& program) {
       add_labelled_flags(program);
       program.has_labels = false;
       add_text_columns_flags(program);
     }},
    {"embed_text", "which number words have the same meaning",
     "thousands of pairs of sentences; not tuned on any data set", "--data pairs.tsv --out runs/pairs",
     "vector", "A table of pairs", add_pair_flags},
    {"recommend", "which topics the users like",
     "impressions of news, such as MIND's (examples/configs/mind.json)",
     "--data behaviors.tsv --news news.tsv --out runs/mind", "news", "Impressions", [](TaskProgram& program) {
       program.train_flags = {"data.file", "data.news",           "data.valid",
                              "data.test", "data.valid_fraction", "data.test_fraction"};
       program.evaluate_flags = {"prediction.news", "prediction.batch_size"};
       program.predict_flags = program.evaluate_flags;
     }}};

}  // namespace

int heed::programs::run_task(const char* name, int argc, char** argv) {
  const Row& row = *std::ranges::find(rows, std::string_view(name),
                                      [](const Row& one) { return std::string_view(one.name); });
  TaskProgram program{
      .entry = heed::task_entry(name),
      .by_rule = row.by_rule,
      .suits = row.suits,
      .example = row.example,
      .answer = row.answer,
      .files = heed::concat_text(row.files, " to evaluate on; default: a part of the run's data")};
  row.add_flags(program);
  return run_task_program(program, argc, argv);
}
