#include "heed/training/gradient_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/core/backend.h"
#include "heed/text/safetensors.h"
#include "heed/training/checkpoint.h"
#include "heed/training/progress.h"

namespace heed {
namespace {

/// The size of a bucket; a larger parameter gets a bucket of its own.
constexpr std::size_t bucket_bytes = std::size_t{32} << 20;

using Bytes = std::vector<std::byte>;

std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype());
}

template <class T>
void append_as(Bytes& bytes, const Tensor& tensor) {
  const auto add = [&](std::span<const T> values) {
    const auto raw = std::as_bytes(values);
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  };
  if (tensor.storage()->host_data() && tensor.is_contiguous())
    add({tensor.data<T>(), static_cast<std::size_t>(tensor.count())});
  else
    add(tensor.to_vector<T>());
}

void append(Bytes& bytes, const Tensor& tensor) {
  tensor.dtype() == DType::f64 ? append_as<double>(bytes, tensor) : append_as<float>(bytes, tensor);
}

template <class T>
std::vector<T> as_element_vector(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Removes the elements of a tensor like `like` from the front of the bytes, and returns them.
std::span<const std::byte> take(std::span<const std::byte>& bytes, const Tensor& like) {
  const std::span<const std::byte> front = bytes.first(bytes_of(like));
  bytes = bytes.subspan(front.size());
  return front;
}

Tensor tensor_of(std::span<const std::byte> bytes, const Tensor& like) {
  return like.dtype() == DType::f64
             ? Tensor::from(as_element_vector<double>(bytes), like.shape(), like.device())
             : Tensor::from(as_element_vector<float>(bytes), like.shape(), like.device());
}

void assign(const Tensor& tensor, std::span<const std::byte> bytes) {
  if (tensor.dtype() == DType::f64)
    tensor.assign<double>(as_element_vector<double>(bytes));
  else
    tensor.assign<float>(as_element_vector<float>(bytes));
}

/// The messages that ranks send each other in one exchange.
struct Mail {
  explicit Mail(int count) : out(static_cast<std::size_t>(count)), in(static_cast<std::size_t>(count)) {}

  void deliver(Ranks& ranks) {
    ranks.exchange(std::vector<std::span<const std::byte>>(out.begin(), out.end()),
                   std::vector<std::span<std::byte>>(in.begin(), in.end()));
  }
  /// Sends the same bytes to all ranks.
  void deliver(Ranks& ranks, std::span<const std::byte> same) {
    ranks.exchange(std::vector<std::span<const std::byte>>(out.size(), same),
                   std::vector<std::span<std::byte>>(in.begin(), in.end()));
  }
  std::vector<Bytes> out, in;
};

/// Names the parts of a message in order, such as "term.3".
std::string numbered(const char* name, std::size_t i) {
  return concat_text(name, '.', i);
}

const std::string& text_in(const TensorFile& message, const std::string& name) {
  const auto found = message.metadata.find(name);
  if (found == message.metadata.end()) throw RankLost("ranks: a message has no \"" + name + "\"");
  return found->second;
}

/// Encodes a batch as a message: losses and observations as tensors, the rest as text.
std::string pack_message(const BatchOutcome& outcome, const std::string& present) {
  TensorFile message;
  message.metadata = {{"count", std::to_string(outcome.count)}, {"present", present}};
  for (std::size_t i = 0; i < outcome.terms.size(); ++i) {
    message.metadata[numbered("term", i)] = outcome.terms[i].name;
    message.tensors[numbered("term", i)] = outcome.terms[i].sum;
  }
  for (std::size_t i = 0; i < outcome.observations.size(); ++i) {
    const std::string name = numbered("observation", i);
    message.metadata[name] = outcome.observations[i].layer->path();
    for (std::size_t j = 0; j < outcome.observations[i].values.size(); ++j)
      message.tensors[numbered(name.c_str(), j)] = outcome.observations[i].values[j];
  }
  return safetensors_text(message);
}

/// Whether a rank's batch has a gradient for parameter i; `present` comes from gather_outcomes().
bool has_gradient(const std::string& present, std::size_t i) {
  return !present.empty() && present[i] == '1';
}

BatchOutcome unpack_outcome(const TensorFile& message, Module& model) {
  BatchOutcome outcome;
  outcome.count = std::stoll(text_in(message, "count"));
  for (std::size_t i = 0; message.metadata.contains(numbered("term", i)); ++i)
    outcome.terms.push_back({text_in(message, numbered("term", i)), message.tensors.at(numbered("term", i))});
  for (std::size_t i = 0; message.metadata.contains(numbered("observation", i)); ++i) {
    const std::string name = numbered("observation", i), &path = text_in(message, name);
    Observation& one = outcome.observations.emplace_back(Observation{model.find(path), {}});
    if (!one.layer) throw RankLost("ranks: another rank has a layer \"" + path + "\", which this one lacks");
    for (std::size_t j = 0; message.tensors.contains(numbered(name.c_str(), j)); ++j)
      one.values.push_back(message.tensors.at(numbered(name.c_str(), j)));
  }
  return outcome;
}

}  // namespace

GradientExchange::GradientExchange(Module& model, std::vector<NamedTensor> parameters, Ranks& ranks)
    : model_(model),
      parameters_(std::move(parameters)),
      ranks_(ranks),
      owner_(parameters_.size(), 0),
      sum_(parameters_),
      touched_(parameters_.size(), false) {
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](auto a, auto b) { return parameter(a).count() > parameter(b).count(); });
  std::vector<std::int64_t> load(static_cast<std::size_t>(count()), 0);
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    owner_[i] = static_cast<int>(least - load.begin());
    *least += parameter(i).count();
  }
  std::size_t bytes = bucket_bytes;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::size_t more = bytes_of(parameter(i));
    if (bytes + more > bucket_bytes) {
      buckets_.emplace_back(i, i);
      bytes = 0;
    }
    buckets_.back().second = i + 1;
    bytes += more;
  }
}

std::vector<bool> GradientExchange::owned() const {
  std::vector<bool> mine;
  for (std::size_t i = 0; i < owner_.size(); ++i) mine.push_back(owns(i));
  return mine;
}

/// Parameters that travel together, and the messages that carry their gradients.
struct GradientExchange::Bucket {
  std::size_t first, last;
  Mail mail;
};

/// One batch from each rank, added together.
struct GradientExchange::Round {
  std::vector<Tensor> gradients;     // gradients of this rank's batch
  std::vector<std::string> present;  // per rank: which parameters have a gradient in its batch
  std::vector<std::shared_ptr<Bucket>> buckets;
};

GradientExchange::~GradientExchange() = default;

std::vector<BatchOutcome> GradientExchange::add(std::optional<BatchOutcome> own, bool more) {
  Round round;
  round.gradients = own ? sum_.take() : std::vector<Tensor>(parameters_.size());
  std::vector<BatchOutcome> outcomes;
  add_arrived();
  round.present = gather_outcomes(std::move(own), round.gradients, outcomes);
  if (!more) {  // one bucket at a time takes the least memory
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const std::shared_ptr<Bucket> bucket = pack(i, round);
      bucket->mail.deliver(ranks_);
      unpack(*bucket, round);
    }
    return outcomes;
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) round.buckets.push_back(pack(i, round));
  travelling_ = std::make_unique<Round>(std::move(round));
  ranks_.start([ranks = &ranks_, buckets = travelling_->buckets] {
    for (const std::shared_ptr<Bucket>& bucket : buckets) bucket->mail.deliver(*ranks);
  });
  return outcomes;
}

/// Adds the gradients that travelled while the last batch was computed.
void GradientExchange::add_arrived() {
  if (!travelling_) return;
  ranks_.finish();
  const std::unique_ptr<Round> round = std::move(travelling_);
  for (const std::shared_ptr<Bucket>& bucket : round->buckets) unpack(*bucket, *round);
}

/// Returns, for each rank, which parameters have a gradient in its batch, as '0' and '1'; "": no batch.
std::vector<std::string> GradientExchange::gather_outcomes(std::optional<BatchOutcome> own,
                                                           const std::vector<Tensor>& gradients,
                                                           std::vector<BatchOutcome>& outcomes) {
  std::string mine;
  for (const Tensor& gradient : gradients) mine += gradient.defined() ? '1' : '0';
  const std::vector<std::string> messages = ranks_.all_gather(own ? pack_message(*own, mine) : std::string());
  std::vector<std::string> present(messages.size());
  for (std::size_t r = 0; r < messages.size(); ++r) {
    if (messages[r].empty()) continue;
    const std::string from = concat_text("the batch of rank ", r);
    const TensorFile message = parse_safetensors(messages[r], from, parameter(0).device());
    present[r] = text_in(message, "present");
    if (present[r].size() != parameters_.size()) throw RankLost("ranks: " + from + " is of another model");
    for (std::size_t i = 0; i < touched_.size(); ++i) touched_[i] = touched_[i] || present[r][i] == '1';
    BatchOutcome& outcome = outcomes.emplace_back();
    if (static_cast<int>(r) == rank())
      std::swap(outcome, *own);
    else
      outcome = unpack_outcome(message, model_);
  }
  return present;
}

/// Packs the bucket's gradients that other ranks own, and makes room for those this rank will receive.
std::shared_ptr<GradientExchange::Bucket> GradientExchange::pack(std::size_t bucket, Round& round) {
  const auto self = static_cast<std::size_t>(rank());
  const auto packed =
      std::make_shared<Bucket>(Bucket{buckets_[bucket].first, buckets_[bucket].second, Mail(count())});
  for (std::size_t i = packed->first; i < packed->last; ++i) {
    const auto owner = static_cast<std::size_t>(owner_[i]);
    if (owner != self) {
      if (const Tensor gradient = std::exchange(round.gradients[i], {}); gradient.defined())
        append(packed->mail.out[owner], gradient);
      continue;
    }
    for (std::size_t r = 0; r < packed->mail.in.size(); ++r)
      if (r != self && has_gradient(round.present[r], i))
        packed->mail.in[r].resize(packed->mail.in[r].size() + bytes_of(parameter(i)));
  }
  return packed;
}

/// Adds the gradients of a bucket that this rank owns, in batch order.
void GradientExchange::unpack(const Bucket& bucket, Round& round) {
  std::vector<std::span<const std::byte>> arrived(bucket.mail.in.begin(), bucket.mail.in.end());
  const auto self = static_cast<std::size_t>(rank());
  for (std::size_t i = bucket.first; i < bucket.last; ++i)
    for (std::size_t r = 0; owns(i) && r < arrived.size(); ++r)
      if (has_gradient(round.present[r], i))
        sum_.add(i, r == self ? std::exchange(round.gradients[i], {})
                              : tensor_of(take(arrived[r], parameter(i)), parameter(i)));
}

void GradientExchange::finish() {
  add_arrived();
  sum_.finish();
}

GradientNorm GradientExchange::norm(double divisor) {
  std::vector<NamedTensor> mine;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (owns(i) && touched_[i]) mine.push_back(parameters_[i]);
  std::vector<double> own;
  if (!mine.empty()) own = GradientNorm(mine, divisor).squares().to_doubles();
  const std::vector<std::string> all =
      ranks_.all_gather({reinterpret_cast<const char*>(own.data()), own.size() * sizeof(double)});
  std::vector<std::size_t> next(all.size(), 0);
  std::vector<std::string> names;
  std::vector<double> squares;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!touched_[i]) continue;
    const auto owner = static_cast<std::size_t>(owner_[i]);
    double square = 0;
    if (all[owner].size() < next[owner] + sizeof square)
      throw RankLost(concat_text("ranks: rank ", owner, " has not measured all its gradients"));
    std::memcpy(&square, all[owner].data() + next[owner], sizeof square);
    next[owner] += sizeof square;
    names.push_back(parameters_[i].name);
    squares.push_back(square);
  }
  return GradientNorm(std::move(names), squares, parameter(0).device(), divisor);
}

void GradientExchange::share_weights() {
  for (const auto& [first, last] : buckets_) {
    Bytes own;
    Mail mail(count());
    for (std::size_t i = first; i < last; ++i) {
      if (!touched_[i]) continue;
      if (owns(i))
        append(own, parameter(i).detach());
      else
        mail.in[static_cast<std::size_t>(owner_[i])].resize(
            mail.in[static_cast<std::size_t>(owner_[i])].size() + bytes_of(parameter(i)));
    }
    mail.deliver(ranks_, own);
    std::vector<std::span<const std::byte>> arrived(mail.in.begin(), mail.in.end());
    for (std::size_t i = first; i < last; ++i)
      if (touched_[i] && !owns(i))
        assign(parameter(i).detach(), take(arrived[static_cast<std::size_t>(owner_[i])], parameter(i)));
  }
  touched_.assign(touched_.size(), false);
}

bool GradientExchange::any(bool mine) {
  return std::ranges::any_of(ranks_.all_gather(mine ? "1" : "0"),
                             [](const std::string& one) { return one == "1"; });
}

Evaluation GradientExchange::broadcast(Evaluation evaluation) {
  TensorFile message;
  std::vector<double> values;
  for (const Metric& metric : evaluation.metrics) {
    message.metadata[numbered("metric", values.size())] = metric.name;
    message.metadata[numbered("larger", values.size())] = metric.larger_is_better ? "1" : "0";
    values.push_back(metric.value);
  }
  message.metadata["keep_best_by"] = evaluation.keep_best_by;
  if (!values.empty())
    message.tensors["values"] = Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  const std::string text = ranks_.broadcast(is_first() ? safetensors_text(message) : std::string());
  if (is_first()) return evaluation;
  message = parse_safetensors(text, "the evaluation of rank 0");
  evaluation = {};
  evaluation.keep_best_by = text_in(message, "keep_best_by");
  if (message.tensors.empty()) return evaluation;
  for (const double value : message.tensors.at("values").to_doubles()) {
    const std::size_t i = evaluation.metrics.size();
    evaluation.metrics.push_back(
        {text_in(message, numbered("metric", i)), value, text_in(message, numbered("larger", i)) == "1"});
  }
  return evaluation;
}

std::map<std::string, Tensor> GradientExchange::broadcast(const std::map<std::string, Tensor>& tensors) {
  const std::string text = ranks_.broadcast(is_first() ? safetensors_text({tensors, {}}) : std::string());
  return is_first() ? tensors : parse_safetensors(text, "what rank 0 has").tensors;
}

void GradientExchange::broadcast_model() {
  const std::map<std::string, Tensor> state = broadcast(model_state(model_));
  if (!is_first()) load_model_state(model_, state, "the model of rank 0");
}

int GradientExchange::gradient_owner(const std::string& name) const {
  const std::string parameter = name.substr(std::min(name.find('.'), name.size() - 1) + 1);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].name == parameter) return owner_[i];
  return -1;
}

std::map<std::string, Tensor> GradientExchange::gather(std::map<std::string, Tensor> mine) {
  std::vector<std::string_view> out(static_cast<std::size_t>(count()));
  const std::string text = is_first() ? std::string() : safetensors_text({mine, {}});
  out[0] = text;
  for (const std::string& message : ranks_.exchange_texts(out))
    if (!message.empty()) mine.merge(parse_safetensors(message, "what another rank owns").tensors);
  return mine;
}

std::map<std::string, Tensor> GradientExchange::deal(const std::map<std::string, Tensor>& all) {
  std::vector<std::string> texts(static_cast<std::size_t>(count()));
  for (int r = 0; is_first() && r < count(); ++r) {
    TensorFile message;
    for (const auto& [name, tensor] : all)
      if (const int owner = gradient_owner(name); owner == r || owner < 0) message.tensors[name] = tensor;
    texts[static_cast<std::size_t>(r)] = safetensors_text(message);
  }
  const std::string mine =
      ranks_.exchange_texts({std::vector<std::string_view>(texts.begin(), texts.end())})[0];
  return parse_safetensors(mine, "what this rank owns").tensors;
}

}  // namespace heed
