#ifndef HEED_C_HEED_H
#define HEED_C_HEED_H

/*
 * heed for C99, and for every language that can call C.
 *
 * - Handles are opaque; each type has one function that frees it. Freeing NULL does nothing.
 *   Handles are never reused, so a freed, foreign or wrong one is an error, not a crash. Handles
 *   need not be freed before the program ends.
 * - A function that can fail returns a status, and heed_last_error() says why. It never prints,
 *   aborts or exits, and never throws. When it fails, pointer results are NULL.
 * - Results are written to the last arguments, `out`, which may not be NULL unless documented.
 *   Arguments that may be NULL are documented as "or NULL".
 * - Texts are UTF-8 and end in NUL. Those returned through `char**` are the caller's:
 *   heed_text_free().
 * - Settings are JSON objects, or NULL for the defaults. An unknown name or a value out of range is
 *   an error that lists what is allowed.
 * - Negative axes count from the end. Operands broadcast by NumPy's rules. Floating operands share
 *   one dtype.
 * - Calls are safe from any thread unless two at once use the same optimizer or context, one trains
 *   or loads a module that another uses, or one writes a tensor that another reads. Calls that use
 *   the same run wait for each other. Errors and recording are per thread.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Increases whenever programs compiled before would break: compare it with heed_abi_version().
#define HEED_ABI_VERSION 3
/// The largest rank of a tensor.
#define HEED_MAX_RANK 8
/// As the axis of heed_reduce(): all elements, giving rank 0.
#define HEED_ALL_AXES INT32_MAX

typedef int32_t heed_status;
enum {
  HEED_OK = 0,
  HEED_ERROR = 1,            ///< wrong shapes, types, names or values; unreadable files
  HEED_BAD_ARGUMENT = 2,     ///< NULL, a freed or foreign handle, a size that is not the tensor's
  HEED_BAD_SETTINGS = 3,     ///< an unknown setting, or a value out of range
  HEED_OUT_OF_MEMORY = 4,    ///< the message says how much was requested
  HEED_DEVICE_LOST = 5,      ///< a GPU stopped responding; its contents are lost
  HEED_CALLBACK_FAILED = 6,  ///< the caller's function returned an error or threw
  HEED_INTERRUPTED = 7       ///< the function given to heed_set_stop() requested it
};

typedef int32_t heed_dtype;
enum {
  HEED_F32 = 0,
  HEED_F64 = 1,  ///< CPU only, for gradient checks
  HEED_I32 = 2,  ///< indices, masks, results of comparisons
  HEED_F16 = 3,  ///< on Vulkan devices only
  HEED_BF16 = 4  ///< on Vulkan devices only
};

typedef struct heed_tensor heed_tensor;        ///< a strided view of memory, which several may share
typedef struct heed_context heed_context;      ///< the state of one forward pass
typedef struct heed_module heed_module;        ///< a layer or a model with its named parameters
typedef struct heed_optimizer heed_optimizer;  ///< parameters and the moments of their gradients
typedef struct heed_run heed_run;              ///< what a sample program trained
typedef struct heed_autocast heed_autocast;    ///< mixed precision of some parameters
typedef struct heed_queue heed_queue;          ///< batches the texts of many threads for one run

// --- the library

/// HEED_ABI_VERSION of the loaded library.
int32_t heed_abi_version(void);
/// "0.1.0"; never freed.
const char* heed_version(void);
/// The message of this thread's last failed call; "" if none has failed. Valid until the next call.
const char* heed_last_error(void);
/// Sets the text of heed_last_error(), for callbacks that are about to return an error.
void heed_set_last_error(const char* message);
void heed_text_free(char* text);
/// Sets a function that can stop long calls of this thread. heed_run_predict(), heed_run_stream(),
/// heed_queue_answer(), heed_run_capture() and heed_run_measure() call `stop` at once and then
/// about 20 times a second. If it returns non-zero, the call ends with HEED_INTERRUPTED; the run
/// stays usable. heed_train() calls it too. NULL, the default: calls never stop.
heed_status heed_set_stop(int32_t (*stop)(void* context), void* context);
/// The number of CPU threads, 1 to 1000; results never depend on it.
heed_status heed_set_cpu_threads(int32_t count);
/// The number of handles that have not been freed, for leak tests.
int64_t heed_live_handles(void);
/// Returns a list as JSON. "ops": the names for heed_unary(), heed_binary(), heed_compare(),
/// heed_reduce() and heed_op(), with their arguments, and "does", a description; unary ops with
/// parameters are "parametric". "attention": every mechanism with its capabilities, the "positions"
/// it supports, and its settings with defaults, ranges, help, and the values of other settings that
/// they need ("beside"). "optimizers": names. "tasks": names, summaries, and the tables of
/// "examples" that heed_train() takes, with their "columns". "devices": name, kind, and why one
/// cannot be used ("" if it can).
heed_status heed_list(const char* what, char** out);

// --- tensors

/// A tensor with its own memory. `data`: elements in row-major order, to be copied (f32, f64, i32);
/// NULL: zeros. `device`: "cpu", "vulkan", "vulkan:0", "vulkan:NAME", "auto"; NULL or "": the
/// environment variable HEED_DEVICE, or "cpu". `shape` may be NULL for rank 0.
heed_status heed_tensor_create(heed_dtype dtype, int32_t rank, const int64_t* shape, const void* data,
                               const char* device, heed_tensor** out);
/// An f32, f64 or i32 tensor on the CPU that uses the caller's memory without a copy; it must be
/// row-major and aligned to its elements. `release(context)` is called once, from any thread, when
/// no tensor uses the memory any more (possibly after heed_tensor_free(): gradients and views keep
/// it alive); NULL: the memory outlives them all. It is not called if this call fails. Only
/// heed_tensor_assign() and optimizers write to the memory.
heed_status heed_tensor_borrow(heed_dtype dtype, int32_t rank, const int64_t* shape, void* data,
                               void (*release)(void* context), void* context, heed_tensor** out);
/// Random numbers: "uniform" in [a, b), or "normal" with mean a and deviation b. Element i depends
/// only on (seed, step, stream, i): equal keys give equal numbers on every device.
heed_status heed_tensor_random(const char* distribution, double a, double b, uint64_t seed, uint32_t step,
                               uint32_t stream, heed_dtype dtype, int32_t rank, const int64_t* shape,
                               const char* device, heed_tensor** out);
void heed_tensor_free(heed_tensor* tensor);
/// Rank, extents and strides (in elements); `shape` and `strides`: HEED_MAX_RANK numbers, or NULL.
heed_status heed_tensor_shape(const heed_tensor* tensor, int32_t* rank, int64_t* shape, int64_t* strides);
heed_status heed_tensor_dtype(const heed_tensor* tensor, heed_dtype* out);
/// "cpu" or "vulkan:N".
heed_status heed_tensor_device(const heed_tensor* tensor, char** out);
/// The address of the first element; the strides give the others. Valid while any tensor shares the
/// memory. An error on devices whose memory the host cannot access. Do not write values that a
/// later backward pass still needs, nor weights in 8 bits or bf16 (int8_weights, bf16_weights).
heed_status heed_tensor_data(const heed_tensor* tensor, void** out);
/// Copies the elements to the host in row-major order (f16 and bf16 as f32). `bytes`: the size of
/// `destination`, which must equal that of the elements.
heed_status heed_tensor_read(const heed_tensor* tensor, void* destination, size_t bytes);
/// Overwrites the elements in place, in row-major order, also those of a view, except an expanded
/// one. `bytes`: the size of `source`, which must equal theirs.
heed_status heed_tensor_assign(heed_tensor* tensor, const void* source, size_t bytes);
/// The only element, of any dtype; an error if there are more.
heed_status heed_tensor_item(const heed_tensor* tensor, double* out);
/// Copies to another device (named as above), with a gradient; returns x itself if it is there.
heed_status heed_tensor_to_device(const heed_tensor* tensor, const char* device, heed_tensor** out);

// --- gradients

/// A tracked leaf, of a floating type, on the same elements: heed_backward() adds to its gradient.
heed_status heed_tensor_parameter(const heed_tensor* tensor, heed_tensor** out);
/// Returns the elements as an untracked tensor.
heed_status heed_tensor_detach(const heed_tensor* tensor, heed_tensor** out);
/// 1 if the tensor is a leaf or was computed from one.
heed_status heed_tensor_is_tracked(const heed_tensor* tensor, int32_t* out);
/// Adds d(output)/d(leaf) to the gradient of every leaf that `output` depends on. `gradient`:
/// d(loss)/d(output), of the same shape, or NULL for one element. A graph can be walked once.
heed_status heed_backward(const heed_tensor* output, const heed_tensor* gradient);
/// The accumulated gradient of a leaf; NULL if there is none.
heed_status heed_tensor_gradient(const heed_tensor* leaf, heed_tensor** out);
heed_status heed_tensor_zero_gradient(const heed_tensor* leaf);
/// Sets whether a leaf of rank 2 maps one hidden layer to another, so that the optimizer "muon" may
/// orthogonalise its steps. Pass 0 for a table of vectors and for the last map of a model. A new
/// leaf is such a map. Among the parameters of heed's layers, those of linear maps are, except for
/// the maps to classes at a model's end.
heed_status heed_tensor_set_hidden_map(const heed_tensor* leaf, int32_t is_map);
/// Turns recording on (1, the default) or off in this thread. `before`: the value before, or NULL.
heed_status heed_set_recording(int32_t enabled, int32_t* before);

/// A function of tensors, given by the caller. `inputs` are borrowed for the call; heed frees
/// *output. Returns HEED_OK, or another status after heed_set_last_error() with the reason.
typedef heed_status (*heed_function)(void* context, heed_tensor* const* inputs, size_t count,
                                     heed_tensor** output);
typedef struct heed_gradcheck_result {
  int32_t passed;         ///< 1: every error is within the tolerance
  int32_t worst_input;    ///< which input has the worst element; -1: nothing to check
  int64_t worst_element;  ///< which element of it, in row-major order
  double worst_error;     ///< max of |analytic - numeric| / max(1, |analytic|, |numeric|)
  double analytic, numeric;
} heed_gradcheck_result;
/// Compares heed_backward() with central finite differences of sum(w f(inputs)), w fixed random
/// weights. Every f64 input is perturbed, at most 64 elements of each; i32 inputs are passed on;
/// f32 is refused. `tolerance`: 0 for 1e-6.
heed_status heed_gradcheck(heed_function function, void* context, heed_tensor* const* inputs, size_t count,
                           double tolerance, heed_gradcheck_result* out);
/// The caller's derivative of an op: `gradient` is d(loss)/d(output), borrowed for the call. For
/// each of the op's `count` inputs it writes d(loss)/d(input), of the input's shape and dtype,
/// which heed frees; NULL for none. Nothing is recorded meanwhile. Returns as heed_function.
typedef heed_status (*heed_backward_function)(void* context, heed_tensor* gradient, heed_tensor** gradients,
                                              size_t count);
/// Records an op of the caller's own. `value` holds its result, which the caller computed from
/// `inputs`; `backward` is its derivative. `name` appears in errors. heed_backward() fails if
/// `value` or an input was overwritten in the meantime. `release(context)`, or NULL, is called
/// once, from any thread, when `backward` will not be called any more; at once if no input is
/// tracked. It is not called if this call fails.
heed_status heed_record(const char* name, const heed_tensor* value, heed_tensor* const* inputs, size_t count,
                        heed_backward_function backward, void (*release)(void* context), void* context,
                        heed_tensor** out);

// --- ops: recorded if an operand is tracked

/// Applies an elementwise op: "neg", "abs", "exp", "relu", "gelu", ...; heed_list("ops") lists them
/// all. `p` and `q` are the parameters of leaky_relu (slope), elu (alpha), add_scalar, mul_scalar,
/// div_scalar, pow_scalar (the number) and clamp (low, high). Others must be 0.
heed_status heed_unary(const char* op, const heed_tensor* x, double p, double q, heed_tensor** out);
/// "add", "sub", "mul", "div", "pow", "maximum", "swiglu", ...
heed_status heed_binary(const char* op, const heed_tensor* a, const heed_tensor* b, heed_tensor** out);
/// "equal", "less", "greater_equal", "logical_and", ...: i32 0 or 1.
heed_status heed_compare(const char* op, const heed_tensor* a, const heed_tensor* b, heed_tensor** out);
/// A number as a tensor of rank 0 with the dtype and device of `like`, an operand of these ops.
heed_status heed_scalar_like(const heed_tensor* like, double value, heed_tensor** out);
heed_status heed_cast(const heed_tensor* x, heed_dtype dtype, heed_tensor** out);
/// Reduces by "sum", "mean", "max", "min", "log_sum_exp" or "argmax" (i32, no gradient) along
/// `axis`, which is kept with extent 1 if keep_axis is not 0; or over HEED_ALL_AXES.
heed_status heed_reduce(const char* op, const heed_tensor* x, int32_t axis, int32_t keep_axis,
                        heed_tensor** out);
/// One extent may be -1 and is inferred.
heed_status heed_reshape(const heed_tensor* x, int32_t rank, const int64_t* shape, heed_tensor** out);
/// Reorders the axes: axis i of the result is axis order[i] of x. `rank`: the length of `order`.
heed_status heed_permute(const heed_tensor* x, int32_t rank, const int64_t* order, heed_tensor** out);
/// Elements begin, begin + step, ... < end of an axis; negative begin and end count from the back.
heed_status heed_slice(const heed_tensor* x, int32_t axis, int64_t begin, int64_t end, int64_t step,
                       heed_tensor** out);
/// a [..., m, k] times b [..., k, n].
heed_status heed_matmul(const heed_tensor* a, const heed_tensor* b, heed_tensor** out);
/// x [..., in] W^T + b, with weight [out, in] and bias [out] or NULL.
heed_status heed_linear(const heed_tensor* x, const heed_tensor* weight, const heed_tensor* bias,
                        heed_tensor** out);
/// Zeroes elements with probability p, by (seed, step, stream), and divides the others by 1 - p.
heed_status heed_dropout(const heed_tensor* x, double p, uint64_t seed, uint32_t step, uint32_t stream,
                         heed_tensor** out);
/// Cross entropy per row: logits [..., classes], targets i32 [...]; a target of -1 gives 0.
/// `smoothing`: of labels, 0 for none.
heed_status heed_cross_entropy(const heed_tensor* logits, const heed_tensor* targets, double smoothing,
                               heed_tensor** out);
/// Runs any other op by name. heed_list("ops") has them under "named" with their arguments: in "x
/// weight?; axis=-1, rows: int -> values ids", x and weight are tensors, of which weight may be
/// missing; axis, with its default, and rows are settings; values and ids are results. `inputs`:
/// the tensors, NULL for a missing one; `settings`: the rest. "value", with which masked_fill and
/// pad fill elements, may also be "inf", "-inf" or "nan". `outputs`: room for `room` tensors;
/// unused places become NULL. More results than room are an error. `made`: receives the number of
/// results, or NULL.
///
///   heed_op("einsum", {q, k}, 2, "{\"equation\": \"bhid,bhjd->bhij\"}", &product, 1, NULL);
heed_status heed_op(const char* op, const heed_tensor* const* inputs, size_t count, const char* settings,
                    heed_tensor** outputs, size_t room, size_t* made);

// --- attention layers and other modules

/// An attention layer by the name of its mechanism, such as "clusterformer". `settings`: "width"
/// (required), "heads", "dropout", "bias", "causal", "cross", "max_length" (required by some
/// mechanisms), "seed" of the initial parameters, "dtype" ("f32" or "f64"), "device", "positions"
/// within the logits ("none", "rotary", "alibi" or "relative", where the mechanism has them), and
/// those of the mechanism (heed_list("attention")).
heed_status heed_attention_create(const char* name, const char* settings, heed_module** out);
/// Computes x [B, N, width] -> [B, N, width]. `mask` and `memory_mask`: i32 [B, N] and [B, M], 1 =
/// real, or NULL; `memory`: [B, M, width] for cross-attention, else NULL. `context`: NULL for
/// inference.
heed_status heed_attention_forward(heed_module* layer, const heed_tensor* x, const heed_tensor* mask,
                                   const heed_tensor* memory, const heed_tensor* memory_mask,
                                   heed_context* context, heed_tensor** out);
/// Checks that a mechanism does what it declares: padding, the future, lengths, gradients, decoding
/// and more. HEED_ERROR reports what failed, where, and the values. `settings`: its own, or NULL.
heed_status heed_check_attention(const char* name, const char* settings);
/// A forward pass. `training`: 1 with dropout drawn from (seed, step); 0 for inference. All layers
/// of a pass share one context: it numbers their dropout, carries state from layer to layer and
/// collects the losses they add.
heed_status heed_context_create(int32_t training, uint64_t seed, uint32_t step, heed_context** out);
/// The weighted sum of the losses that layers add, such as ClusterFormer's; NULL if none.
heed_status heed_context_auxiliary_loss(const heed_context* context, heed_tensor** out);
/// Drops elements with probability p by the next random numbers of the pass; x itself in inference.
heed_status heed_context_dropout(heed_context* context, const heed_tensor* x, double p, heed_tensor** out);
/// Adds `weight` times `value`, of one element, to the pass's auxiliary loss.
heed_status heed_context_add_loss(heed_context* context, const char* name, double weight,
                                  const heed_tensor* value);
/// Records what the layer with this "path" computed, for heed_run_capture() and reports. "weights"
/// [B, H, N, M] become attention maps.
heed_status heed_context_show(heed_context* context, const char* path, const char* name,
                              const heed_tensor* value);
void heed_context_free(heed_context* context);

heed_status heed_module_parameter_count(heed_module* module, size_t* out);
/// The index-th parameter: its dotted name, valid as long as the handle, and the leaf itself, which
/// the module keeps using. Either may be NULL.
heed_status heed_module_parameter(heed_module* module, size_t index, const char** name, heed_tensor** out);
void heed_module_free(heed_module* module);
/// Moves parameters in place to a device (named as above) and a dtype, "f32" or "f64"; NULL keeps
/// the device or the dtype. objects[i] is a leaf or an attention layer, whose buffers move too; the
/// model of a run is an error. Handles of the parameters and optimizers that have them follow;
/// gradients do not. f64 exists on the CPU only.
heed_status heed_move(const void* const* objects, size_t count, const char* device, const char* dtype);

// --- optimizers

/// "sgd", "adam", "adamw" or "muon" over distinct leaves on one device. `settings`: "beta1" (0.9;
/// for sgd the momentum, 0), "beta2", "epsilon", "weight_decay", "decay_vectors" (false: adamw and
/// muon do not decay parameters of rank 0 or 1, such as biases), and "clip_norm", the limit of the
/// gradients' global norm (0: none). muon orthogonalises the steps of matrices that are hidden maps
/// (heed_tensor_set_hidden_map()), and takes adamw's for all else. It also has "momentum" (0.95),
/// "nesterov" (true), "iterations" (5), "adjust_rate" ("match_rms_adamw": 0.2 sqrt(max(rows,
/// columns)) times the rate; "original": sqrt(max(1, rows / columns))) and "matrix_rate" (1), by
/// which the matrices' rate is multiplied.
heed_status heed_optimizer_create(const char* name, const char* settings, heed_tensor* const* parameters,
                                  size_t count, heed_optimizer** out);
/// Parameters that an optimizer treats alike.
typedef struct heed_parameter_group {
  heed_tensor* const* parameters;
  size_t count;
  double rate;          ///< multiplies the learning rate; 0: the parameters stay
  double weight_decay;  ///< in place of the settings', for vectors too; NaN: the settings'
} heed_parameter_group;
/// Creates an optimizer with parameters in groups.
heed_status heed_optimizer_create_groups(const char* name, const char* settings,
                                         const heed_parameter_group* groups, size_t count,
                                         heed_optimizer** out);
/// Updates the parameters in place. Those without a gradient are skipped; an error if none has one.
heed_status heed_optimizer_step(heed_optimizer* optimizer, double learning_rate);
heed_status heed_optimizer_zero_gradients(heed_optimizer* optimizer);
void heed_optimizer_free(heed_optimizer* optimizer);
/// Computes the learning rate of step 1, 2, ... of `steps`. `settings`: "name", its course after
/// the warm-up ("constant"; "linear", "cosine" (arXiv 1608.03983) or "inverse_sqrt" (arXiv
/// 1706.03762, section 5.3)), "learning_rate", its peak (1e-3), "warmup_steps" (0), during which it
/// rises from 0, and "final_rate" (0), that of the last step of linear and cosine.
heed_status heed_learning_rate(const char* settings, int64_t step, int64_t steps, double* out);

// --- mixed precision: weights in f32, computation in a smaller type (arXiv 1710.03740)

/// Prepares mixed precision for a loop of the caller's own; call it once before the loop.
/// objects[i]: a leaf or a module, whose parameters are used in `precision`, "f32", "high",
/// "medium", "bf16" or "f16". On the CPU it is that of products only, and f16 is an error; on a GPU
/// high and medium are f32. `loss_scale`: the initial scale of the loss in f16; 0 for 16, which suits
/// a sum over tokens.
heed_status heed_autocast_create(const void* const* objects, size_t count, const char* precision,
                                 double loss_scale, heed_autocast** out);
/// Returns the dtype that inputs must have: f32 on the CPU.
heed_status heed_autocast_dtype(const heed_autocast* autocast, heed_dtype* out);
/// Calls `loss`, which has no inputs and an output of one element, and adds its gradients to those
/// of the parameters, as heed_backward() does. During the call the parameters have the smaller
/// type. `out`: the loss in f32, untracked.
heed_status heed_autocast_backward(heed_autocast* autocast, heed_function loss, void* context,
                                   heed_tensor** out);
/// Takes one step of an optimizer, then clears the gradients. If a gradient overflowed in f16, the
/// step is skipped and the scale of the loss halved; after 1000 without overflow it is doubled.
heed_status heed_autocast_step(heed_autocast* autocast, heed_optimizer* optimizer, double learning_rate);
/// Returns the scale of the loss and the number of skipped steps, for f16; either may be NULL.
heed_status heed_autocast_loss_scale(const heed_autocast* autocast, double* scale, int64_t* skipped);
void heed_autocast_free(heed_autocast* autocast);
/// Writes tensors, modules (parameters and buffers) and optimizers (moments and steps) as one
/// safetensors file, completely or not at all. objects[i] is a heed_tensor, heed_module or
/// heed_optimizer; its content is named "names[i].<its name>", or without "names[i]." if that is
/// "". A tensor is called names[i]. Training continued from such a file is bit-identical to
/// training that never stopped.
heed_status heed_save(const char* path, const char* const* names, const void* const* objects, size_t count);
/// Reads such a file into the same objects. Unless names, shapes and types match, nothing changes.
heed_status heed_load(const char* path, const char* const* names, const void* const* objects, size_t count);

// --- an attention mechanism of the caller's own

/// The output of a layer. `config`: {"path": the layer's name in the model, "width", "heads",
/// "head_width", "dropout", "bias", "causal", "cross", "max_length", "layer", "training", and the
/// mechanism's own settings}. `inputs`, borrowed for the call and NULL where there is none: x [B,
/// N, width], mask [B, N], memory [B, M, width], memory_mask [B, M], then, with "projections",
/// query [B, H, N, dh], key and value [B, H, M, dh] (else NULL), then the parameters. `pass`: the
/// context of the pass, borrowed for the call. The output is [B, H, N, dh] with "projections", else
/// [B, N, width]. Rows of padding need not be zeroed. It returns as a heed_function does.
typedef heed_status (*heed_attention_function)(void* context, const char* config, heed_tensor* const* inputs,
                                               size_t count, heed_context* pass, heed_tensor** output);
/// Makes the initial values of a new layer's `count` parameters, f32 on the CPU, as new handles
/// that heed frees. `config` also has "seed".
typedef heed_status (*heed_initial_function)(void* context, const char* config, heed_tensor** parameters,
                                             size_t count);
/// Adds a mechanism under a name of lower-case letters, digits and '_', for the rest of the
/// program: layers, models, settings and runs find it by this name. `declaration`, or NULL for the
/// defaults: "causal" (false), "strictly_causal" (true: later tokens change nothing), "cross"
/// (false), "cross_by_step" (true: in cross-attention no query depends on another), "any_length"
/// (true: no parameter depends on "max_length"), "as_heads" (false: can be some of the heads of a
/// layer), "deterministic" (true), "padding" (true: masked tokens change nothing), "reason" (why it
/// lacks a capability, for errors), "projections" (true: heed computes the queries, keys and
/// values, and maps the output), "settings.NAME" (the default of a setting of its own, which may be
/// a number, text or boolean), "parameters" (a list of names). The declaration is not checked here:
/// see heed_check_attention(). `initial` may be NULL without parameters. The functions may be
/// called from any thread, until the program ends.
heed_status heed_register_attention(const char* name, const char* declaration, heed_initial_function initial,
                                    heed_attention_function forward, void* context);

// --- tasks: training

/// Returns the settings of a task, without "threads" of the programs, as a JSON list: "name",
/// "kind" ("flag", "integer", "number", "text", "column", "columns", "attention"), "default", "low"
/// and "high" of numbers, "choices" of texts, "help". `own_data`: 1 for the defaults for the
/// caller's data, 0 for those for generated data.
heed_status heed_task_settings(const char* task, int32_t own_data, char** out);

/// Examples in memory, as the columns that heed_list("tasks") names.
typedef struct heed_examples {
  const char* part;  ///< "train", "valid" or "test", or another table of the task, such as "news"
  size_t columns, rows;
  const char* const* cells;  ///< columns * rows texts, column by column
} heed_examples;

/// Receives the progress of training as JSON: records as in the run's metrics.jsonl ("step",
/// "loss", ...; with "evaluation", of metrics), or {"message": ...}. Anything but HEED_OK stops
/// training.
typedef heed_status (*heed_progress)(void* context, const char* record);

/// Trains a task in `folder`, which becomes a run, and opens it. `settings`: those of the task by
/// their dotted names or nested; and "config" (a file of settings, which these override),
/// "attention", "decoder_attention", "cross_attention", "preset" (names), "resume" (false: true
/// continues the run in the folder, and `task` may be NULL), "verify" (true). `examples`: `count`
/// tables, or NULL when the settings name files ("data.file") or the data is to be generated; they
/// are copied into the run. `progress`: or NULL; called by this thread.
///
/// The function of heed_set_stop() is called about 20 times a second while data is read, and after
/// each step. When it stops training, a checkpoint is written and the call ends with
/// HEED_INTERRUPTED; "resume" continues with bit-identical results. Several threads may train at
/// once, each in its own folder. `out`: the run with its best weights, or NULL.
heed_status heed_train(const char* task, const char* settings, const heed_examples* examples, size_t count,
                       const char* folder, heed_progress progress, void* context, heed_run** out);

/// Cross-validates a task with "data.folds": it trains this many runs, in the folders fold-1,
/// fold-2, ... of `folder`, each tested on another part of the examples. Otherwise as heed_train();
/// "resume" trains only missing runs. `out`: an object with the mean of each metric, "deviation"
/// with their standard deviations, and "folds", the metrics of each.
heed_status heed_cross_validate(const char* task, const char* settings, const heed_examples* examples,
                                size_t count, const char* folder, heed_progress progress, void* context,
                                char** out);

/// Compares trainings: one for each combination of the varied settings and each seed, each in its
/// own folder in `folder`. Trainings finished there are kept, and interrupted ones are resumed.
/// `settings`: as for heed_train(); and "attention" (a list of names), "grid" (varied settings:
/// lists of values by name, or {"low": number, "high": number}), "seeds" (a list), "random" (the
/// number of combinations to draw; ranges need it) and "halving" (short trainings choose which are
/// trained in full). `out`: an object with "rows" (for each choice its values, metrics, costs and
/// the difference from the first), "runs" (choice, seed and folder of each, best first by the
/// validation part; without one, by the test part), "text" and "markdown" (tables). Otherwise as
/// heed_train().
heed_status heed_compare_trainings(const char* task, const char* settings, const heed_examples* examples,
                                   size_t count, const char* folder, heed_progress progress, void* context,
                                   char** out);

// --- runs: what was trained. Any number of threads may ask one run at once, with one set of weights.

/// Opens the folder of a run of any task, or of a published model (docs/guides/published.md).
/// `settings`: "device", "weights" ("best", "last" or "initial"), "config" (a file that overrides
/// the run's settings), "settings" (a list of "name=value" that overrides both), "verify" (true).
/// Threads are set for the whole process: heed_set_cpu_threads().
heed_status heed_run_open(const char* folder, const char* settings, heed_run** out);
/// Writes the run in `folder` to a new folder, in the published layout of its task (docs/guides/published.md).
/// `settings`: "dtype" ("f32", "bf16" or "f16"). `out`: {"architecture", "parameters"}.
heed_status heed_run_export(const char* folder, const char* target, const char* settings, char** out);
/// Describes a run: {"task", "settings", "classes", "remarks"}. "classes": those of the task in the
/// order of its outputs, if it has classes, as texts; the setting data.label_type says what they
/// were. "remarks": those since the last call.
heed_status heed_run_describe(heed_run* run, char** out);
/// Answers each line: [{"text", "probability", "alternatives": [{"text", "probability"}]}, ...],
/// with "vector", a list of numbers, if the answer is a vector. A line that cannot be answered,
/// such as a blank one, fails the call, with its number. `settings`: "errors", "raise" or "return"
/// (then such a line has {"error"} alone), and "first_line" (0), the number of the first line, for
/// errors and random draws; NULL: none.
heed_status heed_run_predict(heed_run* run, const char* const* lines, size_t count, const char* settings,
                             char** out);
/// Answers each line, without settings, and writes the model's internals for each line to `path`:
/// attention maps if it ends in .html, else safetensors. An existing file is an error unless
/// `overwrite` is not 0.
heed_status heed_run_capture(heed_run* run, const char* const* lines, size_t count, const char* path,
                             int32_t overwrite, char** out);
/// Returns the task's metrics on "valid", "test" or "train", the parts of the run's own data.
heed_status heed_run_measure(heed_run* run, const char* part, char** out);
/// Returns the task's metrics on examples, whose `part` may be NULL.
heed_status heed_run_measure_examples(heed_run* run, const heed_examples* examples, char** out);
/// Returns the task's metrics on other files: texts, or sources and targets.
heed_status heed_run_measure_files(heed_run* run, const char* const* files, size_t count, char** out);
/// Computes the model's outputs for lines, before any choice or normalisation: logits [count,
/// classes], vectors [count, width], or for a language model logits [count, tokens, vocabulary].
/// They are tracked: the parameters of heed_run_model() get gradients. `context`: NULL for
/// inference.
heed_status heed_run_outputs(heed_run* run, const char* const* lines, size_t count, heed_context* context,
                             heed_tensor** out);
/// Computes log p(target | line) [count] of each pair, natural logarithm, including the end of the
/// target, for tasks that write a text for a text. Tracked; `context` as for heed_run_outputs().
heed_status heed_run_log_probabilities(heed_run* run, const char* const* lines, const char* const* targets,
                                       size_t count, heed_context* context, heed_tensor** out);
/// Computes the hidden states [count, tokens, width] of lines, rows padded at the end: those of a language
/// model, or of an encoder. heed_run_encode() tells the tokens of each line. Tracked; `context` as for
/// heed_run_outputs().
heed_status heed_run_hidden(heed_run* run, const char* const* lines, size_t count, heed_context* context,
                            heed_tensor** out);
/// Describes the tokenizer of a run, of its inputs or, if `of_outputs` is not 0, of the texts that it writes:
/// {"size", "special": {token: id}, "marks": {"bos", "eos", "pad", "unk", "mask": an id or null}}.
heed_status heed_run_tokenizer(heed_run* run, int32_t of_outputs, char** out);
/// Returns the tokens of each text, uncut: [{"ids", "tokens", "bytes"}, ...]. Special tokens in a text become
/// their ids. `marks`: with what the model reads around a text, such as [CLS] and [SEP]; in a pair task a tab
/// separates two texts. `spelled`: with "tokens", as the tokenizer's file spells them, and "bytes", lists of those
/// that each adds to a text; these are empty without.
heed_status heed_run_encode(heed_run* run, const char* const* texts, size_t count, int32_t of_outputs,
                            int32_t marks, int32_t spelled, char** out);
/// Returns the text of ids as a JSON string, without special tokens unless `keep_special` is not 0.
heed_status heed_run_decode(heed_run* run, const int64_t* ids, size_t count, int32_t of_outputs,
                            int32_t keep_special, char** out);
/// Receives a new piece of a text, valid during the call. Non-zero ends the writing.
typedef int32_t (*heed_on_text)(void* context, const char* piece);
/// Answers one line, for a task that writes texts. `on_text` receives the answer in pieces, in this
/// thread, as soon as they are certain: token by token with greedy search and sampling, and once
/// all hypotheses agree with beam search. They add up to the answer's text. `out`: the answer as
/// heed_run_predict() gives it, or, if `on_text` ended the writing, the text so far with
/// probability 0.
heed_status heed_run_stream(heed_run* run, const char* line, heed_on_text on_text, void* context, char** out);
/// Receives a new piece of a text: `size` bytes, valid during the call. Non-zero ends the writing.
typedef int32_t (*heed_on_bytes)(void* context, const char* piece, size_t size);
/// Streams an answer that may hold U+0000, which heed_run_stream() refuses.
heed_status heed_run_stream_bytes(heed_run* run, const char* line, heed_on_bytes on_bytes, void* context,
                                  char** out);
/// Writes texts that continue a prompt or, for a task that writes a text for a text, answer it.
/// `settings`: "max_tokens", "temperature" (0: greedy), "top_k", "top_p", "min_p", "repetition_penalty",
/// "samples" (1), "seed", "stop", a list of texts before which a language model ends its own, and "marks"
/// (true: it reads the mark that begins texts before the prompt); the run's settings are the defaults. `out`: a JSON list of the texts, each as heed_run_predict()
/// gives an answer; its score is its log-probability.
heed_status heed_run_generate(heed_run* run, const char* prompt, const char* settings, char** out);
/// Streams the text of heed_run_generate(), as heed_run_stream_bytes(); "samples" must be 1.
heed_status heed_run_generate_stream(heed_run* run, const char* prompt, const char* settings,
                                     heed_on_bytes on_bytes, void* context, char** out);
/// Creates a queue for servers: any number of threads ask, and waiting lines are answered together.
/// `settings`: "max_batch" (32), the most texts of one pass, "workers" (1), the threads that
/// answer, and "errors" ("raise"), as for heed_run_predict(). The queue keeps the run alive. It
/// also works in a child of fork(), which gets threads of its own.
heed_status heed_queue_create(heed_run* run, const char* settings, heed_queue** out);
/// Waits for the answer to one line: an object as in the list of heed_run_predict(). It equals that
/// of the line alone except for the last digits of probabilities; but with the attentions reformer
/// and routing_transformer, lines that are answered together affect each other's answers.
heed_status heed_queue_answer(heed_queue* queue, const char* line, char** out);
/// Waits for pending answers, then frees the queue.
void heed_queue_free(heed_queue* queue);
/// A page of HTML about one run, as `TASK report` makes it, or about several side by side.
/// `settings`: "device", "verify" (true).
heed_status heed_report(const char* const* folders, size_t count, const char* settings, char** out);
/// The model, whose parameters can be read and trained; it may outlive the handle of the run.
heed_status heed_run_model(heed_run* run, heed_module** out);
void heed_run_free(heed_run* run);

#ifdef __cplusplus
}
#endif

#endif
