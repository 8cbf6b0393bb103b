/* A host without Python and without headers of ONNX Runtime. It runs the model of docs/from_pytorch_to_c.md
   on two rows. cc own_operator.c -o host -ldl && ./host onnxruntime/lib/libonnxruntime.so ./libmine.so model.onnx */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef struct { /* OrtApi, in which every function has the same place in all releases; a void * is one that is not called */
  void *before2[2];
  const char *(*error_message)(void *status);
  void *(*create_env)(int severity, const char *id, void **env), *before7[3];
  void *(*create_session)(void *env, const char *path, void *options, void **session), *before9;
  void *(*run)(void *session, void *, const char **inputs, void **given, size_t, const char **outputs, size_t, void **made);
  void *(*create_options)(void **options), *before49[38];
  void *(*create_tensor)(void *memory, void *data, size_t, const int64_t *shape, size_t, int type, void **value), *before51;
  void *(*tensor_data)(void *value, void **data), *before69[17];
  void *(*create_memory)(int allocator, int type, void **memory);
} Api;
typedef struct { const Api *(*get_api)(uint32_t version); } ApiBase;
static const Api *api;
static void check(void *status) {
  if (status) exit((fprintf(stderr, "%s\n", api->error_message(status)), 1));
}
int main(int count, char **words) {
  void *runtime = count > 3 ? dlopen(words[1], RTLD_NOW) : NULL, *library = count > 3 ? dlopen(words[2], RTLD_NOW) : NULL;
  if (!runtime || !library) return fprintf(stderr, "host ONNXRUNTIME LIBRARY MODEL: %s\n", dlerror()), 2;
  void *env, *options, *session, *memory, *given, *made = NULL;
  ApiBase *base = ((ApiBase * (*)(void)) dlsym(runtime, "OrtGetApiBase"))();
  api = base->get_api(20);
  check(api->create_env(3, "host", &env));
  check(api->create_options(&options));
  check(((void *(*)(void *, ApiBase *))dlsym(library, "RegisterCustomOps"))(options, base));
  check(api->create_session(env, words[3], options, &session));
  float x[2][3] = {{1, 2, 3}, {4, 5, 6}}, (*y)[2];
  int64_t shape[2] = {2, 3};
  check(api->create_memory(1, 0, &memory));
  check(api->create_tensor(memory, x, sizeof x, shape, 2, 1, &given));
  check(api->run(session, NULL, (const char *[]){"x"}, &given, 1, (const char *[]){"y"}, 1, &made));
  check(api->tensor_data(made, (void **)&y));
  printf("%g %g\n%g %g\n", y[0][0], y[0][1], y[1][0], y[1][1]);
}
