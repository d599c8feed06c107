"""Why a node keeps what it keeps: one short true sentence for each tensor of the common backward nodes.

A reason with {name} speaks of another input of the same operation: the number after the bar in ARGUMENTS tells where
that input stands in the node's edges, so that the sentence can call it by its own name.
"""

from __future__ import annotations

from types import MappingProxyType

_FACTOR = "needed for the gradient of {%s}"
_SIGN = "tells where the input was positive"
_INDEX = "tells where each gradient goes"
_OWN = "its derivative is made of its own output"
_INPUT = "its derivative depends on the input's values"
_MEAN = "the mean, to form the normalised input again"
_SCALE = "one over the standard deviation, to scale the gradient"
_NORMAL = "its normalised form is needed again"
_SOFTMAX = "the probabilities: their gradient is made of themselves"
#: Why what dropout drew is kept, by whichever node.
MASK = "the dropout mask: tells which elements were dropped"
_ATTENTION = {
    "query": "needed for the gradients of key and query",
    "key": "needed for the gradients of query and key",
    "value": "needed for the gradient of the attention weights",
    "out": "with its gradient, gives the softmax's row sums",
    "output": "with its gradient, gives the softmax's row sums",
    "logsumexp": "lets backward form the attention weights again",
    "log_sumexp": "lets backward form the attention weights again",
    "attn_mask": "added to the scores when they are formed again",
    "attn_bias": "added to the scores when they are formed again",
    "philox_seed": "lets backward draw the same dropout again",
    "philox_offset": "lets backward draw the same dropout again",
    "rng_state": "lets backward draw the same dropout again",
    "cum_seq_q": "where each sequence begins",
    "cum_seq_k": "where each sequence begins",
}


def _of(*names: str) -> dict[str, str]:
    """For a product of two: each is needed for the other's gradient."""
    a, b = names
    return {a: _FACTOR % b, b: _FACTOR % a}


#: Node (without its number) → saved argument → reason.
REASONS = MappingProxyType(
    {
        "Mul": _of("self", "other"),
        "Mm": _of("self", "mat2"),
        "Bmm": _of("self", "mat2"),
        "Addmm": _of("mat1", "mat2"),
        "Baddbmm": _of("batch1", "batch2"),
        "Addbmm": _of("batch1", "batch2"),
        "Addmv": _of("mat", "vec"),
        "Addr": _of("vec1", "vec2"),
        "Mv": _of("self", "vec"),
        "Dot": _of("self", "tensor"),
        "Linear": {"input": _FACTOR % "weight", "weight": _FACTOR % "input"},
        "Addcmul": {"tensor1": _FACTOR % "tensor2", "tensor2": _FACTOR % "tensor1"},
        "Addcdiv": {"tensor1": _FACTOR % "tensor2", "tensor2": "divides both gradients"},
        "Div": {"self": _FACTOR % "other", "other": "divides both gradients"},
        "Pow": {"self": _INPUT, "exponent": _FACTOR % "self", "result": _FACTOR % "exponent"},
        "Exp": {"result": _OWN},
        "Exp2": {"result": _OWN},
        "Expm1": {"result": _OWN},
        "Log": {"self": "the gradient is divided by it"},
        "Log1P": {"self": "the gradient is divided by one plus it"},
        "Log2": {"self": "the gradient is divided by it"},
        "Log10": {"self": "the gradient is divided by it"},
        "Sqrt": {"result": "the gradient is divided by twice it"},
        "Rsqrt": {"result": _OWN},
        "Reciprocal": {"result": _OWN},
        "Sigmoid": {"result": _OWN},
        "LogSigmoid": {"self": _INPUT, "buffer": "a part of the formula, kept so as not to compute it again"},
        "Tanh": {"result": _OWN},
        "Sin": {"self": "the derivative is its cosine"},
        "Cos": {"self": "the derivative is its sine, negated"},
        "Tan": {"result": _OWN},
        "Asin": {"self": _INPUT},
        "Acos": {"self": _INPUT},
        "Atan": {"self": _INPUT},
        "Sinh": {"self": _INPUT},
        "Cosh": {"self": _INPUT},
        "Erf": {"self": _INPUT},
        "Abs": {"self": "tells the input's sign"},
        "Relu": {"result": _SIGN},
        "Threshold": {"self": "tells where the input was above the threshold", "result": _SIGN},
        "Hardtanh": {"self": "tells where the input was between the bounds"},
        "LeakyRelu": {"self": _SIGN, "result": _SIGN},
        "Prelu": {"self": _SIGN, "weight": "the slope where the input was negative"},
        "PreluKernel": {"self": _SIGN, "weight": "the slope where the input was negative"},
        "Elu": {"self": _INPUT, "result": _OWN, "self_or_result": _INPUT},
        "Gelu": {"self": "its derivative cannot be read off its output"},
        "Silu": {"self": "its derivative cannot be read off its output"},
        "Mish": {"self": "its derivative cannot be read off its output"},
        "Hardswish": {"self": _INPUT},
        "Hardsigmoid": {"self": _INPUT},
        "Softplus": {"self": _INPUT},
        "Glu": {"self": "each half is needed for the other's gradient"},
        "Clamp": {
            "self": "tells where the input was between the bounds",
            "min": "the bound it is compared with",
            "max": "the bound it is compared with",
        },
        "ClampMin": {"self": "tells where the input was above the bound"},
        "ClampMax": {"self": "tells where the input was below the bound"},
        "Maximum": dict.fromkeys(("self", "other"), "tells which of the two was greater"),
        "Minimum": dict.fromkeys(("self", "other"), "tells which of the two was smaller"),
        "Where": {"condition": "tells which input each gradient goes to"},
        "MaskedFill": {"mask": "tells where no gradient passes"},
        "MaskedSelect": {"mask": "tells where each gradient goes", "self": "gives the shape to fill again"},
        "MaskedScatter": {"mask": "tells where each gradient goes"},
        "Softmax": {"result": _SOFTMAX},
        "SafeSoftmax": {"result": _SOFTMAX},
        "LogSoftmax": {"result": "the log-probabilities: their gradient is made of themselves"},
        "Logsumexp": {
            "self": "with the result, gives the probabilities",
            "result": "with the input, gives the probabilities",
        },
        "NllLoss": {
            "self": "gives the shape of the gradient",
            "target": "tells which class each gradient goes to",
            "weight": "weights each class's gradient",
            "total_weight": "the gradient of the mean is divided by it",
        },
        "NllLoss2D": {
            "self": "gives the shape of the gradient",
            "target": "tells which class each gradient goes to",
            "weight": "weights each class's gradient",
            "total_weight": "the gradient of the mean is divided by it",
        },
        "MseLoss": dict.fromkeys(("self", "target"), "the gradient is the difference of prediction and target"),
        "L1Loss": dict.fromkeys(("self", "target"), "tells which of prediction and target was greater"),
        "SmoothL1Loss": dict.fromkeys(("self", "target"), "the gradient depends on prediction minus target"),
        "HuberLoss": dict.fromkeys(("self", "target"), "the gradient depends on prediction minus target"),
        "BinaryCrossEntropy": dict.fromkeys(("self", "target"), "the gradient depends on prediction and target"),
        "BinaryCrossEntropyWithLogits": dict.fromkeys(
            ("self", "target"), "the gradient is the sigmoid of the input minus the target"
        ),
        "KlDiv": dict.fromkeys(("self", "target"), "the gradient depends on both distributions"),
        "NativeLayerNorm": {
            "input": _NORMAL,
            "weight": _FACTOR % "input",
            "bias": "kept with the weight; its values are not needed",
            "result1": _MEAN,
            "result2": _SCALE,
        },
        "NativeGroupNorm": {"input": _NORMAL, "weight": _FACTOR % "input", "result1": _MEAN, "result2": _SCALE},
        "NativeBatchNorm": {
            "input": _NORMAL,
            "weight": _FACTOR % "input",
            "running_mean": "used instead of the batch's mean when not training",
            "running_var": "used instead of the batch's variance when not training",
            "result1": _MEAN,
            "result2": _SCALE,
        },
        "CudnnBatchNorm": {
            "input": _NORMAL,
            "weight": _FACTOR % "input",
            "running_mean": "used instead of the batch's mean when not training",
            "running_var": "used instead of the batch's variance when not training",
            "result1": _MEAN,
            "result2": _SCALE,
            "result3": "scratch that its backward kernel asks for",
        },
        "FusedRmsNorm": {
            "input": _NORMAL,
            "weight": _FACTOR % "input",
            "result1": "one over the root mean square, to scale",
        },
        "Convolution": {"input": _FACTOR % "weight", "weight": _FACTOR % "input"},
        "MkldnnConvolution": {"self": _FACTOR % "weight", "weight": _FACTOR % "self"},
        "CudnnConvolution": {"self": _FACTOR % "weight", "weight": _FACTOR % "self"},
        "NativeDropout": {"result1": MASK},
        "FusedDropout": {"result1": MASK},
        "Embedding": {"indices": "tells which row each gradient goes to"},
        "EmbeddingBag": {"indices": "tells which row each gradient goes to", "offsets": "where each bag begins"},
        "Index": {"indices": _INDEX},
        "IndexPut": {"indices": _INDEX},
        "IndexSelect": {"index": _INDEX},
        "IndexAdd": {"index": _INDEX},
        "Gather": {"index": _INDEX},
        "Scatter": {"index": _INDEX},
        "ScatterAdd": {"index": _INDEX},
        "Take": {"index": _INDEX},
        "Max": {"indices": "tells which element was the greatest", "self": "tells which elements were the greatest"},
        "Min": {"indices": "tells which element was the smallest", "self": "tells which elements were the smallest"},
        "Amax": {
            "self": "with the result, tells which were the greatest",
            "result": "with the input, tells which were the greatest",
        },
        "Amin": {
            "self": "with the result, tells which were the smallest",
            "result": "with the input, tells which were the smallest",
        },
        "Sort": {"indices": "tells where each element came from"},
        "Topk": {"indices": "tells where each element came from"},
        "Median": {"indices": "tells which element was the median"},
        "Kthvalue": {"indices": "tells which element was taken"},
        "MaxPool2DWithIndices": {
            "self": "gives the shape of the gradient",
            "result1": "tells which element of each window was the greatest",
        },
        "AvgPool2D": {"self": "gives the shape of the gradient"},
        "AdaptiveAvgPool2D": {"self": "gives the shape of the gradient"},
        "Norm": {"self": _INPUT, "result": "the gradient is divided by it"},
        "LinalgVectorNorm": {"self": _INPUT, "result": "the gradient is divided by it"},
        "Std": {"self": "its distance from the mean is needed", "result": "the gradient is divided by it"},
        "Var": {"self": "its distance from the mean is needed"},
        "VarMean": {"self": "its distance from the mean is needed"},
        "Prod": {"self": "each factor's gradient is the product of the others", "result": "divided by each factor"},
        "Cumprod": {"self": _INPUT, "result": _OWN},
        "Atan2": {"self": _FACTOR % "other", "other": _FACTOR % "self"},
        "Lerp": {
            "weight": "shares the gradient between start and end",
            "self": _FACTOR % "weight",
            "end": _FACTOR % "weight",
        },
        "ScaledDotProductFlashAttention": _ATTENTION,
        "ScaledDotProductFlashAttentionForCpu": _ATTENTION,
        "ScaledDotProductEfficientAttention": _ATTENTION,
        "ScaledDotProductCudnnAttention": _ATTENTION,
    }
)

#: Node (without its number) → its tensor inputs, in the order of its edges.
ARGUMENTS = MappingProxyType(
    {
        "Mul": ("self", "other"),
        "Div": ("self", "other"),
        "Add": ("self", "other"),
        "Sub": ("self", "other"),
        "Atan2": ("self", "other"),
        "Mm": ("self", "mat2"),
        "Bmm": ("self", "mat2"),
        "Addmm": ("self", "mat1", "mat2"),
        "Baddbmm": ("self", "batch1", "batch2"),
        "Addbmm": ("self", "batch1", "batch2"),
        "Addmv": ("self", "mat", "vec"),
        "Addr": ("self", "vec1", "vec2"),
        "Mv": ("self", "vec"),
        "Dot": ("self", "tensor"),
        "Linear": ("input", "weight", "bias"),
        "Addcmul": ("self", "tensor1", "tensor2"),
        "Addcdiv": ("self", "tensor1", "tensor2"),
        "Pow": ("self", "exponent"),
        "NativeLayerNorm": ("input", "weight", "bias"),
        "NativeGroupNorm": ("input", "weight", "bias"),
        "NativeBatchNorm": ("input", "weight", "bias"),
        "CudnnBatchNorm": ("input", "weight", "bias"),
        "FusedRmsNorm": ("input", "weight"),
        "Convolution": ("input", "weight", "bias"),
        "MkldnnConvolution": ("self", "weight", "bias"),
        "CudnnConvolution": ("self", "weight"),
        "MseLoss": ("self", "target"),
        "Lerp": ("self", "end", "weight"),
    }
)

#: Operations that only look at a tensor another way: a name seen through them is still that tensor's.
VIEWS = frozenset(
    {
        "T",
        "Transpose",
        "Permute",
        "View",
        "UnsafeView",
        "ReshapeAlias",
        "Expand",
        "Squeeze",
        "Unsqueeze",
        "Alias",
        "ToCopy",
    }
)

#: What a formula's own names for its tensors mean, where no name of the learner's is known.
ROLES = MappingProxyType(
    {
        "self": "its first input",
        "other": "its second input",
        "mat1": "the first matrix",
        "mat2": "the second matrix",
        "batch1": "the first matrices",
        "batch2": "the second matrices",
        "vec": "the vector",
        "weight": "the weight",
        "input": "the input",
        "exponent": "the exponent",
        "tensor": "the other vector",
        "tensor1": "the first factor",
        "tensor2": "the second factor",
    }
)
GENERIC_INPUT = "its backward formula uses it"
GENERIC_OUTPUT = "its backward formula uses its own output"
GENERIC_CUSTOM = "its own backward() asked for it"


def reason(
    operation: str,
    argument: str,
    output: bool,
    custom: bool,
    name_of: dict[str, str],
    idle: frozenset[str] = frozenset(),
) -> str:
    """Why `operation` ("Mul") keeps `argument` ("self"). `name_of`: arguments' names, where the learner gave any.

    idle: arguments that want no gradient, so that nothing is needed for one; some operations keep it all the same.
    """
    if custom:
        return GENERIC_CUSTOM
    found = REASONS.get(operation, {}).get(argument)
    if found is None:
        return GENERIC_OUTPUT if output else GENERIC_INPUT
    if "{" not in found:
        return found
    role = found[found.index("{") + 1 : found.index("}")]
    name = name_of.get(role) or ROLES.get(role, f"its input {role}")
    if role in idle and found == _FACTOR % role:
        return f"kept all the same, though {name} wants no gradient"
    return found.replace("{" + role + "}", name)
