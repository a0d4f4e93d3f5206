// The task tag: spans as seqeval counts them, the chain of labels, files of sentences, and its program.

#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/apps/data/tagged_text.h"
#include "heed/apps/data/text_features.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/train.h"
#include "heed/models/sparse_chain.h"
#include "heed/tests/hostile/small_runs.h"
#include "heed/tests/support.h"
#include "heed/text/tokenizer.h"
#include "heed/training/label_spans.h"

namespace {

using Labels = std::vector<std::string>;
using Json = nlohmann::json;

Labels labels_in(const std::string& text) {
  Labels labels;
  for (const std::string_view one : split_at(text, " ")) labels.emplace_back(one);
  return labels;
}

std::string spans_in(const std::string& labels) {
  std::string text;
  for (const LabelSpan& one : label_spans(labels_in(labels)))
    text += concat_text(text.empty() ? "" : " ", one.kind, ' ', one.begin, '-', one.end - 1);
  return text;
}

LabelledText sentences_in(const std::string& content, TaggedOptions options = {},
                          ReadReport* report = nullptr) {
  return read_tagged_text(TextInput(content, options.format == "jsonl" ? "data.jsonl" : "data.conll"),
                          options, report);
}

std::string shown(const LabelledText& text) {
  std::string all;
  for (std::size_t i = 0; i < text.size(); ++i) all += concat_text(text.texts[i], '|', text.labels[i], '/');
  std::ranges::replace(all, '\n', ' ');
  return all;
}

}  // namespace

TEST_CASE("label_spans: seqeval 1.2.2") {
  // from seqeval.metrics.sequence_labeling import get_entities
  CHECK(spans_in("B-PER I-PER O B-LOC I-LOC B-LOC") == "PER 0-1 LOC 3-4 LOC 5-5");
  CHECK(spans_in("I-PER I-PER O I-LOC B-LOC I-ORG") == "PER 0-1 LOC 3-3 LOC 4-4 ORG 5-5");
  CHECK(spans_in("S-PER O B-LOC I-LOC E-LOC S-LOC") == "PER 0-0 LOC 2-4 LOC 5-5");
  CHECK(spans_in("O I-PER B-PER E-PER I-PER I-LOC E-LOC O I-LOC S-LOC I-LOC") ==
        "PER 1-1 PER 2-3 PER 4-4 LOC 5-6 LOC 8-8 LOC 9-9 LOC 10-10");
  CHECK(spans_in("B-PER I-LOC I-LOC B-LOC O E-PER E-PER") == "PER 0-0 LOC 1-2 LOC 3-3 PER 5-5 PER 6-6");
  CHECK(spans_in("B-a-b I-a-b I-a O") == "a-b 0-1 a 2-2");
  CHECK(spans_in("B I O B B") == "_ 0-1 _ 3-3 _ 4-4");
  // Of other notations, which seqeval reads only in its strict mode.
  CHECK(spans_in("B-X M-X E-X B-X U-Y B-X L-X") == "X 0-2 X 3-3 Y 4-4 X 5-6");
  CHECK(spans_in("DT NN O NN") == "DT 0-0 NN 1-1 NN 3-3");
  CHECK(spans_in("O O").empty());
  CHECK(spans_in("").empty());
}

TEST_CASE("count_spans: precision, recall and F1 of seqeval") {
  const std::pair<const char*, const char*> sentences[] = {
      {"B-PER I-PER O B-LOC I-LOC B-LOC", "B-PER I-PER O B-LOC B-LOC I-LOC"},
      {"O I-PER B-PER E-PER I-PER I-LOC E-LOC O I-LOC S-LOC I-LOC",
       "O I-PER I-PER E-PER O I-LOC E-LOC O I-LOC S-LOC O"},
      {"B-PER I-LOC I-LOC B-LOC O E-PER E-PER", "B-PER I-PER I-LOC B-LOC O S-PER E-PER"}};
  std::map<std::string, SpanCounts> kinds;
  SpanCounts all;
  for (const auto& [expected, predicted] : sentences)
    for (const auto& [kind, counts] :
         count_spans(label_spans(labels_in(expected)), label_spans(labels_in(predicted))))
      kinds[kind].add(counts), all.add(counts);
  CHECK(all.precision() == doctest::Approx(0.5833333333333334));
  CHECK(all.recall() == doctest::Approx(0.4666666666666667));
  CHECK(all.f1() == doctest::Approx(0.5185185185185186));
  CHECK(kinds["LOC"].f1() == doctest::Approx(0.5333333333333333));
  CHECK(kinds["PER"].f1() == doctest::Approx(0.5));
  CHECK(SpanCounts().f1() == 0);
}

TEST_CASE("LabelChain: sums over all sequences of labels") {
  const std::vector<float> logits = {0.5F, -1, 2, 0.1F, 0.3F, -0.7F, 1, 1.5F, -2, 0, 0.25F, 0.75F},
                           transitions = {0.2F, -0.5F, 1, 0.4F, 0, -1, -0.3F, 2, 0.6F};
  const LabelChain chain(logits, transitions, 3);
  double total = 0, best_score = -1e9;
  std::vector<std::int32_t> best;
  std::vector<double> marginals(12), pairs(9), found(9);
  double span = 0;
  for (int code = 0; code < 81; ++code) {
    const std::vector<std::int32_t> labels = {code / 27, code / 9 % 3, code / 3 % 3, code % 3};
    double score = 0;
    for (std::size_t t = 0; t < 4; ++t) {
      score += logits[t * 3 + static_cast<std::size_t>(labels[t])];
      if (t > 0) score += transitions[static_cast<std::size_t>(labels[t - 1] * 3 + labels[t])];
    }
    if (score > best_score) best_score = score, best = labels;
    total += std::exp(score);
    for (std::size_t t = 0; t < 4; ++t)
      marginals[t * 3 + static_cast<std::size_t>(labels[t])] += std::exp(score);
    for (std::size_t t = 1; t < 4; ++t)
      pairs[static_cast<std::size_t>(labels[t - 1] * 3 + labels[t])] += std::exp(score);
    if (labels[1] == 2 && labels[2] == 1) span += std::exp(score);
  }
  CHECK(chain.log_partition() == doctest::Approx(std::log(total)));
  CHECK(chain.best() == best);
  CHECK(chain.loss(best) == doctest::Approx(std::log(total) - best_score));
  CHECK(chain.log_probability(1, std::vector<std::int32_t>{2, 1}) == doctest::Approx(std::log(span / total)));
  chain.add_pairs(found);
  for (std::size_t i = 0; i < 9; ++i) CHECK(found[i] == doctest::Approx(pairs[i] / total));
  for (std::size_t i = 0; i < 12; ++i) CHECK(chain.marginals()[i] == doctest::Approx(marginals[i] / total));
  CHECK_ERROR(LabelChain(logits, transitions, 5), "a chain of 5 labels got 12 logits and 9 transitions");
  // Without transitions: a softmax each. No length overflows.
  CHECK(LabelChain(logits, {}, 3).best() == std::vector<std::int32_t>{2, 1, 1, 2});
  CHECK(std::isfinite(LabelChain(std::vector<float>(30000, 500), transitions, 3).log_partition()));
}

TEST_CASE("SparseChain: learns transitions, with the same bits by any number of threads") {
  // The label of a word is that of the word before it, turned around: its own features say nothing.
  constexpr std::int64_t features = 4096;
  const std::vector<std::string> words(4, "word");
  std::vector<ChainSample> samples(600);
  for (std::size_t chain = 0; chain < samples.size(); ++chain)
    for (std::size_t i = 0; i < words.size(); ++i) {
      samples[chain].words.push_back(word_features(words, 1, features).ids);
      samples[chain].labels.push_back(static_cast<std::int32_t>((chain + i) % 2));
    }
  std::vector<float> first, transitions;
  for (const int threads : {1, 3}) {
    const test::WithThreads with_threads(threads);
    SparseChain linear(features, 2);
    linear.fit(samples);
    transitions = linear.transitions.to_vector<float>();
    std::vector<float> found = linear.weight.to_vector<float>();
    found.insert(found.end(), transitions.begin(), transitions.end());
    if (first.empty()) first = found;
    CHECK(found == first);
  }
  CHECK(transitions[1] + transitions[2] > transitions[0] + transitions[3] + 2);
}

TEST_CASE("tagged text: columns") {
  CHECK(shown(sentences_in("EU B-ORG\nrejects O\n\n\nPeter B-PER\n")) == "EU rejects|B-ORG O/Peter|B-PER/");
  CHECK(shown(sentences_in("\xEF\xBB\xBF-DOCSTART- -X- O\r\n\r\nEU NNP B-ORG\r\n. . O\r\n")) ==
        "EU .|B-ORG O/");
  CHECK(shown(sentences_in("# a comment\n# sent_id = 3\n#tag\tO\nx y\tB-X\n")) == "#tag x y|O B-X/");
  const std::string conllu = "# text = a\n1\tDu\tdu\tPRON\n2-3\tzum\t_\t_\n2\tzu\tzu\tADP\n";
  CHECK(shown(sentences_in(conllu, {.word_column = "2", .label_column = "4"})) == "Du zu|PRON ADP/");
  CHECK(shown(sentences_in("a B\nb O", {.labelled = false})) == "a b|/");
  CHECK_ERROR(sentences_in("EU B-ORG\nrejects\n"),
              "data.conll:2: the line has 1 column, the first one had 2");
  CHECK_ERROR(sentences_in("EU\nrejects\n"), "both in column 1");
  CHECK_ERROR(sentences_in("EU B\n", {.label_column = "3"}), "there is no column \"3\" among the 2");
  CHECK_ERROR(sentences_in("EU B\n", {.word_column = "name"}), "there is no column \"name\"");
  CHECK_ERROR(sentences_in("EU\t\tB\n\t\t\nx\t\t\n"), "column 3 is empty; expected a label");
  CHECK_ERROR(sentences_in("\n\n-DOCSTART- O\n"), "there are no words");
  CHECK_ERROR(sentences_in("a\xff B\n"), "UTF-8");
}

TEST_CASE("tagged text: jsonl") {
  const TaggedOptions jsonl{.format = "jsonl"};
  CHECK(shown(sentences_in(R"({"id": "1", "tokens": ["a", "b c"], "ner_tags": ["O", "B-X"]})", jsonl)) ==
        "a b c|O B-X/");
  ReadReport report;
  CHECK(shown(sentences_in("{\"words\": [], \"labels\": []}\n{\"words\": [\"a\"], \"labels\": [\"O\"]}",
                           jsonl, &report)) == "a|O/");
  CHECK(report.blank == 1);
  CHECK_ERROR(sentences_in(R"({"words": ["a", "b"], "labels": ["O"]})", jsonl),
              "there are 2 words (words) and 1 labels");
  CHECK_ERROR(sentences_in(R"({"words": ["a", ""], "labels": ["O", "O"]})", jsonl),
              "the word number 2 is empty");
  CHECK_ERROR(sentences_in(R"({"words": ["a"]})", jsonl), "there is no \"labels\"");
  CHECK_ERROR(sentences_in(R"({"words": ["a"], "labels")", jsonl), "data.jsonl:1");
}

TEST_CASE("parse_sentence: words of every script, and their places") {
  const auto words = [](const std::string& line) {
    std::string text;
    const Sentence sentence = parse_sentence(line);
    for (std::size_t i = 0; i < sentence.words.size(); ++i)
      text += concat_text(i > 0 ? " " : "", sentence.words[i], ':', sentence.places[i].begin, '-',
                          sentence.places[i].end);
    return text;
  };
  CHECK(words("(Mr. Müller's U.N. visit).") ==
        "(:0-1 Mr:1-3 .:3-4 Müller's:5-13 U.N:14-17 .:17-18 visit:19-24 ):24-25 .:25-26");
  CHECK(words("我去Paris了。") == "我:0-1 去:1-2 Paris:2-7 了:7-8 。:8-9");
  CHECK(words(R"(["New York", "é"])") == "New York:0-8 é:9-10");
  CHECK(words("[note] text") == "[:0-1 note:1-5 ]:5-6 text:7-11");
  CHECK_ERROR(parse_sentence("[]"), "the list of words is empty");
  CHECK_ERROR(parse_sentence("[\"a\", 1]"), "a list of words holds 1");
}

TEST_CASE("tag: learns names, reads long sentences whole, and says where the names stand") {
  const TemporaryFolder folder;
  std::string all;
  for (int i = 0; i < 60; ++i)
    all += concat_text("Mr O\nSmith", i, " B-PER\nI-", i, " I-PER\nleft O\nOslo B-LOC\n\n");
  write_file_atomically(folder / "train.conll", all);
  const ProgramResult trained =
      run_program("tag", joined({"train", "--data", (folder / "train.conll").string(), "--test",
                                 (folder / "train.conll").string(), "--out", (folder / "run").string()},
                                small_flags("tag")));
  REQUIRE_MESSAGE(trained.status == 0, trained.errors);
  const ProgramResult measured =
      run_program("tag", {"evaluate", "--run", (folder / "run").string(), "--part", "test"});
  CHECK_MESSAGE(measured.status == 0, measured.errors);
  const Json figures = Json::parse(measured.output);
  CHECK(figures["f1"] > 0.95);
  CHECK(figures["spans"]["LOC"]["expected"] == 60);
  const Arguments predict = {"predict", "--run", (folder / "run").string()};
  std::string longest;
  for (int i = 0; i < 300; ++i) longest += "Mr Smith1 I-1 left Oslo ";
  const ProgramResult answers =
      run_program("tag", joined(predict, {"--json"}), "Mr Smith7 I-7 left Oslo.\n" + longest + "\n[]\n");
  CHECK(answers.status == 1);
  const auto lines = split_at(answers.output, "\n");
  const Json first = Json::parse(lines[0]), second = Json::parse(lines[1]);
  CHECK(first["tagged"] == "Mr [PER Smith7 I-7] left [LOC Oslo] .");
  CHECK(first["spans"][0]["text"] == "Smith7 I-7");
  CHECK(first["spans"][1]["start"] == 19);
  CHECK(first["spans"][1]["end"] == 23);
  CHECK(first["words"].size() == 6);
  CHECK(first["words"][1]["label"] == "B-PER");
  CHECK(second["spans"].size() == 600);
  CHECK(Json::parse(lines[2])["error"] == "the list of words is empty");
  const ProgramResult rows =
      run_program("tag", joined(predict, {"--data", (folder / "train.conll").string()}));
  CHECK_MESSAGE(rows.status == 0, rows.errors);
  CHECK(split_at(rows.output, "\n").front() == "Mr [PER Smith0 I-0] left [LOC Oslo]");
  // Labels that training lacks count as wrong; none that it has is an error.
  write_file_atomically(folder / "other.conll", "Mr O\nSmith B-X\n");
  CHECK(contains(run_program("tag", {"evaluate", "--run", (folder / "run").string(), "--data",
                                     (folder / "other.conll").string()})
                     .errors,
                 "1 words have labels that training lacks"));
  write_file_atomically(folder / "other.conll", "Mr 1\nSmith 2\n");
  CHECK(contains(run_program("tag", {"evaluate", "--run", (folder / "run").string(), "--data",
                                     (folder / "other.conll").string()})
                     .errors,
                 "none of the labels is one of the 4 known"));
}
