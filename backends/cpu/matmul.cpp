#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "heed/backends/cpu/blas.h"
#include "heed/backends/cpu/gemm.h"
#include "heed/backends/cpu/operands.h"
#include "heed/base/error.h"
#include "heed/core/low_precision.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

// Matrix products. C is cut into a grid of tiles that depends only on the shape, and each tile is
// computed by one thread, so the result has the same bits for any number of threads.

namespace heed::cpu {

// --- how a product is cut ---
//
// Each tile copies ("packs") its part of the operands, so small tiles cost more than large ones; but the
// fewer the tiles, the longer idle threads wait for the last one. The chosen grid minimises the sum of both.
// The right operand can be packed once for all tiles, before they begin.

// Nanoseconds on one thread.
constexpr double per_sum = 0.7;  // a sum: adding one element of C to that of another part
// To pack an element. An operand that fits into the second-level cache is cheap to read again,
// unless its rows are far apart.
constexpr double per_cached = 0.1, per_element = 0.5;
constexpr std::int64_t cached = 1 << 18, short_sum = 1024;
// The cost of waiting, as if a product took this many tiles longer.
constexpr double tiles_waited = 2;
// Packing in advance costs another loop of the pool. It packs at most this many elements, so that
// they stay in a third-level cache, unless a single step of own_gemm has more.
constexpr double packing_loop = 5e3;
constexpr std::int64_t most_packed = 1 << 20, most_packed_columns = 8192;

constexpr double smallest_tile = 12e3;  // nanoseconds
constexpr double smallest_task = 6e3;   // made of several small products
constexpr double smallest_vector =
    128e3;  // flops of a product with a vector: reads a quarter of a megabyte of the matrix
constexpr std::int64_t vector_tasks = 32, few_tasks = 4;
constexpr std::int64_t shortest_side = 64, shortest_part = 256;
constexpr std::int64_t most_pieces = 256;  // of an axis

/// The extent of a piece, a multiple of `unit` if there are several.
static std::int64_t piece_extent(std::int64_t extent, std::int64_t count, std::int64_t unit = 32) {
  return count == 1 ? extent : std::min(extent, ceil_div(ceil_div(extent, count), unit) * unit);
}

static double product(std::int64_t a, std::int64_t b, std::int64_t c = 1) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

static double packing(std::int64_t extent, std::int64_t k, std::int64_t times) {
  return product(extent, k, times) * (extent * k <= cached && k < short_sum ? per_cached : per_element);
}

MatmulPlan::MatmulPlan(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, bool may_pack,
                       double per_flop)
    : tile_rows(m), tile_columns(n), part_depth(k), batch(batch), m(m), n(n), k(k), per_flop(per_flop) {
  const bool packs = may_pack && batch == 1 && k > 0 && n <= most_packed_columns;
  std::min(m, n) < 8
      ? cut_vector()
      : cut_matrix(packs ? std::max<std::int64_t>(1, most_packed / n / depth_at_once) * depth_at_once : 0);
  const double tile = per_flop * std::max(1.0, 2 * product(tile_rows, tile_columns, part_depth));
  tiles_at_once = std::max<std::int64_t>(1, static_cast<std::int64_t>(smallest_task / tile));
}

void MatmulPlan::set(std::int64_t height, std::int64_t width, std::int64_t depth) {
  tile_rows = height, tile_columns = width, part_depth = depth;
  rows = ceil_div(m, height), columns = ceil_div(n, width), parts = k > 0 ? ceil_div(k, depth) : 1;
}

std::int64_t MatmulPlan::tiles() const {
  return batch * rows * columns * parts;
}

std::int64_t MatmulPlan::tasks() const {
  return ceil_div(tiles(), tiles_at_once);
}

double MatmulPlan::cost() const {
  // Tiles that share the right operand are multiplied in blocks of the left one, which are copied fast.
  const double copies = slice_depth > 0
                            ? packing(n, k, 1) + packing_loop + per_cached * product(m, k, columns)
                            : packing(n, k, rows) + packing(m, k, columns);
  const double one = per_flop * 2 * product(m, n, k) + copies + per_sum * product(m, n, parts - 1);
  return one * static_cast<double>(batch) + tiles_waited * one / product(rows, columns, parts);
}

/// Tries axes whole, halved, quartered, and so on; without and with packing in slices of so many rows.
void MatmulPlan::cut_matrix(std::int64_t slice) {
  MatmulPlan best = *this;
  double least = cost();
  const auto try_grid = [&](std::int64_t height, std::int64_t width, std::int64_t depth) {
    set(height, width, depth);
    for (const std::int64_t packed : {std::int64_t{0}, slice}) {
      // Parts are not cut again: they are packed together, since C and so n are small where they pay.
      if (parts > 1 && packed > 0 && n * k > 2 * most_packed) continue;
      slice_depth = parts > 1 && packed > 0 ? ceil_div(k, depth_at_once) * depth_at_once : packed;
      if (const double now = cost(); now < least) least = now, best = *this;
    }
  };
  for (std::int64_t across = 1, width = n; across <= most_pieces; across *= 2) {
    width = piece_extent(n, across);
    if (across > 1 && width < shortest_side) break;
    for (std::int64_t down = 1, height = m; down <= most_pieces; down *= 2) {
      height = piece_extent(m, down);
      if (down > 1 && height < shortest_side) break;
      for (std::int64_t deep = 1; deep <= most_pieces; deep *= 2) {
        const std::int64_t depth = piece_extent(k, deep, depth_at_once);
        if (deep > 1 && depth < shortest_part) break;
        if (per_flop * 2 * product(height, width, depth) < smallest_tile) break;
        try_grid(height, width, depth);
      }
    }
  }
  *this = best;
}

/// For a product with one or a few vectors: cuts the longer side, and a long sum if that gives too few tasks.
void MatmulPlan::cut_vector() {
  const double worth = 2 * static_cast<double>(batch) * product(m, n, k) / smallest_vector;
  const auto wanted = static_cast<std::int64_t>(std::min(static_cast<double>(vector_tasks), worth));
  const auto cut = [&](std::int64_t extent, std::int64_t shortest) {
    const std::int64_t most = std::max<std::int64_t>(1, extent / shortest);
    return piece_extent(extent, std::clamp<std::int64_t>(wanted / tiles(), 1, most));
  };
  m > n ? set(cut(m, shortest_side), n, k) : set(m, cut(n, shortest_side), k);
  if (tiles() < few_tasks && k > 0) set(tile_rows, tile_columns, cut(k, 4 * shortest_part));
}

// --- the products ---

namespace {

/// One matrix of a batch as BLAS sees it.
struct MatrixLayout {
  bool transposed;
  std::int64_t leading;  // stride between stored rows

  /// `rows` x `columns` are the extents of the last two axes, whose strides are (s, 1) or (1, s).
  MatrixLayout(const Tensor& tensor, std::int64_t rows, std::int64_t columns) {
    transposed = !is_stored_by_rows(tensor);
    if (transposed)
      leading = columns > 1 ? tensor.stride(-1) : rows;
    else
      leading = rows > 1 ? tensor.stride(-2) : columns;
    leading = std::max<std::int64_t>({leading, 1, transposed ? rows : columns});
  }

  std::int64_t row_stride() const { return transposed ? 1 : leading; }
  std::int64_t column_stride() const { return transposed ? leading : 1; }
};

/// Offset of the index-th matrix of a batch.
std::int64_t batch_offset(const Tensor& tensor, std::int64_t index) {
  std::int64_t offset = 0;
  for (int axis = tensor.rank() - 3; axis >= 0; --axis) {
    offset += index % tensor.size(axis) * tensor.stride(axis);
    index /= tensor.size(axis);
  }
  return offset;
}

/// Up to this many rows are multiplied one by one with a matrix stored by columns, such as
/// the weights of a linear map.
constexpr std::int64_t unpacked_rows = 6;

/// The operands of one BLAS call.
template <class T>
struct Product {
  MatrixLayout a_layout, b_layout;
  const NarrowRows* narrow = nullptr;  // values of b, which is their transpose, in fewer bits
  const T* b_begin = nullptr;          // where those values begin in f32

  /// c = a b + beta c for a height x width tile and sums of `depth` terms; rows of c are c_leading apart.
  void operator()(std::int64_t height, std::int64_t width, std::int64_t depth, const T* a, const T* b, T beta,
                  T* c, std::int64_t c_leading) const {
    if (depth == 0) {
      if (beta == 0)
        for (std::int64_t row = 0; row < height; ++row) std::fill_n(c + row * c_leading, width, T(0));
    } else if (height <= unpacked_rows && b_layout.transposed && a_layout.column_stride() == 1) {
      // Nothing is packed: the weights are read once for all rows of `a`.
      const FewRows<T> few{a, a_layout.row_stride(), height, width, depth, T(1), beta != 0, c, c_leading};
      if constexpr (std::is_same_v<T, float>)
        if (narrow) return times_narrow_rows(few, *narrow, b - b_begin);
      row_products<T>().times_transposed(few, b, b_layout.leading);
    } else if (height == 1 && !b_layout.transposed && a_layout.column_stride() == 1) {
      row_products<T>().row_times_matrix(a, b, b_layout.leading, depth, width, beta != 0, c);
    } else {
      gemm<T>(a_layout.transposed, b_layout.transposed, height, width, depth, T(1), a, a_layout.leading, b,
              b_layout.leading, beta, c, c_leading);
    }
  }
};

/// Initialises a tile of C, to which the product is added: bias, plus the old contents if beta is 1.
template <class T>
void start_with_bias(std::int64_t height, std::int64_t width, const T* bias, T beta, T* c,
                     std::int64_t leading) {
  for (std::int64_t row = 0; row < height; ++row, c += leading) {
    if (beta == 0)
      std::copy_n(bias, width, c);
    else
      for (std::int64_t column = 0; column < width; ++column) c[column] += bias[column];
  }
}

/// out = a b + bias + beta out, computed as the tiles of a plan, in any order. If sums have several parts,
/// these are added up afterwards.
template <class T>
class TiledProduct {
 public:
  /// `other` is a product with the same b, which may have packed it already.
  TiledProduct(const Tensor& a, const Tensor& b, const Tensor& bias, T beta, const Tensor& out,
               const TiledProduct* other = nullptr)
      : a_(a),
        b_(b),
        out_(out),
        m_(out.size(-2)),
        n_(out.size(-1)),
        k_(a.size(-1)),
        batch_(out.count() / (m_ * n_)),
        c_leading_(m_ > 1 ? out.stride(-2) : n_),
        product_(operands(a, b, out)),
        bias_(bias.defined() ? bias.data<T>() : nullptr),
        beta_(beta),
        plan_(batch_, m_, n_, k_, may_pack(), kernel().nanoseconds_per_flop) {
    if constexpr (std::is_same_v<T, float>) {
      if (plan_.slice_depth > 0) {
        if (other && other->plan_.slice_depth == plan_.slice_depth) right_ = other->right_;
        packs_ = !right_;
        if (packs_)
          right_ = std::make_shared<PackedMatrix>(kernel(), view(product_.b_layout, b.data<T>()), k_, n_,
                                                  plan_.slice_depth);
      }
    }
    // Holds the sums of all parts of k but the first, [parts - 1, batch, m, n]; they are added in order.
    if (plan_.parts > 1) rest_ = Tensor::empty({plan_.parts - 1, batch_, m_, n_}, out.dtype());
  }

  /// Slices of the right operand: its part of the tiles is computed once a slice is packed.
  std::int64_t slices() const { return right_ ? right_->slices() : 1; }
  std::int64_t packing_tasks(std::int64_t slice) const {
    return packs_ && slice < slices() ? right_->tasks(slice) : 0;
  }
  void pack(std::int64_t slice, std::int64_t task) const { right_->pack(slice, task); }

  std::int64_t tasks(std::int64_t slice) const { return slice < slices() ? plan_.tasks() : 0; }
  /// Computes tiles [task, task + 1) * tiles_at_once.
  void run(std::int64_t slice, std::int64_t task) const {
    const std::int64_t begin = task * plan_.tiles_at_once;
    for (std::int64_t i = begin; i < std::min(begin + plan_.tiles_at_once, plan_.tiles()); ++i)
      tile(slice, i);
  }

  /// The number of tasks that add the parts once all tiles are done.
  std::int64_t adding_tasks() const { return plan_.parts > 1 ? ceil_div(batch_ * m_, rows_at_once()) : 0; }

  void add_parts(std::int64_t task) const {
    const std::int64_t begin = task * rows_at_once(), end = std::min(begin + rows_at_once(), batch_ * m_);
    const T* rest = rest_.template data<T>();
    for (std::int64_t row = begin; row < end; ++row) {
      T* c = out_.template data<T>() + batch_offset(out_, row / m_) + row % m_ * c_leading_;
      for (std::int64_t part = 1; part < plan_.parts; ++part) {
        const T* sums = rest + ((part - 1) * batch_ * m_ + row) * n_;
        for (std::int64_t j = 0; j < n_; ++j) c[j] += sums[j];
      }
    }
  }

 private:
  static bool may_pack() {
    return std::is_same_v<T, float> && (WithMatmulPrecision::is_lower() || own_products());
  }
  static ProductKernel kernel() { return std::is_same_v<T, float> ? product_kernel() : f32_kernel(); }
  static MatrixView view(const MatrixLayout& layout, const float* at) {
    return {at, layout.leading, layout.transposed};
  }
  static Product<T> operands(const Tensor& a, const Tensor& b, const Tensor& out) {
    const std::int64_t m = out.size(-2), n = out.size(-1), k = a.size(-1);
    Product<T> product{MatrixLayout(a, m, k), MatrixLayout(b, k, n)};
    const NarrowRows* rows = NarrowRows::kept(*b.storage());
    if (rows && product.b_layout.transposed && product.b_layout.leading == rows->columns &&
        rows->has_columns_of(b))
      product.narrow = rows, product.b_begin = b.data<T>() - b.offset();
    return product;
  }
  std::int64_t rows_at_once() const { return std::max<std::int64_t>(1, (32 << 10) / (n_ * plan_.parts)); }

  void tile(std::int64_t slice, std::int64_t index) const {
    const std::int64_t part = index % plan_.parts, column = index / plan_.parts % plan_.columns,
                       row = index / (plan_.parts * plan_.columns) % plan_.rows,
                       item = index / (plan_.parts * plan_.columns * plan_.rows);
    const std::int64_t i = row * plan_.tile_rows, j = column * plan_.tile_columns,
                       l = plan_.parts > 1 ? part * plan_.part_depth : slice * plan_.slice_depth;
    const std::int64_t height = std::min(plan_.tile_rows, m_ - i),
                       width = std::min(plan_.tile_columns, n_ - j);
    const T* a_tile = a_.template data<T>() + batch_offset(a_, item) + i * product_.a_layout.row_stride() +
                      l * product_.a_layout.column_stride();
    const T* b_tile = b_.template data<T>() + batch_offset(b_, item) + l * product_.b_layout.row_stride() +
                      j * product_.b_layout.column_stride();
    const std::int64_t depth =
        std::min(plan_.parts == 1 && right_ ? plan_.slice_depth : plan_.part_depth, k_ - l);
    T* const c = part > 0 ? rest_.template data<T>() + (((part - 1) * batch_ + item) * m_ + i) * n_ + j
                          : out_.template data<T>() + batch_offset(out_, item) + i * c_leading_ + j;
    const std::int64_t c_leading = part > 0 ? n_ : c_leading_;
    const T* const bias = part > 0 || slice > 0 ? nullptr : bias_;
    const T beta = slice > 0 ? T(1) : part > 0 ? T(0) : beta_;
    if constexpr (std::is_same_v<T, float>) {
      if (right_) {
        if (bias && beta != 0) start_with_bias(height, width, bias + j, beta, c, c_leading);
        const Base base = beta != 0 ? Base{c, c_leading} : bias ? Base{bias + j, 0} : Base{};
        right_->multiply(view(product_.a_layout, a_tile), l, j, height, width, depth, base, c, c_leading);
        return;
      }
    }
    if (bias) start_with_bias(height, width, bias + j, beta, c, c_leading);
    product_(height, width, depth, a_tile, b_tile, bias ? T(1) : beta, c, c_leading);
  }

  const Tensor &a_, &b_, &out_;
  const std::int64_t m_, n_, k_, batch_, c_leading_;
  const Product<T> product_;
  const T* bias_;
  const T beta_;
  const MatmulPlan plan_;
  Tensor rest_;
  std::shared_ptr<const PackedMatrix> right_;  // of f32, if the plan says so
  bool packs_ = false;                         // here, not in another product
};

template <class T>
void run(const Tensor& a, const Tensor& b, const Tensor& bias, T beta, const Tensor& out) {
  const TiledProduct<T> product(a, b, bias, beta, out);
  for (std::int64_t slice = 0; slice < product.slices(); ++slice) {
    parallel_for(product.packing_tasks(slice), [&](std::int64_t task) { product.pack(slice, task); });
    parallel_for(product.tasks(slice), [&](std::int64_t task) { product.run(slice, task); });
  }
  parallel_for(product.adding_tasks(), [&](std::int64_t task) { product.add_parts(task); });
}

Tensor turned(const Tensor& matrix) {
  return matrix.view({matrix.size(1), matrix.size(0)}, {matrix.stride(1), matrix.stride(0)}, matrix.offset());
}

/// The tasks of several products, in one list.
template <class T>
class TaskList {
  using Product = TiledProduct<T>;
  using Chain = std::span<const Product>;

 public:
  /// Adds products that run one after the other in a task: they have the same plan, and each but the first
  /// adds to the result of the one before.
  void add(Chain chain) {
    chains_.push_back(chain);
    for (std::size_t i = 0; i < chain.size(); ++i) products_.push_back(chain.subspan(i, 1));
  }

  void run() const {
    std::int64_t slices = 0;
    for (const Chain& chain : chains_) slices = std::max(slices, chain[0].slices());
    for (std::int64_t slice = 0; slice < slices; ++slice) {
      loop(
          products_, [&](const Product& product) { return product.packing_tasks(slice); },
          [&](const Product& product, std::int64_t task) { product.pack(slice, task); });
      loop(
          chains_, [&](const Product& product) { return product.tasks(slice); },
          [&](const Product& product, std::int64_t task) { product.run(slice, task); });
    }
    loop(
        chains_, [](const Product& product) { return product.adding_tasks(); },
        [](const Product& product, std::int64_t task) { product.add_parts(task); });
  }

 private:
  /// One loop of the pool over the tasks of all chains: `count` says how many the products of a chain have.
  static void loop(const std::vector<Chain>& chains, auto count, auto body) {
    std::vector<std::int64_t> ends;
    std::int64_t tasks = 0;
    for (const Chain& chain : chains) ends.push_back(tasks += count(chain[0]));
    parallel_for(tasks, [&](std::int64_t task) {
      std::size_t i = 0;
      while (task >= ends[i]) ++i;
      const std::int64_t own = task - (i > 0 ? ends[i - 1] : 0);
      for (const Product& product : chains[i]) body(product, own);
    });
  }

  std::vector<Chain> chains_, products_;  // and each product alone
};

template <class T>
void run_maps(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
              std::span<const Tensor> outs) {
  std::vector<Tensor> across;
  std::vector<TiledProduct<T>> products;
  across.reserve(weights.size()), products.reserve(weights.size());  // products refer to their operands
  for (const Tensor& weight : weights) across.push_back(turned(weight));
  TaskList<T> tasks;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (outs[i].count() == 0) continue;
    products.emplace_back(x, across[i], biases[i], T(0), outs[i]);
    tasks.add(std::span(&products.back(), 1));
  }
  tasks.run();
}

template <class T>
void run_backward(std::span<const Tensor> grads, const Tensor& x, std::span<const Tensor> weights, T beta,
                  const Tensor& dx, std::span<const Tensor> dweights) {
  const std::size_t count = grads.size();
  static const Tensor no_bias;
  std::vector<Tensor> across;
  std::vector<TiledProduct<T>> of_weights, of_x;
  across.reserve(count), of_weights.reserve(count), of_x.reserve(count);
  TaskList<T> tasks;
  for (std::size_t i = 0; i < count; ++i) {
    across.push_back(turned(grads[i]));
    of_weights.emplace_back(across[i], x, no_bias, beta, dweights[i], i > 0 ? &of_weights[0] : nullptr);
    tasks.add(std::span(&of_weights.back(), 1));
    of_x.emplace_back(grads[i], weights[i], no_bias, T(i > 0), dx);
  }
  // Maps of equal width form one chain. Otherwise each is cut differently and waits for the one it adds to.
  const auto same = [&](const Tensor& grad) { return grad.size(1) == grads[0].size(1); };
  if (std::all_of(grads.begin(), grads.end(), same)) {
    tasks.add(of_x);
    return tasks.run();
  }
  tasks.add(std::span(of_x).first(1));
  tasks.run();
  for (std::size_t i = 1; i < count; ++i) {
    TaskList<T> next;
    next.add(std::span(of_x).subspan(i, 1));
    next.run();
  }
}

/// [..., m, k] x [k, n] with the second operand broadcast over the leading axes is one product with more
/// rows, if the rows of `a` and of `out` are evenly spaced.
void flatten_batch(Tensor& a, Tensor& b, Tensor& out) {
  const int leading = out.rank() - 2;
  if (leading == 0 || a.stride(-1) != 1 || a.stride(-2) < a.size(-1) || out.stride(-2) < out.size(-1)) return;
  std::int64_t rows = out.size(-2);
  for (int axis = leading - 1; axis >= 0; --axis) {
    if (out.size(axis) == 1) continue;
    if (b.stride(axis) != 0 || a.stride(axis) != rows * a.stride(-2) ||
        out.stride(axis) != rows * out.stride(-2))
      return;
    rows *= out.size(axis);
  }
  a = a.view({rows, a.size(-1)}, {a.stride(-2), 1}, a.offset());
  b = b.view({b.size(-2), b.size(-1)}, {b.stride(-2), b.stride(-1)}, b.offset());
  out = out.view({rows, out.size(-1)}, {out.stride(-2), 1}, out.offset());
}

}  // namespace

void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, const Tensor& out) {
  const double flops = 2 * static_cast<double>(out.count()) * static_cast<double>(a.size(-1));
  const ProfileScope profile("matmul", flops, bytes_of(a) + bytes_of(b) + bytes_of(out));
  if (out.count() == 0) return;
  Tensor flat_a = a, flat_b = b, flat_out = out;
  flatten_batch(flat_a, flat_b, flat_out);
  with_floating_type(out.dtype(), [&]<class T>(T) { run<T>(flat_a, flat_b, bias, T(beta), flat_out); });
}

void linear_maps(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                 std::span<const Tensor> outs) {
  double flops = 0, bytes = 0;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    flops += 2 * static_cast<double>(outs[i].count()) * static_cast<double>(x.size(1));
    bytes += bytes_of(x) + bytes_of(weights[i]) + bytes_of(outs[i]);
  }
  const ProfileScope profile("matmul", flops, bytes);
  with_floating_type(x.dtype(), [&]<class T>(T) { run_maps<T>(x, weights, biases, outs); });
}

void linear_backward(std::span<const Tensor> grads, const Tensor& x, std::span<const Tensor> weights,
                     double beta, const Tensor& dx, std::span<const Tensor> dweights) {
  double flops = 0, bytes = 0;
  bool empty = false;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    flops += 4 * static_cast<double>(grads[i].count()) * static_cast<double>(x.size(1));
    bytes += 2 * (bytes_of(grads[i]) + bytes_of(x) + bytes_of(weights[i]));
    empty = empty || grads[i].count() == 0 || weights[i].count() == 0;
  }
  if (empty) {
    for (std::size_t i = 0; i < grads.size(); ++i) {
      matmul(grads[i], weights[i], {}, i > 0 ? 1 : 0, dx);
      matmul(turned(grads[i]), x, {}, beta, dweights[i]);
    }
    return;
  }
  const ProfileScope profile("matmul", flops, bytes);
  with_floating_type(x.dtype(),
                     [&]<class T>(T) { run_backward<T>(grads, x, weights, T(beta), dx, dweights); });
}

}  // namespace heed::cpu
