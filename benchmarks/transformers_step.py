"""A small Llama built here, with attn_implementation="flash_attention_2": its logits, and its time for a step.

Usage: python benchmarks/transformers_step.py       where torch, transformers, a GPU and a wheel with both families are

Logits of fa2 and of dispatch are compared with those of eager attention in float32 and in bf16: an error may be 1.5
times that of torch's own bf16 attention (sdpa). A step is forward and backward over 4096 tokens a sequence.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from flash_attn_2_cuda import library
from transformers import LlamaConfig, LlamaForCausalLM

FAMILIES = {"fa2": 2, "dispatch": 0, "fa4": 4}


def model(implementation: str, dtype: torch.dtype, size: dict[str, int]) -> LlamaForCausalLM:
    config = LlamaConfig(vocab_size=1000, max_position_embeddings=8192, attn_implementation=implementation, **size)
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to("cuda", dtype)


def twin(of: LlamaForCausalLM, implementation: str, dtype: torch.dtype, size: dict[str, int]) -> LlamaForCausalLM:
    """The same weights with another attention."""
    made = model(implementation, dtype, size)
    made.load_state_dict({name: value.to(dtype) for name, value in of.state_dict().items()})
    return made


def logits(size: dict[str, int]) -> bool:
    """Print the errors of the logits, for whole batches and padded ones."""
    flash = model("flash_attention_2", torch.bfloat16, size)
    eager = twin(flash, "eager", torch.float32, size)
    sdpa = twin(flash, "sdpa", torch.bfloat16, size)
    torch.manual_seed(1)
    tokens = torch.randint(0, 1000, (4, 777), device="cuda")
    right = torch.ones_like(tokens)
    for row, length in enumerate((777, 500, 64, 1)):
        right[row, length:] = 0
    fine = True
    for name, mask in (("whole", None), ("padded right", right), ("padded left", right.flip(1))):
        kept = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask.bool()
        with torch.no_grad():
            exact = eager(tokens, attention_mask=mask).logits[kept]
            largest = exact.abs().max().item()
            plain = (sdpa(tokens, attention_mask=mask).logits[kept].float() - exact).abs()
            print(
                f"{name:13} sdpa      largest error {plain.max():.4f}, mean {plain.mean():.5f} (logits up to {largest:.2f})"
            )
            for family, number in FAMILIES.items():
                library._family = number  # noqa: SLF001  (what FLASH_ATTENTION_FAMILY sets)
                error = (flash(tokens, attention_mask=mask).logits[kept].float() - exact).abs()
                good = bool(error.max() <= 1.5 * plain.max() and error.mean() <= 1.2 * plain.mean())
                fine = fine and good
                print(
                    f"{name:13} {family:9} largest error {error.max():.4f}, mean {error.mean():.5f} {'ok' if good else 'MISS'}"
                )
    return fine


def gradients(size: dict[str, int]) -> bool:
    """Compare the gradients of the loss, as norms over all weights."""
    flash = model("flash_attention_2", torch.bfloat16, size)
    eager = twin(flash, "eager", torch.float32, size)
    sdpa = twin(flash, "sdpa", torch.bfloat16, size)
    tokens = torch.randint(0, 1000, (2, 1024), device="cuda")

    def of(one: LlamaForCausalLM) -> torch.Tensor:
        one.zero_grad()
        one(tokens, labels=tokens).loss.backward()
        return torch.cat([p.grad.flatten().float() for p in one.parameters()])

    exact = of(eager)
    plain = ((of(sdpa) - exact).norm() / exact.norm()).item()
    print(f"gradients     sdpa      {plain:.5f} of their norm")
    fine = True
    for family, number in FAMILIES.items():
        library._family = number  # noqa: SLF001
        error = ((of(flash) - exact).norm() / exact.norm()).item()
        fine = fine and error <= 1.2 * plain
        print(f"gradients     {family:9} {error:.5f} of their norm {'ok' if error <= 1.2 * plain else 'MISS'}")
    return fine


def steps(size: dict[str, int], batch: int, length: int, rounds: int = 9) -> None:
    """Print milliseconds of forward and backward, the families and sdpa in turn."""
    flash = model("flash_attention_2", torch.bfloat16, size)
    sdpa = twin(flash, "sdpa", torch.bfloat16, size)
    tokens = torch.randint(0, 1000, (batch, length), device="cuda")

    def step(name: str) -> float:
        one = sdpa if name == "sdpa" else flash
        library._family = FAMILIES.get(name, 0)  # noqa: SLF001
        torch.cuda.synchronize()
        began = time.perf_counter()
        one(tokens, labels=tokens).loss.backward()
        torch.cuda.synchronize()
        taken = time.perf_counter() - began
        one.zero_grad()
        return taken * 1000

    names = [*FAMILIES, "sdpa"]
    for name in names:
        step(name)
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            times[name].append(step(name))
    medians = {name: statistics.median(values) for name, values in times.items()}
    shape = f"{batch} x {length}, {size['num_hidden_layers']} layers, {size['num_attention_heads']} heads over {size['num_key_value_heads']}"
    print(f"step of {shape}: " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in medians.items()))
    print(f"  dispatch takes {medians['dispatch'] / medians['fa2']:.3f} of fa2's time")


def main() -> int:
    small = {
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
    }
    large = {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
    }
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    fine = [logits(small), logits(large), gradients(small)]
    steps(large, 4, 4096)
    steps(large, 1, 16384)
    print(f"{sum(fine)} passed, {len(fine) - sum(fine)} failed")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
