/* Calls a kernel without ONNX Runtime and without Python.
   cc -I ortops/library examples/hosts/call.c ./libortops.so -o call && ./call */
#include <ortops.h>
#include <stdio.h>
#include <stdlib.h>

static OrtopsCall call; /* zeros */

static void check(int64_t result) {
  if (result != ORTOPS_OK) exit((fprintf(stderr, "%s\n", call.text), 1));
}

int main(void) {
  const OrtopsInterface *ortops = OrtopsGetInterface();
  if (!ortops) return fprintf(stderr, "this processor is too old\n"), 1;
  float x[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, rois[4] = {0, 0, 3, 3};
  int64_t image = 0, size = 2, threads = 4;
  const OrtopsAttribute attributes[] = {{"output_height", 1, 1, &size}, {"output_width", 1, 1, &size}, {"mode", 5, 1, "avg"}};
  struct OrtopsNode *node = ortops->make_node(ortops->operators, "RoiAlign_16", 1, 3, attributes, &call);
  if (!node) check(ORTOPS_INVALID);
  call.runner = ortops->run_on_threads, call.context = &threads;
  call.tensors[0] = (OrtopsTensor){x, 1, 4, {1, 1, 4, 4}};
  call.tensors[1] = (OrtopsTensor){rois, 1, 2, {1, 4}};
  call.tensors[2] = (OrtopsTensor){&image, 7, 1, {1}};
  OrtopsTensor *y = &call.tensors[3];
  check(ortops->infer_shapes(node, &call));
  y->data = malloc(sizeof(float) * y->dims[0] * y->dims[1] * y->dims[2] * y->dims[3]);
  check(ortops->compute(node, &call));
  const float *values = y->data;
  printf("%g %g %g %g\n", values[0], values[1], values[2], values[3]); /* Y is [1, 1, 2, 2] */
  free(y->data), ortops->release_node(node);
}
