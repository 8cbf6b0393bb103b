/* The functions of a library that `python -m ortops library` writes. Pass one of them session options and what
   OrtGetApiBase() returns, before a session is made of the options. It returns NULL or an OrtStatus, which is released as
   any other. ONNX Runtime must be 1.20 or later. */
#ifndef ORTOPS_H
#define ORTOPS_H
#ifdef __cplusplus
extern "C" {
#endif
struct OrtSessionOptions;
struct OrtApiBase;

/* This project's operators, of the domain "ai.onnx.contrib"; those of --standard, if the library was made with it. */
struct OrtStatus *RegisterCustomOps(struct OrtSessionOptions *options, const struct OrtApiBase *base);

/* RoiAlign and MaxRoiPool of ONNX's own domain as opset 10, 16 or 22 defines them; sessions of the options take these
   operators for all opsets. */
struct OrtStatus *RegisterOnnx10(struct OrtSessionOptions *options, const struct OrtApiBase *base);
struct OrtStatus *RegisterOnnx16(struct OrtSessionOptions *options, const struct OrtApiBase *base);
struct OrtStatus *RegisterOnnx22(struct OrtSessionOptions *options, const struct OrtApiBase *base);
#ifdef __cplusplus
}
#endif
#endif
