# SPDX-License-Identifier: Apache-2.0
"""cuDNN's attention of one token over pages of 16 in random order, as nibble's cache has them: through cuDNN's frontend (PyPI:
nvidia-cudnn-frontend), which torch does without. `attention` is None where the frontend is not installed."""

import os
import re

PAGE_TOKENS = 16


def show_cudnn():
    """The frontend has to find the very library that torch has loaded."""
    with open("/proc/self/maps") as maps:
        loaded = re.search(r"(/\S*)/libcudnn\.so", maps.read())
    if loaded:
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (loaded[1], os.environ.get("LD_LIBRARY_PATH"))))


try:
    import torch
    show_cudnn()
    import cudnn
except ImportError:
    cudnn = None


class Operands:
    """Pages hold the keys of all heads, then the values."""

    def __init__(self, sequences, heads, kv_heads, context, head_dim):
        each, pages = context // PAGE_TOKENS, sequences * context // PAGE_TOKENS
        pool = torch.randn(pages, 2, kv_heads, PAGE_TOKENS, head_dim, device="cuda", dtype=torch.bfloat16)
        self.q = torch.randn(sequences, heads, 1, head_dim, device="cuda", dtype=torch.bfloat16)
        self.k, self.v, self.out = pool[:, 0], pool[:, 1], torch.empty_like(self.q)
        self.table = torch.randperm(pages, device="cuda").to(torch.int32).reshape(sequences, 1, each, 1)
        self.rows = torch.full((sequences, 1, 1, 1), 1, device="cuda", dtype=torch.int32)
        self.lengths = torch.full_like(self.rows, context)

    def expected(self):
        """In float32, of the last sequence."""
        k, v = (side[self.table[-1].flatten().long()].transpose(0, 1).flatten(1, 2).float() for side in (self.k, self.v))
        return torch.nn.functional.scaled_dot_product_attention(self.q[-1:].float(), k[None], v[None], enable_gqa=True)


def plan(operands, context):
    """A function that runs it, by the plan that cuDNN's heuristic has first."""
    handle, pack = cudnn.create_handle(), {}
    graph = cudnn.pygraph(handle=handle, io_data_type=cudnn.data_type.BFLOAT16, intermediate_data_type=cudnn.data_type.FLOAT,
                          compute_data_type=cudnn.data_type.FLOAT)

    def given(tensor, kind=cudnn.data_type.BFLOAT16):
        node = graph.tensor(dim=list(tensor.shape), stride=list(tensor.stride()), data_type=kind)
        pack[node] = tensor
        return node

    whole = cudnn.data_type.INT32
    out, _ = graph.sdpa(q=given(operands.q), k=given(operands.k), v=given(operands.v), generate_stats=False,
                        attn_scale=operands.q.shape[-1] ** -0.5, use_padding_mask=True, seq_len_q=given(operands.rows, whole),
                        seq_len_kv=given(operands.lengths, whole), paged_attention_k_table=given(operands.table, whole),
                        paged_attention_v_table=given(operands.table, whole), paged_attention_max_seq_len_kv=context)
    out.set_output(True).set_dim(list(operands.out.shape)).set_stride(list(operands.out.stride()))
    out.set_data_type(cudnn.data_type.BFLOAT16)
    pack[out] = operands.out
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(max(graph.get_workspace_size(), 16), device="cuda", dtype=torch.uint8)

    def call():
        cudnn.set_stream(handle, torch.cuda.current_stream().cuda_stream)
        graph.execute(pack, workspace, handle=handle)

    return call


def paged_attention(sequences, heads, kv_heads, context, head_dim):
    """A call on operands of its own, which gives the right result."""
    operands = Operands(sequences, heads, kv_heads, context, head_dim)
    call = plan(operands, context)
    call()
    error = float((operands.out[-1:].float() - operands.expected()).abs().max())
    if not error < 0.02 * float(operands.expected().abs().max()):
        raise RuntimeError(f"cuDNN's result over pages is off by {error}")
    return call


attention = paged_attention if cudnn else None
