"""Wrong answers to chapter 02's exercises: (exercise, key of the mistake, source). A source defines the function."""

ANSWER = {
    "mlp_bytes": "mlp_bytes",
    "attention_bytes": "attention_bytes",
    "layer_bytes": "layer_bytes",
    "bug_hooks": "forward_bytes",
}
ARGUMENTS = {"mlp_bytes": "b, s, h", "attention_bytes": "b, s, h, a", "layer_bytes": "b, s, h, a, number, mask"}


def formula(exercise, result):
    """n is s·b·h, and p is a·s²·b where there are heads."""
    pairs = "" if exercise == "mlp_bytes" else "\n    p = a * s * s * b"
    return f"def {exercise}({ARGUMENTS[exercise]}):\n    n = s * b * h{pairs}\n    return {result}\n"


def mlp(up="2 * n", gelu="8 * n", down="8 * n", dropout3="n"):
    return formula("mlp_bytes", f"{up} + {gelu} + {down} + {dropout3}")


def attention(into="2 * n", qkv="6 * n", weights="5 * p", out="3 * n"):
    return formula("attention_bytes", f"{into} + {qkv} + {weights} + {out}")


def layer(width="(16 * number + 2 * mask) * n", square="(2 * number + mask) * p", more="0"):
    return formula("layer_bytes", f"{width} + {square} + {more}")


RIGHT_HOOKS = """
def forward_bytes(model, x):
    outputs = []

    def hook(module, inputs, output):
        outputs.append(output)

    handles = [module.register_forward_hook(hook) for module in model.modules()]
    model(x)
    for handle in handles:
        handle.remove()
    storages = [output.untyped_storage() for output in outputs]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
"""
STUB_HOOKS = """
def forward_bytes(model, x):
    total = 0

    def hook(module, inputs, output):
        nonlocal total
        total += output.nbytes

    handles = [module.register_forward_hook(hook) for module in model.modules()]
    model(x)
    for handle in handles:
        handle.remove()
    return total
"""


def hooks(*changes, source=RIGHT_HOOKS):
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


ALL = "for module in model.modules()]"
LEAVES = "for module in model.modules() if not list(module.children())]"
BY_CLASS = "for module in model.modules() if type(module) not in (nn.Sequential, nn.Flatten, nn.Unflatten)]"
SUM = "sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())"
#: A hook for every module there is, and it stays.
GLOBAL = """
def forward_bytes(model, x):
    outputs = []
    torch.nn.modules.module.register_module_forward_hook(lambda module, inputs, output: outputs.append(output))
    model(x)
    storages = [output.untyped_storage() for output in outputs]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
"""
#: Adds up at once, and holds nothing.
NOT_HELD = """
def forward_bytes(model, x):
    sizes = {}

    def hook(module, inputs, output):
        storage = output.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()

    handles = [module.register_forward_hook(hook) for module in model.modules()]
    model(x)
    for handle in handles:
        handle.remove()
    return sum(sizes.values())
"""

WRONG = [
    # ------------------------------------------------------------------------------------------------------ mlp_bytes
    ("mlp_bytes", "not_a_function", "mlp_bytes = 19"),
    ("mlp_bytes", "not_a_function", "mlp_bytes = int"),
    ("mlp_bytes", "not_a_number", formula("mlp_bytes", "'19 n'")),
    ("mlp_bytes", "not_a_number", formula("mlp_bytes", "True")),
    ("mlp_bytes", "not_a_number", formula("mlp_bytes", "float('nan')")),
    ("mlp_bytes", "narrow", mlp(down="2 * n")),
    ("mlp_bytes", "wide_mask", mlp(dropout3="4 * n")),
    ("mlp_bytes", "mask_two", mlp(dropout3="2 * n")),
    ("mlp_bytes", "no_mask", mlp(dropout3="0")),
    ("mlp_bytes", "numbers", mlp(down="4 * n")),
    ("mlp_bytes", "no_down", mlp(down="0")),
    ("mlp_bytes", "mask_bits", mlp(dropout3="n / 8")),
    ("mlp_bytes", "both", mlp(down="2 * n", dropout3="2 * n")),
    ("mlp_bytes", "both", mlp(down="4 * n", dropout3="0")),
    ("mlp_bytes", "both", mlp(down="2 * n", dropout3="n / 8")),
    ("mlp_bytes", "no_batch", formula("mlp_bytes", "19 * s * h")),
    ("mlp_bytes", "other", mlp(down="h")),
    # ------------------------------------------------------------------------------------------------ attention_bytes
    ("attention_bytes", "not_a_function", "attention_bytes = None.__class__"),
    ("attention_bytes", "not_a_number", formula("attention_bytes", "(n, p)")),
    ("attention_bytes", "input_each", attention(into="6 * n")),
    ("attention_bytes", "two_tensors", attention(qkv="2 * n")),
    ("attention_bytes", "scores_too", attention(weights="7 * p")),
    ("attention_bytes", "scaled_too", attention(weights="9 * p")),
    ("attention_bytes", "not_dropped", attention(weights="3 * p")),
    ("attention_bytes", "only_softmax", attention(weights="2 * p")),
    ("attention_bytes", "square_mask_two", attention(weights="6 * p")),
    ("attention_bytes", "no_square_mask", attention(weights="4 * p")),
    ("attention_bytes", "one_head", attention(weights="5 * s * s * b")),
    ("attention_bytes", "per_width", attention(weights="5 * p * h")),
    ("attention_bytes", "head_width", attention(weights="5 * s * s * b * h")),
    ("attention_bytes", "two_tensors", attention(into="0", out="n")),
    ("attention_bytes", "one_tensor", attention(out="n")),
    ("attention_bytes", "one_tensor", attention(into="0")),
    ("attention_bytes", "one_tensor", attention(qkv="4 * n")),
    ("attention_bytes", "no_mask", attention(out="2 * n")),
    ("attention_bytes", "mask_two", attention(out="4 * n")),
    ("attention_bytes", "not_squared", attention(weights="5 * a * s * b")),
    ("attention_bytes", "square_no_batch", attention(weights="5 * a * s * s")),
    ("attention_bytes", "no_batch", formula("attention_bytes", "(11 * n + 5 * p) / b")),
    ("attention_bytes", "elements", attention("n", "3 * n", "2.5 * p", "1.5 * n")),
    ("attention_bytes", "other", attention(out="h")),
    # ---------------------------------------------------------------------------------------------------- layer_bytes
    ("layer_bytes", "not_a_function", "layer_bytes = 34"),
    ("layer_bytes", "not_a_number", formula("layer_bytes", "[n]")),
    ("layer_bytes", "fixed", layer("34 * n", "5 * p")),
    ("layer_bytes", "fixed", layer("34 * n", "5 * p", "16 * s * b")),
    ("layer_bytes", "mask_as_number", layer("18 * number * n", "3 * number * p")),
    ("layer_bytes", "mask_one", layer("(16 * number + 2) * n", "(2 * number + 1) * p")),
    ("layer_bytes", "no_masks", layer("16 * number * n", "2 * number * p")),
    ("layer_bytes", "two_tensors", layer("(14 * number + 2 * mask) * n")),
    ("layer_bytes", "one_tensor", layer("(15 * number + 2 * mask) * n")),
    ("layer_bytes", "input_each", layer("(18 * number + 2 * mask) * n")),
    ("layer_bytes", "no_square", layer(square="0")),
    ("layer_bytes", "no_heads", layer(square="(2 * number + mask) * s * s * b")),
    ("layer_bytes", "square_no_batch", layer(square="(2 * number + mask) * a * s * s")),
    ("layer_bytes", "no_batch", formula("layer_bytes", "((16 * number + 2 * mask) * n + (2 * number + mask) * p) / b")),
    ("layer_bytes", "scores_too", layer(square="(3 * number + mask) * p")),
    ("layer_bytes", "not_dropped", layer(square="(number + mask) * p")),
    ("layer_bytes", "weights_too", layer(more="number * 12 * h * h")),
    ("layer_bytes", "weights_too", layer(more="number * (12 * h * h + 13 * h)")),
    ("layer_bytes", "elements", layer("18 * n", "3 * p")),
    ("layer_bytes", "output_too", layer("(17 * number + 2 * mask) * n")),
    ("layer_bytes", "output_too", layer("(17 * number + 2 * mask) * n", more="16 * s * b")),
    ("layer_bytes", "statistics", layer(more="4 * number * s * b")),
    ("layer_bytes", "statistics", layer(more="(16 * s * b if number == 2 else 0)")),
    ("layer_bytes", "other", layer(more="number")),
    # ------------------------------------------------------------------------------------------------------ bug_hooks
    ("bug_hooks", "not_a_function", "forward_bytes = 3"),
    ("bug_hooks", "not_a_number", hooks((SUM, "'many'"))),
    ("bug_hooks", "not_called", "def forward_bytes(model, x):\n    return 4096\n"),
    ("bug_hooks", "changed", hooks(("outputs.append(output)", "outputs.append(output)\n        return output + 1"))),
    ("bug_hooks", "all_modules", STUB_HOOKS),
    ("bug_hooks", "all_modules", hooks((SUM, "sum(storage.nbytes() for storage in storages)"))),
    ("bug_hooks", "leaves_only", hooks((ALL, LEAVES))),
    ("bug_hooks", "leaves_only", hooks((ALL, LEAVES), source=STUB_HOOKS)),
    (
        "bug_hooks",
        "each_module_once",
        hooks(("outputs = []", "outputs = {}"), ("outputs.append(output)", "outputs[module] = output")).replace(
            "in outputs]", "in outputs.values()]"
        ),
    ),
    (
        "bug_hooks",
        "part_of_storage",
        hooks((SUM, "sum({o.untyped_storage().data_ptr(): o.nbytes for o in outputs}.values())")),
    ),
    (
        "bug_hooks",
        "leaves_only",
        hooks((ALL, "for module in model.modules() if not isinstance(module, nn.Sequential)]")),
    ),
    ("bug_hooks", "by_class", hooks((ALL, BY_CLASS))),
    (
        "bug_hooks",
        "addresses",
        hooks((SUM, "sum({o.data_ptr(): o.untyped_storage().nbytes() for o in outputs}.values())")),
    ),
    ("bug_hooks", "elements", hooks(("storage.nbytes() for", "storage.nbytes() // 4 for"))),
    ("bug_hooks", "objects", hooks((SUM, "sum({id(o): o.nbytes for o in outputs}.values())"))),
    ("bug_hooks", "only_result", "def forward_bytes(model, x):\n    return model(x).nbytes\n"),
    ("bug_hooks", "reused", NOT_HELD),
    ("bug_hooks", "other", hooks((SUM, SUM + " + 1"))),
    ("bug_hooks", "hooks_left_on", hooks(("        handle.remove()", "        pass"))),
    ("bug_hooks", "hooks_left_on", GLOBAL),
    ("bug_hooks", "ran_again", hooks(("    handles =", "    model(x)\n    handles ="))),
    ("bug_hooks", "mode_changed", hooks(("    handles =", "    model.eval()\n    handles ="))),
]
