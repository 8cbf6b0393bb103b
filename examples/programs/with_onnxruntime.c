/* ONNX Runtime as a program that the suite asks (docs/protocol.md), without Python, a JSON library or headers of ONNX Runtime.
   cc with_onnxruntime.c -o with_onnxruntime -ldl
   python -m conformance --backend 'exec:./with_onnxruntime onnxruntime/lib/libonnxruntime.so' */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { /* OrtApi, in which every function has the same place in all releases; a void * is one that is not called */
  void *before2[2];
  const char *(*error_message)(void *status);
  void *(*create_env)(int severity, const char *id, void **env), *before7[3];
  void *(*create_session)(void *env, const char *path, void *options, void **session), *before9;
  void *(*run)(void *session, void *, const char **names, void **inputs, size_t, const char **, size_t, void **outputs);
  void *(*create_options)(void **options), *before49[38];
  void *(*create_tensor)(void *memory, void *data, size_t, const int64_t *shape, size_t, int type, void **value), *before51;
  void *(*tensor_data)(void *value, void **data), *before60[8];
  void *(*element_type)(void *info, int *type);
  void *(*axes)(void *info, size_t *count);
  void *(*lengths)(void *info, int64_t *shape, size_t count), *before64;
  void *(*element_count)(void *info, size_t *count);
  void *(*type_and_shape)(void *value, void **info), *before69[3];
  void *(*create_memory)(int allocator, int type, void **memory), *before93[23];
  void (*release_status)(void *), *before95;
  void (*release_session)(void *), (*release_value)(void *), *before99[2];
  void (*release_info)(void *);
} Api;
typedef struct { const Api *(*get_api)(uint32_t version); } ApiBase;
typedef struct { const char *name; int number; size_t size; } Type;

static const Type types[] = {{"float", 1, 4}, {"int64", 7, 8}, {"float16", 10, 2}, {"double", 11, 8}, {"uint32", 12, 4}, {0}};
static const Api *api;
static void *env, *options, *memory, *session;
static char loaded[64], problem[400]; /* the model of the session, and why the current request has no outputs */

static int fails(void *status) { /* keeps a message in characters that need no escape in JSON */
  if (!status) return 0;
  snprintf(problem, sizeof problem, "%s", api->error_message(status));
  api->release_status(status);
  for (char *at = problem; *at; at++)
    if (*at < 32 || *at == 127 || *at == '"' || *at == '\\') *at = ' ';
  return 1;
}

/* The fields of a request have a fixed order, so `at` only moves on. */
static char *after(char **at, const char *key) {
  char *found = strstr(*at, key);
  if (!found) exit((fprintf(stderr, "a request has no %s\n", key), 1));
  return *at = found + strlen(key);
}
static char *word(char **at, const char *key) { /* ends the word with a zero in place of its quote */
  char *begin = after(at, key), *end = strchr(begin, '"');
  *end = 0;
  *at = end + 1;
  return begin;
}

static int load(const char *model) { /* the calls of a session follow each other, and have the same model */
  if (session && !strcmp(model, loaded)) return 1;
  if (session) api->release_session(session);
  session = NULL;
  snprintf(loaded, sizeof loaded, "%s", model);
  return !fails(api->create_session(env, model, options, &session));
}

static void *read_tensor(char **at, const char **name, void **data) { /* NULL if its type is unsupported */
  *name = word(at, "\"name\":\"");
  const char *type_name = word(at, "\"type\":\"");
  const Type *type = types;
  while (type->name && strcmp(type->name, type_name)) type++;
  int64_t shape[32];
  size_t axes = 0, size = type->size;
  for (after(at, "\"shape\":["); **at != ']'; *at += **at == ',') size *= shape[axes++] = strtoll(*at, at, 10);
  FILE *file = fopen(word(at, "\"file\":\""), "rb");
  *at += 1 + ((*at)[1] == ','); /* behind the brace, and the comma before the next tensor */
  *data = malloc(size + 1);
  if (!file || !*data || fread(*data, 1, size, file) != size) exit((fprintf(stderr, "cannot read %s\n", *name), 1));
  fclose(file);
  void *value = NULL;
  if (type->name && fails(api->create_tensor(memory, *data, size, shape, axes, type->number, &value))) exit(1);
  return value;
}

static void write_tensor(void *value, const char *name, const char *separator) {
  void *info, *data;
  size_t axes, count;
  int number;
  int64_t shape[32];
  if (fails(api->type_and_shape(value, &info)) || fails(api->element_type(info, &number)) || fails(api->axes(info, &axes)) ||
      axes > 32 || fails(api->lengths(info, shape, axes)) || fails(api->element_count(info, &count)) ||
      fails(api->tensor_data(value, &data)))
    exit((fprintf(stderr, "%s\n", problem), 1));
  const Type *type = types;
  while (type->name && type->number != number) type++;
  char path[64];
  snprintf(path, sizeof path, "%.59s.out", name);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, type->size, count, file) != count || fclose(file)) exit((perror(path), 1));
  printf("%s{\"name\":\"%s\",\"type\":\"%s\",\"shape\":[", separator, name, type->name);
  for (size_t i = 0; i < axes; i++) printf("%s%lld", i ? "," : "", (long long)shape[i]);
  printf("],\"file\":\"%s\"}", path);
  api->release_info(info);
}

static void run(char *at) {
  const char *names[8], *wanted[8], *kind = "refused";
  void *inputs[8], *data[8], *outputs[8] = {NULL};
  size_t given = 0, asked = 0;
  const char *model = word(&at, "\"model\":\"");
  for (after(&at, "\"inputs\":["); *at == '{'; given++) {
    inputs[given] = read_tensor(&at, &names[given], &data[given]);
    if (!inputs[given]) kind = "unsupported";
  }
  for (after(&at, "\"outputs\":["); *at == '"'; at += *at == ',') wanted[asked++] = word(&at, "\"");
  if (*word(&at, "\"domain\":\"")) kind = "unsupported";
  strcpy(problem, "not one of ONNX's operators, or a type that it has no kernel for");
  if (*kind == 'r' && load(model) && !fails(api->run(session, NULL, names, inputs, given, wanted, asked, outputs))) {
    printf("\"outputs\":[");
    for (size_t i = 0; i < asked; i++) write_tensor(outputs[i], wanted[i], i ? "," : ""), api->release_value(outputs[i]);
    printf("]}\n");
  } else {
    printf("\"%s\":\"%s\"}\n", kind, problem);
  }
  for (size_t i = 0; i < given; i++) inputs[i] ? api->release_value(inputs[i]) : (void)0, free(data[i]);
}

int main(int count, char **words) {
  void *runtime = count == 2 ? dlopen(words[1], RTLD_NOW) : NULL;
  if (!runtime) return fprintf(stderr, "with_onnxruntime LIBONNXRUNTIME: %s\n", count == 2 ? dlerror() : "has one argument"), 2;
  api = ((ApiBase * (*)(void)) dlsym(runtime, "OrtGetApiBase"))()->get_api(20);
  if (fails(api->create_env(4, "program", &env)) || fails(api->create_options(&options)) || fails(api->create_memory(1, 0, &memory)))
    return fprintf(stderr, "%s\n", problem), 1;
  char *line = NULL;
  for (size_t size = 0; getline(&line, &size, stdin) > 0; fflush(stdout)) {
    char *at = line;
    const char *request = word(&at, "\"request\":\"");
    if (!strcmp(request, "stop")) return 0;
    printf("{\"seq\":%ld,", strtol(after(&at, "\"seq\":"), &at, 10));
    if (!strcmp(request, "run"))
      run(at);
    else if (chdir(word(&at, "\"folder\":\""))) /* in which all files are */
      return perror("chdir"), 1;
    else
      printf("\"version\":1}\n");
  }
}
