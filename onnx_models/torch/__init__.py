# SPDX-License-Identifier: MIT
"""Export of PyTorch modules with their gradients. Needs PyTorch and onnxscript: ``pip install torch onnxscript``.

    model = onnx_models.torch.export(module.eval(), (x, rois), loss=cross_entropy, targets=(labels,),
                                     dynamic_shapes={"x": {0: "N", 2: "H", 3: "W"}, "rois": {0: "K"}, "target": {0: "K"}})
    session = ortops.InferenceSession(model.SerializeToString())
    output, loss, *gradients = session.run(None, {"x": x.numpy(), "rois": rois.numpy(), "target": labels.numpy()})

`ortops.torch` and torchvision have a RoiAlign that is exported as ONNX's.
"""

try:
    import onnxscript
    import torch
except ImportError as error:
    raise ImportError(
        f"onnx_models.torch needs PyTorch and onnxscript ({error}): pip install torch onnxscript"
    ) from error

from onnx_models.torch.comparison import UncheckedWarning
from onnx_models.torch.detectors import exportable_detectors
from onnx_models.torch.exporter import export
from onnx_models.torch.translations import translation_table

__all__ = ["UncheckedWarning", "export", "exportable_detectors", "translation_table"]

del onnxscript, torch
