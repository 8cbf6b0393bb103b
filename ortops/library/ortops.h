/* The functions of a library that `python -m ortops library` writes, and of the library in a wheel. */
#ifndef ORTOPS_H
#define ORTOPS_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* With ONNX Runtime, 1.20 or later. Pass session options and what OrtGetApiBase() returns, before a session is made of the
   options. Each function returns NULL, or an OrtStatus, which is released as any other. */
struct OrtSessionOptions;
struct OrtApiBase;

/* This project's operators, of the domain "ai.onnx.contrib" or of --domain; those of --standard, if the library was made
   with it. */
struct OrtStatus *RegisterCustomOps(struct OrtSessionOptions *options, const struct OrtApiBase *base);

/* RoiAlign and MaxRoiPool of ONNX's own domain as opset 10, 16 or 22 defines them; sessions of the options take these
   operators for all opsets. */
struct OrtStatus *RegisterOnnx10(struct OrtSessionOptions *options, const struct OrtApiBase *base);
struct OrtStatus *RegisterOnnx16(struct OrtSessionOptions *options, const struct OrtApiBase *base);
struct OrtStatus *RegisterOnnx22(struct OrtSessionOptions *options, const struct OrtApiBase *base);

/* Without ONNX Runtime: make a node, describe the inputs in a call, let infer_shapes set the outputs' types and shapes, give
   them memory, and compute. docs/operators.md lists the tensors and attributes of each operator. */

/* A tensor in C order, aligned to its elements. */
typedef struct {
  void *data;      /* its elements; of an output, memory for them */
  int64_t type;    /* its element type, as ONNX's TensorProto.DataType; 0 if it is left out, or if an output is not wanted */
  int64_t rank;    /* the number of its dimensions, */
  int64_t dims[8]; /* and the dimensions */
} OrtopsTensor;

/* An attribute. The types are INT = 1, INTS = 2, FLOAT = 3, FLOATS = 4 and STRING = 5. */
typedef struct {
  const char *name;
  int64_t type;
  int64_t count;      /* the number of values of a list */
  const void *values; /* one or more int64_t or double, or a C string */
} OrtopsAttribute;

/* A call. Set it to zeros first, and the tensors in the operator's order: all inputs, then all outputs. */
typedef struct {
  void *runner;      /* what runs the tasks of a call; NULL for the calling thread alone */
  void *context;     /* what the runner gets */
  int64_t state[9];  /* of the library */
  OrtopsTensor tensors[9];
  int64_t text_size; /* the text of an error in UTF-8, which ends with a zero byte */
  char text[2048];
} OrtopsCall;

struct OrtopsNode;

enum { ORTOPS_OK = 0, ORTOPS_OUT_OF_MEMORY = 1, ORTOPS_INVALID = 2 }; /* other results than ORTOPS_OK come with a text */

typedef struct {
  int64_t version;       /* 1; later versions may have more fields */
  const void *operators; /* the first argument of make_node */
  void *host;            /* of Python */

  /* A node of an operator for an element type of its first input, or NULL with a text in the call. Any number of threads may
     compute a node at the same time, each with a call of its own. */
  struct OrtopsNode *(*make_node)(const void *operators, const char *name, int64_t type, int64_t count,
                                  const OrtopsAttribute *attributes, OrtopsCall *call);
  int64_t (*release_node)(struct OrtopsNode *node);

  int64_t (*infer_shapes)(struct OrtopsNode *node, OrtopsCall *call);
  int64_t (*compute)(struct OrtopsNode *node, OrtopsCall *call);

  void *run_on_threads;  /* a runner that starts threads; its context is the address of an int64_t with their number */
} OrtopsInterface;

/* The functions above, or NULL if the processor has neither the instructions of x86-64-v3 nor those of x86-64-v4. */
const OrtopsInterface *OrtopsGetInterface(void);
#ifdef __cplusplus
}
#endif
#endif
