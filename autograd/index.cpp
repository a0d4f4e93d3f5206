#include <algorithm>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

namespace heed {

namespace {

/// Calls a kernel for `op`, whose name is put before the kernel's errors.
template <class Call>
void named(std::string_view op, std::string_view kernel, const Call& call) try {
  call();
} catch (Error& error) {
  if (op != kernel) error.add_context(concat_text(op, ": "));
  throw;
}

/// out[b, i, :] = x[b, ids[b, i], :] with x [batch, n, width]; the shapes are already in kernel form.
Tensor gather_kernel(const char* op, const Tensor& x, const Tensor& ids, const Shape& shape) {
  const Tensor out = empty_like(x, shape);
  named(op, "gather_rows", [&] {
    backend_of(x).gather_rows(x, ids, out.view({x.size(0), ids.size(1), x.size(2)}));
  });
  return out;
}

Tensor scatter_kernel(const char* op, const Tensor& x, const Tensor& ids, std::int64_t rows) {
  const Tensor out = Tensor::zeros({x.size(0), rows, x.size(2)}, x.dtype(), x.device());
  named(op, "scatter_add_rows", [&] { backend_of(x).scatter_add_rows(x, ids, out); });
  return out;
}

/// The product of the extents from axis `from` on.
std::int64_t tail_count(const Shape& shape, int from) {
  std::int64_t product = 1;
  for (int i = from; i < shape.rank(); ++i) product *= shape[i];
  return product;
}

void check_rows(const char* op, const Tensor& x, const Tensor& ids) {
  check_defined(op, x);
  check_indices(op, ids);
  check(x.rank() >= 2 && ids.rank() == 2 && x.size(0) == ids.size(0), op, ": values of shape ", x.shape(),
        " and indices of shape ", ids.shape(), " must be [batch, n, ...] and [batch, m]");
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids) {
  check_floating("embedding", table);
  check(table.rank() == 2, "embedding: the table has shape ", table.shape(), ", not [n, width]");
  check_indices("embedding", ids);
  const Tensor flat = plain(ids).view({1, ids.count()});
  Shape shape = ids.shape();
  shape.push_back(table.size(1));
  const Tensor rows = plain(table).view({1, table.size(0), table.size(1)});
  return record("embedding", gather_kernel("embedding", rows, flat, shape), {table},
                [flat, extent = table.size(0), width = table.size(1)](const Tensor& grad) {
                  const Tensor g = contiguous(grad).view({1, flat.size(1), width});
                  return Gradients{scatter_kernel("embedding", g, flat, extent).view({extent, width})};
                },
                {&flat});
}

Tensor index_select(const Tensor& x, int axis, const Tensor& ids) {
  check_indices("index_select", ids);
  check(ids.rank() == 1, "index_select: indices of shape ", ids.shape(), " must have rank 1");
  const int at = resolve_axis("index_select", x, axis);
  if (at != 0) return transpose(index_select(transpose(x, 0, at), 0, ids), 0, at);
  // Adds no axis, since x may already have the maximum rank.
  const Tensor rows = reshape(x, {1, x.size(0), tail_count(x.shape(), 1)});
  return reshape(gather_rows(rows, unsqueeze(ids, 0)), with_extent(x.shape(), 0, ids.size(0)));
}

Tensor gather_rows(const Tensor& x, const Tensor& ids) {
  check_rows("gather_rows", x, ids);
  const std::int64_t width = tail_count(x.shape(), 2);
  const Tensor flat_ids = plain(ids);
  const Shape shape = with_extent(x.shape(), 1, ids.size(1));
  const Tensor rows = plain(x).view({x.size(0), x.size(1), width});
  return record("gather_rows", gather_kernel("gather_rows", rows, flat_ids, shape), {x},
                [flat_ids, shape = x.shape(), width](const Tensor& grad) {
                  const Tensor g = contiguous(grad).view({flat_ids.size(0), flat_ids.size(1), width});
                  return Gradients{scatter_kernel("gather_rows", g, flat_ids, shape[1]).view(shape)};
                },
                {&flat_ids});
}

Tensor scatter_add_rows(const Tensor& x, const Tensor& ids, std::int64_t rows) {
  check_rows("scatter_add_rows", x, ids);
  check_floating("scatter_add_rows", x);
  check(x.size(1) == ids.size(1), "scatter_add_rows: ", x.size(1), " rows and ", ids.size(1), " indices");
  check(rows >= 0, "scatter_add_rows: the number of rows ", rows, " is negative");
  const std::int64_t width = tail_count(x.shape(), 2);
  const Tensor flat_ids = plain(ids);
  const Shape shape = with_extent(x.shape(), 1, rows);
  const Tensor source = plain(x).view({x.size(0), x.size(1), width});
  return record("scatter_add_rows", scatter_kernel("scatter_add_rows", source, flat_ids, rows).view(shape),
                {x}, [flat_ids](const Tensor& grad) { return Gradients{gather_rows(grad, flat_ids)}; },
                {&flat_ids});
}

Tensor gather(const Tensor& x, int axis, const Tensor& ids) {
  const int at = resolve_axis("gather", x, axis);
  check_indices("gather", ids);
  Shape others = ids.shape();
  if (others.rank() == x.rank()) others[at] = x.shape()[at];
  check(others == x.shape(), "gather: indices of shape ", ids.shape(), " and values of shape ", x.shape(),
        " must agree outside axis ", axis);
  // With the axis last, every element is a row of width 1.
  const Tensor values = transpose(x, at, -1), positions = transpose(ids, at, -1);
  const Tensor picked = gather_rows(reshape(values, {row_count(values.shape()), values.size(-1)}),
                                    reshape(positions, {row_count(positions.shape()), positions.size(-1)}));
  return transpose(reshape(picked, positions.shape()), at, -1);
}

Tensor scatter_add(const Tensor& x, int axis, const Tensor& ids, std::int64_t extent) {
  check_floating("scatter_add", x);
  check_indices("scatter_add", ids);
  check(ids.shape() == x.shape(), "scatter_add: values of shape ", x.shape(), " and indices of shape ",
        ids.shape(), " must agree");
  const int at = resolve_axis("scatter_add", x, axis);
  check(extent >= 0, "scatter_add: the extent ", extent, " is negative");
  const Tensor values = transpose(x, at, -1), positions = transpose(ids, at, -1);
  const Shape flat{row_count(values.shape()), values.size(-1)};
  const Tensor added = scatter_add_rows(reshape(values, flat), reshape(positions, flat), extent);
  return transpose(reshape(added, with_extent(values.shape(), x.rank() - 1, extent)), at, -1);
}

Tensor argsort(const Tensor& x, bool descending) {
  check(x.defined() && x.rank() >= 1, "argsort: the operand needs at least one axis");
  check_positions("argsort", x.size(-1));
  const Tensor out = Tensor::empty(x.shape(), DType::i32, x.device());
  const Shape rows{row_count(x.shape()), x.size(-1)};
  backend_of(x).argsort(plain(x).view(rows), descending, out.view(rows));
  return out;
}

Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype) {
  check_indices("one_hot", ids);
  check(classes >= 0, "one_hot: the number of classes ", classes, " is negative");
  check(is_floating(dtype), "one_hot: needs a floating type, got ", dtype);
  const Tensor flat = plain(ids).view({ids.count(), 1});
  const Tensor ones = Tensor::ones({ids.count(), 1, 1}, dtype, ids.device());
  Shape shape = ids.shape();
  shape.push_back(classes);
  return scatter_kernel("one_hot", ones, flat, classes).view(shape);
}

std::pair<Tensor, Tensor> sort(const Tensor& x, bool descending) {
  check(x.defined() && x.rank() >= 1, "sort: the operand needs at least one axis");
  const Tensor order = argsort(x, descending);
  return {gather(x, -1, order), order};
}

std::pair<Tensor, Tensor> top_k(const Tensor& x, std::int64_t k) {
  check(x.defined() && x.rank() >= 1, "top_k: the operand needs at least one axis");
  check(k >= 0 && k <= x.size(-1), "top_k: k = ", k, " does not fit the last axis of shape ", x.shape());
  check_positions("top_k", x.size(-1));
  const Tensor ids = Tensor::empty(with_extent(x.shape(), x.rank() - 1, k), DType::i32, x.device());
  const std::int64_t rows = row_count(x.shape());
  backend_of(x).top_k(plain(x).view({rows, x.size(-1)}), ids.view({rows, k}));
  return {gather(x, -1, ids), ids};
}

// Triangles and the identity: entries chosen by their distance from the diagonal.

/// i32 [rows, columns]: compares column - row with `diagonal`.
static Tensor diagonal_mask(CompareOp op, std::int64_t rows, std::int64_t columns, std::int64_t diagonal,
                            Device device) {
  const Tensor row = Tensor::arange(rows, DType::i32, device).view({rows, 1});
  const Tensor column = Tensor::arange(columns, DType::i32, device).view({1, columns});
  return compare(op, column - row, static_cast<double>(diagonal));
}

static Tensor triangle(const char* op, CompareOp kept, const Tensor& x, std::int64_t diagonal) {
  check_defined(op, x);
  check(x.rank() >= 2, op, ": shape ", x.shape(), " is not a matrix");
  check_positions(op, x.size(-1));
  check_positions(op, x.size(-2));
  const std::int64_t limit = std::max(x.size(-1), x.size(-2));  // a diagonal further out changes nothing
  const Tensor keep =
      diagonal_mask(kept, x.size(-2), x.size(-1), std::clamp(diagonal, -limit, limit), x.device());
  return where(keep, x, 0);
}

Tensor tril(const Tensor& x, std::int64_t diagonal) {
  return triangle("tril", CompareOp::less_equal, x, diagonal);
}
Tensor triu(const Tensor& x, std::int64_t diagonal) {
  return triangle("triu", CompareOp::greater_equal, x, diagonal);
}

Tensor eye(std::int64_t count, DType dtype, Device device) {
  check(count >= 0, "eye: the number of rows ", count, " is negative");
  check_positions("eye", count);
  return cast(diagonal_mask(CompareOp::equal, count, count, 0, device), dtype);
}

}  // namespace heed
