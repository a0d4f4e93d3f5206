#include "heed/hub/published_folder.h"

#include <nlohmann/json.hpp>
#include <set>

#include "heed/core/file.h"
#include "heed/core/json_text.h"
#include "heed/data/json_parts.h"
#include "heed/data/sentencepiece.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t most_text_of_published =
    std::int64_t{1} << 28;  // bytes of a text file: a tokenizer takes tens of millions

std::map<std::string, Tensor> read_shards(const fs::path& folder, const fs::path& index) {
  const Json json = parse_json<Json>(read_file(index, most_text_of_published), index.string());
  const Json map = json.is_object() ? json.value("weight_map", Json()) : Json();
  check(map.is_object() && !map.empty(), index,
        " has no \"weight_map\" that says which file holds which weight");
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [name, file] : map.items()) {
    check(file.is_string(), index, ": the file of \"", name, "\" is no text");
    const auto text = file.get<std::string>();
    check(!text.empty() && text != "." && text != ".." &&
              text.find_first_of(std::string_view("/\0", 2)) == std::string::npos,
          index, ": ", file.dump(), " is no name of a file in the folder");
    files[text].insert(name);
  }
  std::map<std::string, Tensor> all;
  for (const auto& [file, names] : files) {
    TensorFile shard = load_safetensors(folder / file);
    for (const std::string& name : names)
      check(shard.tensors.contains(name), folder / file, " has no \"", name, "\", which ", index.filename(),
            " says it holds");
    for (auto& [name, tensor] : shard.tensors)
      check(all.emplace(name, std::move(tensor)).second, folder / file, ": \"", name,
            "\" stands in another file, too");
  }
  return all;
}

std::map<std::string, Tensor> read_published_weights(const fs::path& folder) {
  const fs::path whole = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (path_exists(whole)) return load_safetensors(whole).tensors;
  if (path_exists(index)) return read_shards(folder, index);
  check(!path_exists(folder / "pytorch_model.bin"), folder,
        " has its weights in pytorch_model.bin alone, which is a program as much as data. Make a file of "
        "weights of it: "
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
    model.remarks.push_back(concat_text(
        "left out: ", made.without_id.size(), " pieces of ", file.filename().string(),
        " that have no number in vocab.json, the first of them \"", made.without_id.front(), '"'));
  return std::move(made.json);
}

/// A model of SentencePiece for each language, and one list of numbers for both.
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

}  // namespace

PublishedModel read_published(const fs::path& folder) {
  std::error_code unreadable;
  check(fs::is_directory(folder, unreadable), folder,
        " is no folder: a published model is one, with config.json, "
        "model.safetensors and tokenizer.json");
  check(path_exists(folder / "config.json"), "there is no model in ", folder, ": it has no config.json");
  PublishedModel model;
  model.config = read_file(folder / "config.json", most_text_of_published);
  model.tensors = read_published_weights(folder);
  read_tokenizers(folder, model);
  return model;
}

void write_published(const fs::path& path, const PublishedModel& model, StoredFloat stored) {
  fill_new_folder(path, [&](const fs::path& folder) {
    for (const auto& [name, text] : model.more_files) write_file_atomically(folder / name, text);
    write_file_atomically(folder / "tokenizer.json", model.tokenizer);
    if (!model.target_tokenizer.empty())
      write_file_atomically(folder / "target_tokenizer.json", model.target_tokenizer);
    save_safetensors(folder / "model.safetensors", {model.tensors, {{"format", "pt"}}}, stored);
    write_file_atomically(folder / "config.json", model.config);
  });
}

}  // namespace heed
