/*
 * heed from C: an attention layer with an output map learns to tell which sequences hold a pattern; mistakes come
 * back as statuses; and a run that a program of heed trained answers lines.
 *
 *   c_api [RUN] < lines
 */

#include <heed/c/heed.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What is wrong ends the program, in this one. */
static void must(heed_status status) {
  if (status == HEED_OK) return;
  fprintf(stderr, "c_api: %s\n", heed_last_error());
  exit(1);
}

enum { BATCH = 64, LENGTH = 8, WIDTH = 16, CLASSES = 2, MOST_PARAMETERS = 32 };

typedef struct model {
  heed_module* attention;
  heed_tensor *output, *bias; /* [CLASSES, WIDTH], [CLASSES] */
  heed_tensor* parameters[MOST_PARAMETERS];
  size_t count;
} model;

static void make_model(model* m) {
  const int64_t shape[] = {CLASSES, WIDTH};
  heed_tensor* initial;
  size_t i;
  must(heed_attention_create("fastformer", "{\"width\": 16, \"heads\": 2, \"seed\": 1}", &m->attention));
  must(heed_tensor_random("uniform", -0.3, 0.3, 2, 0, 0, HEED_F32, 2, shape, "cpu", &initial));
  must(heed_tensor_parameter(initial, &m->output));
  heed_tensor_free(initial);
  must(heed_tensor_create(HEED_F32, 1, shape, NULL, "cpu", &initial));
  must(heed_tensor_parameter(initial, &m->bias));
  heed_tensor_free(initial);
  must(heed_module_parameter_count(m->attention, &m->count));
  if (m->count + 2 > MOST_PARAMETERS) exit(1);
  for (i = 0; i < m->count; ++i) must(heed_module_parameter(m->attention, i, NULL, &m->parameters[i]));
  m->parameters[m->count++] = m->output;
  m->parameters[m->count++] = m->bias;
}

static void free_model(model* m) {
  size_t i;
  for (i = 0; i < m->count; ++i) heed_tensor_free(m->parameters[i]);
  heed_module_free(m->attention);
}

/* Sequences of noise; those of class 1 hold the pattern (3, 3, 3, ...) somewhere. */
static void make_batch(uint32_t step, heed_tensor** x, heed_tensor** labels) {
  const int64_t shape[] = {BATCH, LENGTH, WIDTH}, rows[] = {BATCH};
  static float values[BATCH * LENGTH * WIDTH];
  int32_t targets[BATCH];
  int b, i;
  heed_tensor* noise;
  must(heed_tensor_random("normal", 0, 1, 3, step, 0, HEED_F32, 3, shape, "cpu", &noise));
  must(heed_tensor_read(noise, values, sizeof values));
  heed_tensor_free(noise);
  for (b = 0; b < BATCH; ++b) {
    targets[b] = b % CLASSES;
    for (i = 0; i < WIDTH && targets[b] == 1; ++i) values[(b * LENGTH + b % LENGTH) * WIDTH + i] = 3;
  }
  must(heed_tensor_create(HEED_F32, 3, shape, values, "cpu", x));
  must(heed_tensor_create(HEED_I32, 1, rows, targets, "cpu", labels));
}

/* Logits [BATCH, CLASSES]: mean over the positions of the attention's output, times the output map. */
static heed_tensor* logits_of(const model* m, const heed_tensor* x, heed_context* context) {
  heed_tensor *attended, *pooled, *logits;
  must(heed_attention_forward(m->attention, x, NULL, NULL, NULL, context, &attended));
  must(heed_reduce("mean", attended, 1, 0, &pooled));
  must(heed_linear(pooled, m->output, m->bias, &logits));
  heed_tensor_free(attended);
  heed_tensor_free(pooled);
  return logits;
}

static double train(model* m, int steps) {
  heed_optimizer* adam;
  double loss = 0;
  int step;
  must(heed_optimizer_create("adam", "{\"clip_norm\": 1}", m->parameters, m->count, &adam));
  for (step = 1; step <= steps; ++step) {
    heed_tensor *x, *labels, *logits, *rows, *mean;
    heed_context* context;
    make_batch((uint32_t)step, &x, &labels);
    must(heed_context_create(1, 4, (uint32_t)step, &context));
    logits = logits_of(m, x, context);
    must(heed_cross_entropy(logits, labels, 0, &rows));
    must(heed_reduce("mean", rows, HEED_ALL_AXES, 0, &mean));
    must(heed_backward(mean, NULL));
    must(heed_optimizer_step(adam, 1e-2));
    must(heed_optimizer_zero_gradients(adam));
    must(heed_tensor_item(mean, &loss));
    if (step % 100 == 0) printf("step %d, loss %.4f\n", step, loss);
    heed_tensor_free(x);
    heed_tensor_free(labels);
    heed_tensor_free(logits);
    heed_tensor_free(rows);
    heed_tensor_free(mean);
    heed_context_free(context);
  }
  heed_optimizer_free(adam);
  return loss;
}

/* What is wrong is a status and words, and the program goes on. */
static int mistakes_are_reported(void) {
  const int64_t shape[] = {2, 3};
  heed_tensor *a, *product;
  heed_module* layer;
  int all;
  must(heed_tensor_create(HEED_F32, 2, shape, NULL, "cpu", &a));
  all = heed_matmul(a, a, &product) == HEED_ERROR;
  printf("an error: %s\n", heed_last_error());
  all &= heed_attention_create("clusterfromer", NULL, &layer) == HEED_BAD_SETTINGS;
  printf("an error: %s\n", heed_last_error());
  heed_tensor_free(a);
  all &= heed_unary("exp", a, 0, 0, &product) == HEED_BAD_ARGUMENT && product == NULL;
  printf("an error: %s\n", heed_last_error());
  return all;
}

static void answer_lines(const char* folder) {
  char line[4096];
  heed_run* run;
  must(heed_run_open(folder, NULL, &run));
  while (fgets(line, sizeof line, stdin)) {
    const char* lines[1];
    char *answers, *end = line;
    while (*end && *end != '\n') ++end;
    *end = 0;
    lines[0] = line;
    must(heed_run_predict(run, lines, 1, "{\"errors\": \"return\"}", &answers));
    printf("%s\n", answers);
    heed_text_free(answers);
  }
  heed_run_free(run);
}

int main(int argc, char** argv) {
  model m;
  double loss;
  int right;
  if (heed_abi_version() != HEED_ABI_VERSION) return 2;
  if (argc > 1) {
    answer_lines(argv[1]);
    return 0;
  }
  right = mistakes_are_reported();
  make_model(&m);
  loss = train(&m, 300);
  free_model(&m);
  return right && isfinite(loss) && loss < 0.1 && heed_live_handles() == 0 ? 0 : 1;
}
