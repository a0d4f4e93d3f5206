#include "heed/autograd/graph.h"

#include <algorithm>
#include <atomic>
#include <queue>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {

namespace {

std::atomic<std::uint64_t> next_id{1};

struct SmallerId {
  bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
    return a->id < b->id;
  }
};

/// The nodes that are still to run, newest first. When an error ends the walk, their collected gradients
/// are dropped, so that the next walk does not pick them up.
class PendingNodes {
 public:
  PendingNodes& operator=(PendingNodes&&) = delete;
  ~PendingNodes() {
    for (; !queue_.empty(); queue_.pop()) queue_.top()->gradient = {};
  }
  bool empty() const { return queue_.empty(); }
  void push(const std::shared_ptr<Node>& node) { queue_.push(node); }
  std::shared_ptr<Node> pop() {
    std::shared_ptr<Node> node = queue_.top();
    queue_.pop();
    return node;
  }

 private:
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, SmallerId> queue_;
};

bool is_leaf(const Node& node) {
  return node.inputs.empty() && !node.backward;
}

/// The gradient as a leaf keeps it: contiguous, as optimizers expect, and shared with no other leaf and no
/// caller of backward().
Tensor own_gradient(const Tensor& grad) {
  if (grad.is_sole_owner() && grad.is_contiguous()) return grad.detach();
  const Tensor copy = empty_like(grad);
  backend_of(grad).copy(grad.detach(), copy);
  return copy;
}

/// Adds `grad` to the node's gradient, in place when nothing else uses that memory.
void accumulate(Node& node, const Tensor& grad, const char* from) {
  check(grad.shape() == node.shape && grad.dtype() == node.dtype, from,
        ": backward gave a gradient of shape ", grad.shape(), " and type ", grad.dtype(),
        " for a tensor of shape ", node.shape, " and type ", node.dtype);
  if (!node.gradient.defined())
    node.gradient = is_leaf(node) ? own_gradient(grad) : grad.detach();
  else if (node.gradient.is_sole_owner() && node.gradient.is_contiguous())
    backend_of(grad).binary(BinaryOp::add, node.gradient, grad, node.gradient);
  else
    node.gradient = add(node.gradient, grad);
}

/// True when a tensor that the node's backward reads was overwritten after the op ran.
bool was_overwritten(const Node& node) {
  return std::any_of(node.reads.begin(), node.reads.end(), [](const Node::Read& read) {
    const std::shared_ptr<const Storage> memory = read.memory.lock();
    return memory && memory->version() != read.version;
  });
}

std::shared_ptr<Node> make_node(const char* op, const Tensor& out) {
  auto node = std::make_shared<Node>();
  node->id = next_id.fetch_add(1, std::memory_order_relaxed);
  node->op = op;
  node->shape = out.shape();
  node->dtype = out.dtype();
  return node;
}

}  // namespace

Node::~Node() {
  std::vector<std::shared_ptr<Node>> pending = std::move(inputs);
  while (!pending.empty()) {
    const std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    if (!node || node.use_count() > 1) continue;
    std::move(node->inputs.begin(), node->inputs.end(), std::back_inserter(pending));
    node->inputs.clear();
  }
}

std::vector<Shape> GradientWatch::left() const {
  std::vector<Shape> shapes;
  std::vector<const Node*> seen;
  for (const std::weak_ptr<Node>& one : reached_) {
    const std::shared_ptr<Node> leaf = one.lock();
    if (!leaf || !leaf->gradient.defined() || std::ranges::find(seen, leaf.get()) != seen.end()) continue;
    seen.push_back(leaf.get());
    shapes.push_back(leaf->shape);
  }
  return shapes;
}

bool is_leaf(const Tensor& tensor) {
  return tensor.tracked() && is_leaf(*tensor.node());
}

bool would_record(std::span<const Tensor> inputs) {
  if (recording()) return std::ranges::any_of(inputs, &Tensor::tracked);
  if (NotedLeaves* noted = current_scope.noted_leaves)
    for (const Tensor& input : inputs)
      if (is_leaf(input) &&
          std::ranges::find(noted->leaves, input.storage(), &Tensor::storage) == noted->leaves.end())
        noted->leaves.push_back(input.detach());
  return false;
}

Tensor record_always(const char* op, const Tensor& out, std::span<const Tensor> inputs,
                     BackwardFunction backward, std::span<const Tensor* const> reads) {
  std::shared_ptr<Node> node = make_node(op, out);
  for (const Tensor& input : inputs) node->inputs.push_back(input.node());
  node->backward = std::move(backward);
  node->reads.reserve(reads.size());
  for (const Tensor* read : reads)
    if (read->defined()) node->reads.push_back({read->storage(), read->storage()->version()});
  return out.with_node(std::move(node));
}

Tensor record(const char* op, const Tensor& out, std::span<const Tensor> inputs, BackwardFunction backward,
              std::span<const Tensor* const> reads) {
  return would_record(inputs) ? record_always(op, out, inputs, std::move(backward), reads) : out.detach();
}

Tensor record(const char* op, const Tensor& out, std::initializer_list<Tensor> inputs,
              BackwardFunction backward, std::initializer_list<const Tensor*> reads) {
  return record(op, out, std::span(inputs.begin(), inputs.size()), std::move(backward),
                std::span(reads.begin(), reads.size()));
}

std::vector<Tensor> record_joint(const char* op, std::span<const Tensor> outs, std::span<const Tensor> inputs,
                                 JointBackward backward, std::span<const Tensor* const> reads) {
  std::vector<Tensor> results;
  if (!would_record(inputs)) {
    for (const Tensor& out : outs) results.push_back(out.detach());
    return results;
  }
  const auto arrived = std::make_shared<std::vector<Tensor>>(outs.size());
  // The joint node's own gradient only signals that the gradient of an output has arrived.
  const Tensor sign = Tensor::empty({0}, DType::f32);
  const Tensor joint = record_always(
      op, sign, inputs,
      [arrived, backward = std::move(backward)](const Tensor&) {
        return backward(std::exchange(*arrived, {}));
      },
      reads);
  // The closure holds a plain pointer to the joint node, which the output's node owns as its input. A
  // second owner would keep ~Node from unlinking it without recursion.
  for (std::size_t i = 0; i < outs.size(); ++i)
    results.push_back(
        record_always(op, outs[i], std::span(&joint, 1),
                      [arrived, sign, i, count = outs.size(), node = joint.node().get()](const Tensor& grad) {
                        const bool first = !node->gradient.defined();
                        if (first) arrived->assign(count, Tensor());  // also drops the rest of a failed walk
                        (*arrived)[i] = grad;
                        return Gradients{first ? sign : Tensor()};
                      }));
  return results;
}

Tensor parameter(const Tensor& tensor) {
  check(tensor.defined(), "parameter: needs a tensor, and this one is empty");
  check(is_floating(tensor.dtype()), "parameter: needs a floating-point tensor, got ", tensor.dtype());
  return tensor.with_node(make_node("leaf", tensor));
}

Tensor gradient(const Tensor& leaf) {
  check(is_leaf(leaf), "gradient: the tensor is not a leaf made by parameter()");
  return leaf.node()->gradient;
}

void zero_gradient(const Tensor& leaf) {
  check(is_leaf(leaf), "zero_gradient: the tensor is not a leaf made by parameter()");
  leaf.node()->gradient = {};
}

void backward(const Tensor& output, const Tensor& start) {
  check(output.defined(), "backward: the output is undefined");
  check(output.tracked(), "backward: the output does not depend on any parameter",
        recording() ? "" : ", because recording is off on this thread (NoGrad)");
  check(start.defined() || output.count() == 1, "backward: an output of shape ", output.shape(),
        " needs a gradient to start from, since it does not have exactly one element");
  const NoGrad no_recording;
  accumulate(*output.node(),
             start.defined() ? start : Tensor::ones(output.shape(), output.dtype(), output.device()),
             "backward");

  const auto note = [](const std::shared_ptr<Node>& leaf) {
    for (GradientWatch* watch = current_scope.gradient_watch; watch; watch = watch->before())
      watch->reached_.push_back(leaf);
  };
  PendingNodes pending;
  if (is_leaf(*output.node()))
    note(output.node());
  else
    pending.push(output.node());
  while (!pending.empty()) {
    const std::shared_ptr<Node> node = pending.pop();
    if (!node->backward) {
      node->gradient = {};
      fail("backward: the graph through ", node->op,
           " was already walked and its saved tensors are freed; compute the output again");
    }
    if (was_overwritten(*node)) {
      node->gradient = {};
      fail(
          "backward: a tensor that the gradient of ", node->op,
          " reads was overwritten after the op ran (by Tensor::assign or an optimizer step), so the gradient "
          "would be wrong; compute the output again");
    }
    Gradients gradients;
    {
      const BackwardFunction function = std::exchange(node->backward, nullptr);
      // The only handle to the gradient, so that backward may overwrite it.
      const Tensor grad = std::exchange(node->gradient, {});
      gradients = function(grad);
    }
    check(gradients.size() == node->inputs.size(), node->op, ": backward gave ", gradients.size(),
          " gradients for ", node->inputs.size(), " inputs");
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::shared_ptr<Node>& input = node->inputs[i];
      if (!input || !gradients[i].defined()) continue;
      const bool first = !input->gradient.defined();
      const Tensor grad = std::exchange(gradients[i], {});
      accumulate(*input, grad, node->op);
      if (is_leaf(*input))
        note(input);
      else if (first)
        pending.push(input);
    }
  }
}

Tensor recompute_in_backward(std::function<Tensor(std::span<const Tensor>, Random&)> segment,
                             std::vector<Tensor> inputs, Random& random) {
  check(segment != nullptr, "recompute_in_backward: there is no segment");
  if (!recording()) return segment(inputs, random);
  const Random at_start = random;
  Tensor out;
  std::vector<Tensor> captured;  // the leaves that the segment reads
  {
    const NoGrad forget;
    NotedLeaves read;
    out = segment(inputs, random).detach();
    captured = std::move(read.leaves);
  }
  std::vector<Tensor> saved;
  std::vector<bool> wanted;
  for (const Tensor& input : inputs) {
    saved.push_back(input.detach());
    wanted.push_back(input.tracked());
  }
  std::vector<const Tensor*> reads;
  for (const std::vector<Tensor>* all : {&saved, &captured})
    for (const Tensor& read : *all) reads.push_back(&read);
  return record_always(
      "recompute_in_backward", out, inputs,
      [segment = std::move(segment), saved, wanted, at_start](const Tensor& grad) {
        std::vector<Tensor> again = saved;
        for (std::size_t i = 0; i < again.size(); ++i)
          if (wanted[i]) again[i] = parameter(saved[i]);
        Random same_numbers = at_start;
        Tensor output;
        {
          const RecordingScope remember(true);
          output = segment(again, same_numbers);
        }
        if (output.tracked()) backward(output, grad);
        Gradients gradients(again.size());
        for (std::size_t i = 0; i < again.size(); ++i)
          if (wanted[i]) gradients[i] = gradient(again[i]);
        return gradients;
      },
      reads);
}

}  // namespace heed
