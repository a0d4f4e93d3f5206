/* The C API held to its word: results, lent memory, callbacks, and every kind of misuse, which ends in a status. */

#include <heed/c/heed.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void check_that(int holds, const char* what, int line) {
  if (holds) return;
  fprintf(stderr, "c_api.c:%d: %s (last error: %s)\n", line, what, heed_last_error());
  ++failures;
}
#define CHECK(condition) check_that(condition, #condition, __LINE__)
#define OK(call) check_that((call) == HEED_OK, #call, __LINE__)
/* A call that fails with this status and these words in its message. */
#define FAILS(call, status, words) \
  check_that((call) == (status) && strstr(heed_last_error(), words) != NULL, #call, __LINE__)

static heed_tensor* tensor_of(heed_dtype dtype, int64_t rows, int64_t columns, const void* values) {
  const int64_t shape[] = {rows, columns};
  heed_tensor* made = NULL;
  OK(heed_tensor_create(dtype, 2, shape, values, "cpu", &made));
  return made;
}

/* Frees all of these; NULL is nothing. */
static void free_all(heed_tensor* const* tensors, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) heed_tensor_free(tensors[i]);
}
#define FREE(...)                               \
  free_all((heed_tensor* const[]){__VA_ARGS__}, \
           sizeof((heed_tensor* const[]){__VA_ARGS__}) / sizeof(heed_tensor*))

/* Whether the elements are those; `count` of them, of f32. */
static int holds(const heed_tensor* x, const float* expected, size_t count) {
  float found[16];
  size_t i;
  if (heed_tensor_read(x, found, count * sizeof(float)) != HEED_OK) return 0;
  for (i = 0; i < count; ++i)
    if (fabsf(found[i] - expected[i]) > 1e-6f) return 0;
  return 1;
}

static void test_values(void) {
  const float values[] = {1, 2, 3, 4, 5, 6}, squares[] = {1, 4, 9, 16, 25, 36},
              twice[] = {2, 4, 6, 8, 10, 12};
  const int64_t order[] = {1, 0};
  int64_t shape[HEED_MAX_RANK], strides[HEED_MAX_RANK];
  int32_t rank, tracked, before;
  double number;
  heed_dtype dtype;
  char* text;
  heed_tensor *x = tensor_of(HEED_F32, 2, 3, values), *leaf, *y, *total, *gradient, *turned, *compared, *two;
  OK(heed_tensor_parameter(x, &leaf));
  OK(heed_binary("mul", leaf, leaf, &y));
  CHECK(holds(y, squares, 6));
  OK(heed_reduce("sum", y, HEED_ALL_AXES, 0, &total));
  OK(heed_tensor_item(total, &number));
  CHECK(number == 91);
  OK(heed_tensor_gradient(leaf, &gradient));
  CHECK(gradient == NULL);
  OK(heed_backward(total, NULL));
  FAILS(heed_backward(total, NULL), HEED_ERROR, "already walked");
  OK(heed_tensor_gradient(leaf, &gradient));
  CHECK(holds(gradient, twice, 6));
  OK(heed_permute(x, 2, order, &turned));
  OK(heed_tensor_shape(turned, &rank, shape, strides));
  CHECK(rank == 2 && shape[0] == 3 && shape[1] == 2 && strides[0] == 1 && strides[1] == 3);
  OK(heed_scalar_like(x, 2, &two));
  OK(heed_compare("greater", x, two, &compared));
  OK(heed_tensor_dtype(compared, &dtype));
  CHECK(dtype == HEED_I32);
  OK(heed_tensor_device(compared, &text));
  CHECK(strcmp(text, "cpu") == 0);
  heed_text_free(text);
  OK(heed_set_recording(0, &before));
  CHECK(before == 1);
  heed_tensor_free(y);
  OK(heed_unary("exp", leaf, 0, 0, &y));
  OK(heed_tensor_is_tracked(y, &tracked));
  CHECK(tracked == 0);
  OK(heed_set_recording(before, &before));
  CHECK(before == 0);
  FREE(x, leaf, y, total, gradient, turned, compared, two);
}

static void count_release(void* context) {
  ++*(int*)context;
}

static void test_lent_memory(void) {
  float values[6] = {1, 2, 3, 4, 5, 6};
  const float new_values[] = {9, 8, 7, 6, 5, 4};
  const int64_t shape[] = {6}, bad[] = {-6}, other[] = {2, 3}, two[] = {2};
  int released = 0;
  void* address;
  heed_tensor *lent, *view, *column, *none;
  OK(heed_tensor_borrow(HEED_F32, 1, shape, values, count_release, &released, &lent));
  OK(heed_tensor_data(lent, &address));
  CHECK(address == values);
  OK(heed_tensor_assign(lent, new_values, sizeof new_values));
  CHECK(values[0] == 9 && values[5] == 4);
  OK(heed_reshape(lent, 2, other, &view));
  heed_tensor_free(lent);
  CHECK(released == 0); /* the view sees the memory still */
  OK(heed_slice(view, 1, 1, 2, 1, &column));
  OK(heed_reshape(column, 1, two, &none));
  OK(heed_tensor_assign(none, new_values, 2 * sizeof(float)));
  CHECK(values[1] == 9 && values[4] == 8); /* an index of a view gets to the memory, too */
  FREE(column, none);
  heed_tensor_free(view);
  CHECK(released == 1);
  FAILS(heed_tensor_borrow(HEED_F32, 1, bad, values, count_release, &released, &none), HEED_ERROR, "-6");
  FAILS(heed_tensor_borrow(HEED_F32, 1, shape, NULL, count_release, &released, &none), HEED_BAD_ARGUMENT,
        "data is NULL");
  FAILS(heed_tensor_borrow(HEED_F64, 1, shape, (char*)values + 4, NULL, NULL, &none), HEED_BAD_ARGUMENT,
        "aligned to 8");
  FAILS(heed_tensor_borrow(HEED_F16, 1, shape, values, count_release, &released, &none), HEED_BAD_ARGUMENT,
        "f16");
  FAILS(heed_tensor_borrow(HEED_F32, 1, shape, values, count_release, &released, NULL), HEED_BAD_ARGUMENT,
        "out is NULL");
  CHECK(released == 1); /* what was not taken is not given back */
}

/* What a function of the caller's does: x^3, or something wrong. */
enum mode {
  CUBES,
  FORGETS_A_FACTOR,
  FAILS_WITH_WORDS,
  GIVES_NOTHING,
  GIVES_ITS_INPUT,
  FREES_ITS_INPUT,
  GIVES_A_FREED_ONE
};
static const char* const words_of_failure = "no numbers today";

static heed_status function(void* context, heed_tensor* const* inputs, size_t count, heed_tensor** output) {
  const enum mode mode = *(const enum mode*)context;
  heed_tensor *cut, *square;
  heed_status status;
  if (mode == FAILS_WITH_WORDS) {
    heed_set_last_error(words_of_failure);
    return HEED_CALLBACK_FAILED;
  }
  if (mode == GIVES_NOTHING) return HEED_OK;
  if (mode == GIVES_ITS_INPUT) {
    *output = inputs[0];
    return HEED_OK;
  }
  OK(heed_tensor_detach(inputs[0], &cut));
  status = heed_binary("mul", inputs[0], mode == FORGETS_A_FACTOR ? cut : inputs[count - 1], &square);
  heed_tensor_free(cut);
  if (status != HEED_OK) return status;
  status = heed_binary("mul", square, inputs[0], output);
  heed_tensor_free(square);
  if (mode == FREES_ITS_INPUT) heed_tensor_free(inputs[0]);
  if (mode == GIVES_A_FREED_ONE) heed_tensor_free(*output);
  return status;
}

static void test_gradcheck(void) {
  const double values[] = {0.5, -1, 2, 0.25};
  const float single[] = {1, 2};
  enum mode mode = CUBES;
  heed_gradcheck_result result;
  heed_tensor *x = tensor_of(HEED_F64, 2, 2, values), *f32 = tensor_of(HEED_F32, 1, 2, single);
  OK(heed_gradcheck(function, &mode, &x, 1, 0, &result));
  CHECK(result.passed == 1 && result.worst_error < 1e-6 && result.worst_input == 0);
  mode = FORGETS_A_FACTOR;
  OK(heed_gradcheck(function, &mode, &x, 1, 0, &result));
  CHECK(result.passed == 0 && result.worst_error > 0.1);
  mode = GIVES_ITS_INPUT;
  OK(heed_gradcheck(function, &mode, &x, 1, 0, &result));
  CHECK(result.passed == 1);
  mode = FREES_ITS_INPUT;
  OK(heed_gradcheck(function, &mode, &x, 1, 0, &result));
  mode = FAILS_WITH_WORDS;
  FAILS(heed_gradcheck(function, &mode, &x, 1, 0, &result), HEED_CALLBACK_FAILED, words_of_failure);
  mode = GIVES_NOTHING;
  FAILS(heed_gradcheck(function, &mode, &x, 1, 0, &result), HEED_CALLBACK_FAILED, "no output");
  mode = GIVES_A_FREED_ONE;
  FAILS(heed_gradcheck(function, &mode, &x, 1, 0, &result), HEED_BAD_ARGUMENT, "was freed");
  mode = CUBES;
  FAILS(heed_gradcheck(function, &mode, &f32, 1, 0, &result), HEED_ERROR, "f64");
  FAILS(heed_gradcheck(NULL, NULL, &x, 1, 0, &result), HEED_BAD_ARGUMENT, "function is NULL");
  FAILS(heed_gradcheck(function, &mode, NULL, 1, 0, &result), HEED_BAD_ARGUMENT, "inputs is NULL");
  heed_tensor_free(x);
  heed_tensor_free(f32);
}

/* The derivative of twice(): 2 gradient, or as many failures as *context says. */
static heed_status twice_backward(void* context, heed_tensor* gradient, heed_tensor** gradients,
                                  size_t count) {
  int* failing = context;
  heed_tensor* two;
  heed_status status;
  CHECK(count == 1);
  if (*failing > 0) {
    --*failing;
    heed_set_last_error("not today");
    return HEED_ERROR;
  }
  status = heed_scalar_like(gradient, 2, &two);
  if (status == HEED_OK) status = heed_binary("mul", gradient, two, &gradients[0]);
  heed_tensor_free(two);
  return status;
}

static void count_twice_release(void* context) {
  ++((int*)context)[1];
}

static void test_own_op(void) {
  const float values[] = {1, 2, 3, 4}, doubled[] = {2, 4, 6, 8}, slopes[] = {2, 2, 2, 2};
  int state[2] = {0, 0}; /* failures to come, releases */
  heed_tensor *x = tensor_of(HEED_F32, 2, 2, values), *value = tensor_of(HEED_F32, 2, 2, doubled), *leaf, *y,
              *sum, *gradient;
  OK(heed_tensor_parameter(x, &leaf));
  OK(heed_record("twice", value, &leaf, 1, twice_backward, count_twice_release, state, &y));
  OK(heed_reduce("sum", y, HEED_ALL_AXES, 0, &sum));
  OK(heed_backward(sum, NULL));
  OK(heed_tensor_gradient(leaf, &gradient));
  CHECK(holds(gradient, slopes, 4));
  FREE(sum, y);
  CHECK(state[1] == 1);
  state[0] = 1;
  OK(heed_record("twice", value, &leaf, 1, twice_backward, count_twice_release, state, &y));
  OK(heed_reduce("sum", y, HEED_ALL_AXES, 0, &sum));
  FAILS(heed_backward(sum, NULL), HEED_CALLBACK_FAILED, "twice failed: not today");
  FREE(sum, y);
  CHECK(state[1] == 2);
  OK(heed_record("twice", value, &x, 1, twice_backward, count_twice_release, state, &y)); /* not tracked */
  CHECK(state[1] == 3);
  heed_tensor_free(y);
  FAILS(heed_record(NULL, value, &leaf, 1, twice_backward, count_twice_release, state, &y), HEED_BAD_ARGUMENT,
        "name is NULL");
  FAILS(heed_record("twice", value, &leaf, 1, NULL, count_twice_release, state, &y), HEED_BAD_ARGUMENT,
        "backward is NULL");
  CHECK(state[1] == 3);
  FREE(x, leaf, value, gradient);
}

/* The mean of the values that a query may see is their first: the value of its own position. */
static heed_status own_value(void* context, const char* config, heed_tensor* const* inputs, size_t count,
                             heed_context* pass, heed_tensor** output) {
  CHECK(context == NULL && pass != NULL && count == 8 && inputs[1] == NULL && inputs[2] == NULL);
  CHECK(strstr(config, "\"power\":3") != NULL && strstr(config, "\"heads\":2") != NULL);
  return heed_binary("mul", inputs[6], inputs[7], output);
}

static heed_status one_number(void* context, const char* config, heed_tensor** parameters, size_t count) {
  const float value = 0.5f;
  (void)context;
  CHECK(count == 1 && strstr(config, "\"seed\":") != NULL);
  return heed_tensor_create(HEED_F32, 0, NULL, &value, "cpu", &parameters[0]);
}

static void test_own_attention(void) {
  const char* declared = "{\"causal\": true, \"settings.power\": 2, \"parameters\": [\"scale\"]}";
  const int64_t shape[] = {1, 3, 4};
  const heed_tensor* inputs[1];
  heed_module* layer;
  heed_tensor *x, *y, *found[2];
  size_t made;
  const char* name;
  OK(heed_register_attention("own_value", declared, one_number, own_value, NULL));
  FAILS(heed_register_attention("own_value", declared, one_number, own_value, NULL), HEED_BAD_SETTINGS,
        "taken");
  FAILS(heed_register_attention("own", declared, NULL, own_value, NULL), HEED_BAD_ARGUMENT,
        "initial is NULL");
  FAILS(heed_register_attention("own", "{\"causl\": true}", NULL, own_value, NULL), HEED_BAD_SETTINGS,
        "causal");
  OK(heed_attention_create("own_value", "{\"width\": 4, \"heads\": 2, \"causal\": true, \"power\": 3}",
                           &layer));
  OK(heed_module_parameter(layer, 4, &name, NULL));
  CHECK(strcmp(name, "output.weight") == 0 || strcmp(name, "scale") == 0);
  OK(heed_tensor_random("normal", 0, 1, 1, 0, 0, HEED_F32, 3, shape, "cpu", &x));
  OK(heed_attention_forward(layer, x, NULL, NULL, NULL, NULL, &y));
  inputs[0] = x;
  OK(heed_op("sort", inputs, 1, "{\"descending\": true}", found, 2, &made));
  CHECK(made == 2);
  FREE(found[0], found[1]);
  FAILS(heed_op("sort", inputs, 1, NULL, found, 1, &made), HEED_BAD_ARGUMENT, "room for 1");
  CHECK(made == 0 && found[0] == NULL);
  OK(heed_op("pad", inputs, 1, "{\"value\": \"-inf\", \"after\": 1}", found, 1, NULL));
  heed_tensor_free(found[0]);
  FAILS(heed_op("pad", inputs, 1, "{\"value\": \"low\", \"after\": 1}", found, 1, NULL), HEED_ERROR,
        "'-inf'");
  FAILS(heed_op("srot", inputs, 1, NULL, found, 1, NULL), HEED_ERROR, "did you mean 'sort'");
  FREE(x, y);
  heed_module_free(layer);
}

/* A layer whose parameters an optimizer moves, saved and read again. */
static void test_modules(const char* file) {
  const int64_t shape[] = {2, 5, 8};
  const int32_t mask_values[] = {1, 1, 1, 0, 0, 1, 1, 1, 1, 1};
  heed_module *layer, *same;
  heed_optimizer* sgd;
  heed_context* context;
  heed_tensor *x, *mask, *y, *loss, *extra, *parameters[32];
  float before[64], after[64], read[64];
  const char *name, *whole = "";
  char* list;
  size_t count, i;
  const char* settings = "{\"width\": 8, \"heads\": 2, \"clusters\": 2, \"seed\": 7}";
  OK(heed_attention_create("clusterformer", settings, &layer));
  OK(heed_attention_create("clusterformer", settings, &same));
  OK(heed_module_parameter_count(layer, &count));
  CHECK(count > 3 && count < 32);
  for (i = 0; i < count; ++i) OK(heed_module_parameter(layer, i, &name, &parameters[i]));
  CHECK(strlen(name) > 0);
  FAILS(heed_module_parameter(layer, count, &name, &x), HEED_BAD_ARGUMENT, "parameters");
  CHECK(name == NULL && x == NULL);
  OK(heed_tensor_random("normal", 0, 1, 1, 0, 0, HEED_F32, 3, shape, "cpu", &x));
  mask = tensor_of(HEED_I32, 2, 5, mask_values);
  OK(heed_context_create(1, 3, 1, &context));
  OK(heed_attention_forward(layer, x, mask, NULL, NULL, context, &y));
  OK(heed_context_auxiliary_loss(context, &extra));
  CHECK(extra != NULL); /* ClusterFormer's clustering */
  OK(heed_reduce("sum", y, HEED_ALL_AXES, 0, &loss));
  OK(heed_backward(loss, NULL));
  OK(heed_optimizer_create("sgd", "{\"clip_norm\": 1}", parameters, count, &sgd));
  OK(heed_tensor_read(parameters[count - 1], before, sizeof before));
  OK(heed_optimizer_step(sgd, 0.5));
  OK(heed_tensor_read(parameters[count - 1], after, sizeof after));
  CHECK(memcmp(before, after, sizeof before) != 0);
  OK(heed_optimizer_zero_gradients(sgd));
  FAILS(heed_optimizer_step(sgd, 0.5), HEED_ERROR, "no parameter has a gradient");
  FAILS(heed_optimizer_step(sgd, -1), HEED_ERROR, "learning rate");
  remove(file);
  OK(heed_save(file, &whole, (const void*[]){layer}, 1));
  OK(heed_load(file, &whole, (const void*[]){same}, 1));
  heed_tensor_free(y);
  OK(heed_module_parameter(same, count - 1, NULL, &y));
  OK(heed_tensor_read(y, read, sizeof read));
  CHECK(memcmp(after, read, sizeof read) == 0);
  remove(file);
  FAILS(heed_load(file, &whole, (const void*[]){same}, 1), HEED_ERROR, file);

  {
    heed_optimizer* none;
    heed_module* no_layer;
    heed_tensor* no_tensor;
    FAILS(heed_optimizer_create("adam", "{\"beta3\": 1}", parameters, 1, &none), HEED_BAD_SETTINGS, "beta3");
    FAILS(heed_optimizer_create("adam", "[1]", parameters, 1, &none), HEED_BAD_SETTINGS, "object");
    FAILS(heed_optimizer_create("adam", NULL, &x, 1, &none), HEED_ERROR, "leaf");
    FAILS(heed_tensor_set_hidden_map(x, 0), HEED_ERROR, "leaf");
    FAILS(heed_attention_create("fastformer", "{", &no_layer), HEED_BAD_SETTINGS, "JSON");
    FAILS(heed_attention_create("fastformer", "{\"width\": \"8\"}", &no_layer), HEED_BAD_SETTINGS, "width");
    FAILS(heed_attention_forward(layer, x, x, NULL, NULL, NULL, &no_tensor), HEED_ERROR, "mask");
  }
  OK(heed_list("attention", &list));
  CHECK(strstr(list, "\"clusterformer\"") != NULL);
  heed_text_free(list);
  free_all(parameters, count);
  FREE(x, mask, y, loss, extra);
  heed_context_free(context);
  heed_optimizer_free(sgd);
  heed_module_free(layer);
  heed_module_free(same);
}

/* Handles that are none: NULL, of another type, freed, invented. */
static void test_handles(void) {
  const float values[] = {1, 2};
  int not_ours = 5;
  heed_tensor *x = tensor_of(HEED_F32, 1, 2, values), *y, *freed = tensor_of(HEED_F32, 1, 2, values);
  heed_module* layer;
  heed_tensor_free(freed);
  OK(heed_attention_create("dot_product", "{\"width\": 4}", &layer));
  FAILS(heed_unary("exp", NULL, 0, 0, &y), HEED_BAD_ARGUMENT, "heed_unary: x is NULL");
  FAILS(heed_unary("exp", freed, 0, 0, &y), HEED_BAD_ARGUMENT, "was freed");
  FAILS(heed_unary("exp", (heed_tensor*)layer, 0, 0, &y), HEED_BAD_ARGUMENT, "is a heed_module where");
  FAILS(heed_unary("exp", (heed_tensor*)&not_ours, 0, 0, &y), HEED_BAD_ARGUMENT, "x is");
  FAILS(heed_unary("exp", (heed_tensor*)(uintptr_t)0x7fffffff9, 0, 0, &y), HEED_BAD_ARGUMENT, "not a handle");
  FAILS(heed_optimizer_step((heed_optimizer*)x, 1), HEED_BAD_ARGUMENT, "heed_tensor where a heed_optimizer");
  heed_set_last_error("");
  heed_tensor_free(freed); /* twice: nothing happens, but it is told */
  CHECK(strstr(heed_last_error(), "was freed") != NULL);
  heed_tensor_free((heed_tensor*)layer);
  CHECK(strstr(heed_last_error(), "is a heed_module") != NULL);
  OK(heed_module_parameter_count(layer, &(size_t){0}));
  heed_module_free(layer);
  heed_tensor_free(x);
}

/* Arguments that are wrong by themselves. */
static void test_arguments(void) {
  const float values[] = {1, 2, 3, 4};
  const int64_t shape[] = {2, 2}, huge[] = {INT64_MAX, 4}, far_order[] = {0, INT64_C(1) << 32},
                huge_and_none[] = {0, INT64_MAX, 4};
  float little[2];
  size_t count;
  char* text;
  heed_run* run;
  heed_context* context;
  heed_module* module;
  heed_tensor *x = tensor_of(HEED_F32, 2, 2, values), *y, *list[2];
  list[0] = x, list[1] = NULL;
  FAILS(heed_tensor_create(9, 2, shape, NULL, NULL, &y), HEED_BAD_ARGUMENT, "dtype is 9");
  FAILS(heed_tensor_create(HEED_F32, 9, shape, NULL, NULL, &y), HEED_BAD_ARGUMENT, "rank is 9");
  FAILS(heed_tensor_create(HEED_F32, -1, shape, NULL, NULL, &y), HEED_BAD_ARGUMENT, "rank is -1");
  FAILS(heed_tensor_create(HEED_F32, 2, NULL, NULL, NULL, &y), HEED_BAD_ARGUMENT, "shape is NULL");
  FAILS(heed_tensor_create(HEED_F32, 2, shape, NULL, "tpu", &y), HEED_ERROR, "tpu");
  FAILS(heed_tensor_create(HEED_F16, 2, shape, NULL, "cpu", &y), HEED_ERROR, "f16");
  FAILS(heed_tensor_create(HEED_F32, 2, shape, NULL, "cpu", NULL), HEED_BAD_ARGUMENT, "out is NULL");
  FAILS(heed_tensor_random("cauchy", 0, 1, 0, 0, 0, HEED_F32, 2, shape, NULL, &y), HEED_ERROR, "cauchy");
  FAILS(heed_tensor_read(x, little, sizeof little), HEED_BAD_ARGUMENT, "8 bytes");
  FAILS(heed_tensor_read(x, NULL, 16), HEED_BAD_ARGUMENT, "NULL");
  FAILS(heed_tensor_assign(x, values, 4), HEED_BAD_ARGUMENT, "4 bytes");
  FAILS(heed_unary("sinus", x, 0, 0, &y), HEED_ERROR, "did you mean 'sin'");
  FAILS(heed_unary(NULL, x, 0, 0, &y), HEED_BAD_ARGUMENT, "op is NULL");
  FAILS(heed_binary("exp", x, x, &y), HEED_ERROR, "binary");
  FAILS(heed_compare("add", x, x, &y), HEED_ERROR, "comparing");
  FAILS(heed_reduce("sum", x, HEED_ALL_AXES, 1, &y), HEED_BAD_ARGUMENT, "not HEED_ALL_AXES");
  FAILS(heed_permute(x, 2, far_order, &y), HEED_ERROR, "4294967296");
  FAILS(heed_reshape(x, 2, huge, &y), HEED_ERROR, "reshape");
  FAILS(heed_tensor_borrow(HEED_F32, 3, huge_and_none, (void*)little, NULL, NULL, &y), HEED_ERROR, "size");
  FAILS(heed_op("concat", (const heed_tensor* const*)list, 2, NULL, &y, 1, NULL), HEED_BAD_ARGUMENT,
        "inputs[1] is NULL");
  FAILS(heed_cast(x, 77, &y), HEED_BAD_ARGUMENT, "dtype is 77");
  FAILS(heed_attention_create("dot_product", "{\"widht\": 16}", &module), HEED_BAD_SETTINGS,
        "did you mean 'width'");
  FAILS(heed_list("operations", &text), HEED_ERROR, "operations");
  FAILS(heed_run_open("/nowhere/at/all", NULL, &run), HEED_ERROR, "/nowhere/at/all");
  CHECK(run == NULL);
  FAILS(heed_run_open("/nowhere", "{\"wieghts\": \"best\"}", &run), HEED_BAD_SETTINGS, "weights");
  FAILS(heed_run_open("/nowhere", "{\"settings\": [\"threads=2\"]}", &run), HEED_BAD_SETTINGS,
        "set_cpu_threads");
  FAILS(heed_run_open(NULL, NULL, &run), HEED_BAD_ARGUMENT, "folder is NULL");
  FAILS(heed_run_predict(NULL, NULL, 0, NULL, &text), HEED_BAD_ARGUMENT, "run is NULL");
  FAILS(heed_run_model(NULL, &module), HEED_BAD_ARGUMENT, "run is NULL");
  FAILS(heed_module_parameter_count(NULL, &count), HEED_BAD_ARGUMENT, "module is NULL");
  FAILS(heed_context_auxiliary_loss(NULL, &y), HEED_BAD_ARGUMENT, "context is NULL");
  FAILS(heed_context_create(0, 0, 0, NULL), HEED_BAD_ARGUMENT, "out is NULL");
  OK(heed_context_create(0, 0, 0, &context));
  heed_context_free(context);
  heed_tensor_free(x);
}

/* Counts the records of a training, and ends it at the step that *context names. */
struct seen {
  int records, messages, stop_at;
};
static heed_status see(void* context, const char* record) {
  struct seen* seen = context;
  char step[32];
  if (strstr(record, "\"message\"")) {
    ++seen->messages;
    return HEED_OK;
  }
  ++seen->records;
  snprintf(step, sizeof step, "\"step\":%d,", seen->stop_at);
  if (!strstr(record, step)) return HEED_OK;
  heed_set_last_error("it is enough");
  return HEED_ERROR;
}

/* Lines that are too long fail the call, or have their own errors. */
static void test_lines_without_answers(heed_run* run) {
  static char longer[4001];
  const char* lines[] = {"a good one", longer, longer};
  heed_queue* queue = NULL;
  char* text = NULL;
  for (size_t i = 0; i < 2000; ++i) memcpy(longer + 2 * i, "x ", 3);
  FAILS(heed_run_predict(run, lines, 3, NULL, &text), HEED_ERROR, "lines[1] cannot be answered: ");
  FAILS(heed_run_predict(run, lines, 3, "{\"first_line\": 1024}", &text), HEED_ERROR, "lines[1025]");
  OK(heed_run_predict(run, lines, 3, "{\"errors\": \"return\"}", &text));
  CHECK(strstr(text, "{\"text\":\"") && strstr(text, "{\"error\":\"") && strstr(text, "data.max_tokens"));
  heed_text_free(text);
  FAILS(heed_run_predict(run, lines, 1, "{\"errors\": \"ignore\"}", &text), HEED_BAD_SETTINGS, "return");
  OK(heed_queue_create(run, NULL, &queue));
  FAILS(heed_queue_answer(queue, longer, &text), HEED_ERROR, "cannot be answered");
  FAILS(heed_queue_answer(queue, " ", &text), HEED_ERROR, "the text is blank");
  heed_queue_free(queue);
  OK(heed_queue_create(run, "{\"errors\": \"return\"}", &queue));
  OK(heed_queue_answer(queue, longer, &text));
  CHECK(strstr(text, "{\"error\":\"") == text);
  heed_text_free(text);
  heed_queue_free(queue);
}

static void test_training(const char* folder) {
  const char* settings =
      "{\"device\": \"cpu\", \"training\": {\"steps\": 4, \"log_every\": 1}, \"model.width\": 16, "
      "\"model.feed_forward\": 32, \"attention\": \"fastformer\", \"data.valid_fraction\": 0, "
      "\"data.long_texts\": \"error\"}";
  const char* cells[] = {"a good film",    "a \"bad\"\nfilm",
                         "good\tand fine", "bad and dull",
                         "good",           "bad",
                         "good",           "bad",
                         "good",           "bad",
                         "good",           "bad"};
  const char* lines[] = {"a good one", "a bad one"};
  const char *nothing[] = {NULL, "a"}, *no_utf8[] = {"caf\xe9", "a"};
  const heed_examples examples = {"train", 2, 6, cells};
  heed_examples wrong = examples;
  struct seen seen = {0, 0, 3};
  heed_run* run = NULL;
  heed_tensor* logits = NULL;
  char* text = NULL;

  FAILS(heed_train("classify", settings, &examples, 1, folder, see, &seen, &run), HEED_CALLBACK_FAILED,
        "it is enough");
  CHECK(run == NULL && seen.records == 3 && seen.messages > 0);
  seen.stop_at = 0;
  OK(heed_train(NULL, "{\"resume\": true}", NULL, 0, folder, see, &seen, &run));
  CHECK(seen.records == 4);
  OK(heed_run_describe(run, &text));
  CHECK(strstr(text, "\"classes\":[\"bad\",\"good\"]") && strstr(text, "fastformer") != NULL);
  heed_text_free(text);
  OK(heed_run_predict(run, lines, 2, NULL, &text));
  CHECK(strstr(text, "\"probability\"") != NULL);
  heed_text_free(text);
  test_lines_without_answers(run);
  OK(heed_run_measure_examples(run, &examples, &text));
  CHECK(strstr(text, "\"accuracy\"") != NULL);
  heed_text_free(text);
  OK(heed_run_outputs(run, lines, 2, NULL, &logits));
  heed_tensor_free(logits);
  heed_run_free(run);

  wrong.rows = 1;
  wrong.cells = nothing;
  FAILS(heed_train("classify", NULL, &wrong, 1, "/nowhere/x", NULL, NULL, NULL), HEED_BAD_ARGUMENT, "row 0");
  wrong.cells = no_utf8;
  FAILS(heed_train("classify", NULL, &wrong, 1, "/nowhere/x", NULL, NULL, NULL), HEED_ERROR, "is not UTF-8");
  wrong.cells = NULL;
  FAILS(heed_train("classify", NULL, &wrong, 1, "/nowhere/x", NULL, NULL, NULL), HEED_BAD_ARGUMENT, "NULL");
  wrong = examples;
  wrong.part = "tarin";
  FAILS(heed_train("classify", NULL, &wrong, 1, "/nowhere/x", NULL, NULL, NULL), HEED_ERROR,
        "did you mean 'train'");
  FAILS(heed_train("classify", "[]", &examples, 1, "/nowhere/x", NULL, NULL, NULL), HEED_BAD_SETTINGS,
        "object");
  FAILS(heed_train("classify", NULL, NULL, 1, "/nowhere/x", NULL, NULL, NULL), HEED_BAD_ARGUMENT, "examples");
  FAILS(heed_train(NULL, NULL, NULL, 0, "/nowhere/x", NULL, NULL, NULL), HEED_BAD_ARGUMENT, "task is NULL");
}

/* What the pieces of a text make, as JSON has it. */
struct written {
  char json[1000];
  size_t used, zeros;
};

static int32_t take(void* context, const char* piece, size_t size) {
  struct written* all = context;
  for (size_t i = 0; i < size && all->used + 8 < sizeof(all->json); ++i) {
    const int zero = piece[i] == '\0';
    all->used += (size_t)sprintf(all->json + all->used, zero ? "\\u%04x" : "%c", piece[i]);
    all->zeros += (size_t)zero;
  }
  return 0;
}

static int32_t take_text(void* context, const char* piece) {
  return take(context, piece, strlen(piece));
}

/* Texts of a, U+0000 and b, with a token for each byte. */
static void test_zeros_in_text(const char* folder) {
  char path[1000], settings[3000];
  snprintf(path, sizeof path, "%s.jsonl", folder);
  snprintf(
      settings, sizeof settings,
      "{\"data.file\": \"%s\", \"data.valid\": \"%s\", \"data.format\": \"jsonl\", \"device\": \"cpu\", "
      "\"model.max_length\": 32, \"model.width\": 16, \"model.heads\": 2, \"tokenizer.vocabulary\": 262, "
      "\"training\": {\"steps\": 40, \"batch_tokens\": 256, \"schedule.learning_rate\": 0.01}}",
      path, path);
  FILE* file = fopen(path, "w");
  CHECK(file != NULL);
  if (!file) return;
  for (int i = 0; i < 30; ++i) fputs("{\"text\": \"a\\u0000ba\\u0000ba\\u0000ba\\u0000ba\\u0000b\"}\n", file);
  fclose(file);

  heed_run* run = NULL;
  struct written all = {"", 0, 0};
  char* answer = NULL;
  OK(heed_train("language_model", settings, NULL, 0, folder, NULL, NULL, &run));
  OK(heed_run_stream_bytes(run, "a", take, &all, &answer));
  CHECK(all.zeros > 0);
  CHECK(answer && strstr(answer, all.json) != NULL);
  heed_text_free(answer);
  OK(heed_run_generate(run, "a", "{\"max_tokens\": 3, \"samples\": 2, \"seed\": 4}", &answer));
  CHECK(answer && strstr(answer, "},{\"text\"") != NULL);
  heed_text_free(answer);
  FAILS(heed_run_generate(run, "a", "{\"max_tokens\": 0}", &answer), HEED_BAD_SETTINGS, "max_tokens");
  all = (struct written){"", 0, 0};
  OK(heed_run_generate_stream(run, "a", "{\"max_tokens\": 3, \"temperature\": 0}", take, &all, &answer));
  CHECK(answer && all.json[0] && strstr(answer, all.json) != NULL);
  heed_text_free(answer);
  FAILS(heed_run_generate_stream(run, "a", "{\"samples\": 2}", take, &all, &answer), HEED_ERROR,
        "samples is 2");
  const char* texts[] = {"ab", "b"};
  OK(heed_run_encode(run, texts, 2, 0, 1, 1, &answer));
  CHECK(answer && strstr(answer, "\"tokens\":[\"b\"],\"bytes\":[[98]]}") != NULL);
  heed_text_free(answer);
  OK(heed_run_tokenizer(run, 0, &answer));
  CHECK(answer && strstr(answer, "{\"size\":") == answer);
  heed_text_free(answer);
  int64_t ids[] = {0, 1 << 20};
  OK(heed_run_decode(run, ids, 1, 0, 1, &answer));
  CHECK(answer && answer[0] == '"');
  heed_text_free(answer);
  FAILS(heed_run_decode(run, ids, 2, 0, 1, &answer), HEED_BAD_ARGUMENT, "ids[1] is 1048576");
  heed_tensor* states = NULL;
  OK(heed_run_hidden(run, texts, 2, NULL, &states));
  heed_tensor_free(states);
  FAILS(heed_run_generate(run, "a", "{\"max_token\": 3}", &answer), HEED_BAD_SETTINGS, "max_token");
  FAILS(heed_run_stream(run, "a", take_text, &all, &answer), HEED_ERROR, "heed_run_stream_bytes");
  FAILS(heed_run_stream_bytes(run, "a", NULL, &all, &answer), HEED_BAD_ARGUMENT, "on_bytes is NULL");
  heed_run_free(run);
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: c_api_test FILE FOLDER FOLDER\n");
    return 2;
  }
  CHECK(heed_abi_version() == HEED_ABI_VERSION);
  CHECK(strlen(heed_version()) > 0);
  CHECK(strcmp(heed_last_error(), "") == 0);
  test_values();
  test_lent_memory();
  test_gradcheck();
  test_own_op();
  test_own_attention();
  test_modules(argv[1]);
  test_handles();
  test_arguments();
  test_training(argv[2]);
  test_zeros_in_text(argv[3]);
  heed_tensor_free(NULL);
  heed_text_free(NULL);
  CHECK(heed_live_handles() == 0);
  return failures > 0;
}
