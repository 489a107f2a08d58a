"""Lets torchvision be imported beside a torch without CUDA.

The published torchvision is built for CUDA: its compiled operators do not load here, and the
package then fails to import because two of them are not declared. They are declared before that,
and never called, as no picture is looked at. On the path of every process of the tests that run in
vLLM's environment (`PYTHONPATH`), which are started by vLLM itself.
"""

import importlib.abc
import importlib.machinery
import sys


class _DeclareFirst(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name == "torchvision":
            sys.meta_path.remove(self)
            _declare_operators()


def _declare_operators() -> None:
    import torch

    for operator in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{operator}",
            "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        )


sys.meta_path.insert(0, _DeclareFirst())
