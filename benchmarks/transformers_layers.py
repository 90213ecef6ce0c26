"""Models like gpt-oss and DeepSeek by transformers: logits of each attention next to eager's in float32.

Usage, with torch, transformers and wheels of ``flashdepot wheel --families all,fa3 --names flash-attn-3,flash-attn-4``:

    python benchmarks/transformers_layers.py

Weights are random. A prompt goes through the model, then some tokens one at a time over its cache. "absorbed" is DeepSeek's
decoding form by ``qv`` of ``flash_attn_interface``: the cache keeps 512 numbers and 64 turned ones of each token, which all
heads share.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, DynamicCache, GptOssConfig, GptOssForCausalLM
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek


def gpt_oss() -> Any:
    return GptOssForCausalLM(
        GptOssConfig(
            num_hidden_layers=4, num_local_experts=4, num_experts_per_tok=2, vocab_size=1000, hidden_size=512,
            intermediate_size=512, head_dim=64, num_attention_heads=16, num_key_value_heads=4, sliding_window=128,
        )
    )  # fmt: skip


def deepseek_v3() -> Any:
    return DeepseekV3ForCausalLM(
        DeepseekV3Config(
            num_hidden_layers=3, first_k_dense_replace=3, vocab_size=1000, hidden_size=512, intermediate_size=1024,
            moe_intermediate_size=256, num_attention_heads=16, num_key_value_heads=16, q_lora_rank=384, n_routed_experts=8,
            n_group=2, topk_group=1, num_experts_per_tok=2, max_position_embeddings=4096,
        )
    )  # fmt: skip


def absorbed_forward(attend: Callable[..., Any]) -> Callable[..., Any]:
    """DeepseekV3Attention.forward without expanding the cached latents."""

    def forward(
        self: Any,
        hidden_states: Any,
        position_embeddings: Any,
        past_key_values: Any = None,
        **_: Any,
    ) -> tuple[Any, None]:
        batch, length = hidden_states.shape[:-1]
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
        q = q.view(batch, length, -1, self.qk_head_dim).transpose(1, 2)
        q_pass, q_rot = q.split([self.qk_nope_head_dim, self.qk_rope_head_dim], dim=-1)
        latent, k_rot = self.kv_a_proj_with_mqa(hidden_states).split([self.kv_lora_rank, self.qk_rope_head_dim], dim=-1)
        latent = self.kv_a_layernorm(latent).view(batch, 1, length, self.kv_lora_rank)
        k_rot = k_rot.view(batch, 1, length, self.qk_rope_head_dim)
        q_rot, k_rot = deepseek.apply_rotary_pos_emb_interleave(q_rot, k_rot, *position_embeddings)
        if past_key_values is not None:
            latent, k_rot = past_key_values.update(latent, k_rot, self.layer_idx)
        up = self.kv_b_proj.weight.view(self.num_heads, self.qk_nope_head_dim + self.v_head_dim, self.kv_lora_rank)
        up_k, up_v = up.split([self.qk_nope_head_dim, self.v_head_dim], dim=1)
        qv = torch.einsum("bhsd,hdc->bshc", q_pass, up_k)
        rows = [t.transpose(1, 2).contiguous() for t in (q_rot, k_rot, latent)]
        out = attend(*rows, qv=qv.contiguous(), causal=True, softmax_scale=self.scaling)
        out = torch.einsum("bshc,hdc->bshd", out, up_v).reshape(batch, length, -1)
        return self.o_proj(out), None

    return forward


def plainly(q: Any, k: Any, v: Any, *, qv: Any, causal: bool, softmax_scale: float) -> Any:
    """What flash_attn_func does with qv, by torch."""
    assert causal, "only causal"
    scores = torch.einsum("bshd,btd->bhst", q, k[:, :, 0]) + torch.einsum("bshc,btc->bhst", qv, v[:, :, 0])
    scores = scores.float() * softmax_scale
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(k.shape[1] - q.shape[1] + 1)
    return torch.einsum("bhst,btc->bshc", scores.masked_fill(hidden, float("-inf")).softmax(-1).to(v.dtype), v[:, :, 0])


@contextlib.contextmanager
def absorbed(attend: Callable[..., Any]) -> Iterator[None]:
    before = deepseek.DeepseekV3Attention.forward
    deepseek.DeepseekV3Attention.forward = absorbed_forward(attend)
    try:
        yield
    finally:
        deepseek.DeepseekV3Attention.forward = before


@torch.no_grad()
def logits(model: Any, tokens: Any, prompt: int) -> Any:
    cache = DynamicCache(config=model.config)
    parts = [model(tokens[:, :prompt], past_key_values=cache).logits]
    parts += [model(tokens[:, i : i + 1], past_key_values=cache).logits for i in range(prompt, tokens.shape[1])]
    return torch.cat(parts, 1).float()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prompt", type=int, default=700)
    options = parser.parse_args()
    device = options.device
    kinds = ("eager", "flash_attention_2", "flash_attention_3", "flash_attention_4", "absorbed")
    for name, make in (("gpt-oss", gpt_oss), ("DeepSeek V3", deepseek_v3)):
        torch.manual_seed(0)
        model = make().eval().to(device)
        if name == "gpt-oss":
            for layer in model.model.layers:
                torch.nn.init.normal_(layer.self_attn.sinks, mean=1.0, std=1.0)
        else:
            for layer in model.model.layers:  # so that scores are not all alike
                for weight in (layer.self_attn.q_b_proj, layer.self_attn.kv_b_proj):
                    weight.weight.data.mul_(6)
        tokens = torch.randint(0, 1000, (2, options.prompt + 8), device=device)
        model.set_attn_implementation("eager")
        exact = logits(model, tokens, options.prompt)
        print(f"{name}: logits up to {exact.abs().max():.2f}, standard deviation {exact.std():.3f}", flush=True)
        if name != "gpt-oss":
            with absorbed(plainly):
                difference = (logits(model, tokens, options.prompt) - exact).abs().max()
            print(f"  absorbed by torch in float32: largest {difference:.6f}", flush=True)
        if device == "cpu":
            continue
        half = model.to(torch.bfloat16)
        for kind in kinds:
            if kind == "absorbed" and name == "gpt-oss":
                continue
            try:
                if kind == "absorbed":
                    from flash_attn_interface import flash_attn_func  # noqa: PLC0415  (the wheel's)

                    half.set_attn_implementation("flash_attention_3")
                    with absorbed(flash_attn_func):
                        got = logits(half, tokens, options.prompt)
                else:
                    half.set_attn_implementation(kind)
                    got = logits(half, tokens, options.prompt)
            except Exception as error:  # noqa: BLE001  (the others are wanted all the same)
                print(f"  {kind}: {type(error).__name__}: {error}"[:300], flush=True)
                continue
            parts = {"prompt": slice(0, options.prompt), "one token at a time": slice(options.prompt, None)}
            found = [
                f"{part} largest {d.max():.4f} mean {d.mean():.5f}"
                for part, rows in parts.items()
                for d in ((got[:, rows] - exact[:, rows]).abs(),)
            ]
            print(f"  {kind:18} {'; '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
