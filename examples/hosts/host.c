/* A host without Python and without headers of ONNX Runtime. docs/library.md writes its model and libortops.so.
   cc host.c -o host -ldl && ./host onnxruntime/lib/libonnxruntime.so ./libortops.so model.onnx [times] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef _WIN32
#include <windows.h>
#define OPEN(name) (void *)LoadLibraryA(name)
#define FIND(library, name) (void *)GetProcAddress((HMODULE)library, name)
#define dlerror() "LoadLibrary fails"
#else
#include <dlfcn.h>
#define OPEN(name) dlopen(name, RTLD_NOW)
#define FIND(library, name) dlsym(library, name)
#endif
typedef struct { /* OrtApi, in which every function has the same place in all releases; a void * is one that is not called */
  void *before2[2];
  const char *(*error_message)(void *status);
  void *(*create_env)(int severity, const char *id, void **env), *before8[4];
  void *(*create_session)(void *env, const void *model, size_t size, void *options, void **session);
  void *(*run)(void *session, void *, const char **inputs, void **given, size_t, const char **outputs, size_t, void **made);
  void *(*create_options)(void **options), *before49[38];
  void *(*create_tensor)(void *memory, void *data, size_t, const int64_t *shape, size_t, int type, void **value), *before51;
  void *(*tensor_data)(void *value, void **data), *before69[17];
  void *(*create_memory)(int allocator, int type, void **memory), *before92[22];
  void (*release_env)(void *), (*release_status)(void *), (*release_memory)(void *), (*release_session)(void *);
  void (*release_value)(void *), (*before100[3])(void *), (*release_options)(void *);
} Api;
typedef struct { const Api *(*get_api)(uint32_t version); } ApiBase;
static const Api *api;
static char model[1 << 20];
static void check(void *status) {
  if (status) exit((fprintf(stderr, "%s\n", api->error_message(status)), 1));
}
int main(int count, char **words) {
  if (count < 4) return fprintf(stderr, "host ONNXRUNTIME LIBRARY MODEL [TIMES]\n"), 2;
  void *runtime = OPEN(words[1]), *library = runtime ? OPEN(words[2]) : NULL, *env, *options, *session, *memory, *values[3], *made = NULL;
  FILE *file = fopen(words[3], "rb");
  if (!library) return fprintf(stderr, "%s cannot be opened: %s\n", words[runtime ? 2 : 1], dlerror()), 1;
  if (!file) return perror(words[3]), 1;
  ApiBase *base = ((ApiBase * (*)(void)) FIND(runtime, "OrtGetApiBase"))();
  api = base->get_api(20);
  check(api->create_env(3, "host", &env));
  check(api->create_options(&options));
  check(((void *(*)(void *, ApiBase *))FIND(library, "RegisterCustomOps"))(options, base));
  check(api->create_session(env, model, fread(model, 1, sizeof model, file), options, &session));
  float x[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, rois[4] = {0, 0, 3, 3}, *y;
  int64_t image = 0, x_shape[4] = {1, 1, 4, 4}, rois_shape[2] = {1, 4}, images_shape = 1;
  check(api->create_memory(1, 0, &memory));
  check(api->create_tensor(memory, x, sizeof x, x_shape, 4, 1, &values[0]));
  check(api->create_tensor(memory, rois, sizeof rois, rois_shape, 2, 1, &values[1]));
  check(api->create_tensor(memory, &image, sizeof image, &images_shape, 1, 7, &values[2]));
  for (long left = count > 4 ? atol(words[4]) : 1; left > 0; left--, api->release_value(made), made = NULL) {
    check(api->run(session, NULL, (const char *[]){"X", "rois", "batch_indices"}, values, 3, (const char *[]){"Y"}, 1, &made));
    check(api->tensor_data(made, (void **)&y));
    if (left == 1) printf("%g %g %g %g\n", y[0], y[1], y[2], y[3]); /* Y is [1, 1, 2, 2] */
  }
  for (int i = 0; i < 3; i++) api->release_value(values[i]);
  api->release_memory(memory), api->release_session(session), api->release_options(options), api->release_env(env);
}
