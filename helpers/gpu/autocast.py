"""CUDA's autocast for tensors without numbers: which operation casts its inputs to what.

The rules are those of torch's own aten/src/ATen/autocast_mode.{h,cpp}; the names follow its policies. Which operations
have a rule is asked of the torch that runs.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from . import private

Tensor = torch.Tensor

#: Inputs go to the autocast dtype.
LOWER = frozenset(
    "_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input "
    "conv_transpose3d.input convolution cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul "
    "einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell "
    "_thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention "
    "scaled_dot_product_attention".split()
)
#: Inputs go to float32.
FLOAT32 = frozenset(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar "
    "pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm rms_norm frobenius_norm.dim "
    "nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d "
    "hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss "
    "multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits "
    "dist pdist cdist renorm logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d "
    "_upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d "
    "_upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa "
    "linalg_matrix_sqrth".split()
)
#: The result is float32, unless the call names a dtype.
FLOAT32_RESULT = frozenset(
    "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm "
    "linalg_matrix_norm.str_ord sum sum.dim_IntList".split()
)
#: The same, by another overload that takes the dtype.
FLOAT32_APPENDED = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
#: Inputs go to the widest dtype among them.
PROMOTE = frozenset(
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()
)
BANNED = frozenset({"binary_cross_entropy"})
#: Has a rule in torch that says something of cuDNN, or of named dimensions: not done here.
NOT_DONE = frozenset(
    "_cudnn_rnn prod.dim_Dimname softmax.Dimname log_softmax.Dimname cumprod.dimname cumsum.dimname "
    "sum.dim_DimnameList norm.names_ScalarOpt_dim".split()
)


def without_rule() -> frozenset[str]:
    """Operations that this torch casts on CUDA, and for which we have no rule."""
    known = LOWER | FLOAT32 | FLOAT32_RESULT | FLOAT32_APPENDED.keys() | PROMOTE | BANNED | NOT_DONE
    return private.autocast_operations() - known


class Casts:
    """The rules, and the cache of cast weights: each leaf is cast once, until the outermost autocast ends."""

    def __init__(self) -> None:
        self.cache: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        self.with_gradient = private.cached_casts_have_gradients()

    def rules(self) -> dict[str, private.Rule]:
        known = private.autocast_operations()
        rules: dict[str, private.Rule] = {}
        for names, rule in (
            (LOWER, self.lower),
            (FLOAT32, self.float32),
            (FLOAT32_RESULT, self.float32_result),
            (FLOAT32_APPENDED, self.float32_appended),
            (PROMOTE, self.promote),
            (BANNED, self.banned),
        ):
            rules.update({name: _where_enabled(rule) for name in names if name in known})
        return rules

    def clear(self) -> None:
        self.cache.clear()

    # ---------------------------------------------------------------- the policies

    def lower(self, op: Any, args: tuple, kwargs: dict) -> Any:
        return self._cast_all(op, args, kwargs, torch.get_autocast_dtype("cuda"))

    def float32(self, op: Any, args: tuple, kwargs: dict) -> Any:
        return self._cast_all(op, args, kwargs, torch.float32)

    def float32_result(self, op: Any, args: tuple, kwargs: dict) -> Any:
        names = [a.name for a in op._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        if eligible(args[0]) and given.get("dtype") is None:
            given["dtype"] = torch.float32
            return op(**given)
        return op(*args, **kwargs)

    def float32_appended(self, op: Any, args: tuple, kwargs: dict) -> Any:
        names = [a.name for a in op._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        name = op._schema.name.removeprefix("aten::") + "." + op._schema.overload_name
        if not eligible(args[0]):
            return op(*args, **kwargs)
        if "p" not in given:
            given["p"] = 2
        if "keepdim" in names and "keepdim" not in given:
            given["keepdim"] = False
        return private.overload(FLOAT32_APPENDED[name])(**given, dtype=torch.float32)

    def promote(self, op: Any, args: tuple, kwargs: dict) -> Any:
        to = torch.get_autocast_dtype("cuda")
        for tensor in (t for value in (*args, *kwargs.values()) for t in _tensors(value) if eligible(t)):
            if torch.float32 in (to, tensor.dtype):
                to = torch.float32
            elif tensor.dtype is not to:
                raise RuntimeError(
                    f"{op._schema.name.removeprefix('aten::')} takes no {str(tensor.dtype).removeprefix('torch.')} "
                    f"tensor under autocast on CUDA to {str(to).removeprefix('torch.')}: of dtypes of 16 bits, only "
                    "that one. Convert the tensor before."
                )
        return self._cast_all(op, args, kwargs, to)

    def banned(self, op: Any, args: tuple, kwargs: dict) -> Any:
        raise RuntimeError(
            "binary_cross_entropy is not allowed under autocast on CUDA: it is unsafe in 16 bits. Take "
            "binary_cross_entropy_with_logits, without the sigmoid before it."
        )

    # ---------------------------------------------------------------- casting

    def _cast_all(self, op: Any, args: tuple, kwargs: dict, dtype: torch.dtype) -> Any:
        """The last argument is cast first, as in torch's own binaries."""
        named = {name: self.cast(kwargs[name], dtype) for name in reversed(kwargs)}
        cast = [self.cast(value, dtype) for value in reversed(args)]
        return op(*reversed(cast), **named)

    def cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self.cast(item, dtype) for item in value)
        if not eligible(value) or value.dtype is dtype:
            return value
        if not (
            dtype is torch.get_autocast_dtype("cuda")
            and value.dtype is torch.float32
            and value.requires_grad
            and value.is_leaf
            and not value._is_view()
            and torch.is_autocast_cache_enabled()
            and not (self.with_gradient and torch.is_inference_mode_enabled())
        ):
            return value.to(dtype)
        found = self.cache.get(id(value))
        if found is None or found[0]() is not value:
            with torch.set_grad_enabled(self.with_gradient or torch.is_grad_enabled()):
                found = self.cache[id(value)] = (weakref.ref(value), value.to(dtype))
        return found[1]


def eligible(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.device.type == "meta"
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for item in value for t in _tensors(item)] if isinstance(value, (list, tuple)) else []


def _where_enabled(rule: private.Rule) -> private.Rule:
    def run(op: Any, args: tuple, kwargs: dict) -> Any:
        return rule(op, args, kwargs) if torch.is_autocast_enabled("cuda") else NotImplemented

    return run
