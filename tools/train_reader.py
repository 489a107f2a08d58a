"""Train what adapts the router's reader, and write `assets/router/adapter.npz`.

Needs PyTorch (CPU), which the product does not: `pip install torch`, then

    python tools/train_reader.py --out assets/router/adapter.npz

Half an hour of one core. `--held-out en-train-travel "ja-train 6"` trains without these topics, and
tells how often decisions about them are right. `--start FILE` goes on from an earlier adapter.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from avatar_server.inference.llm.router.examples import Example, load_examples
from avatar_server.inference.llm.router.fitting import topic
from avatar_server.inference.llm.router.joint import JointReader
from avatar_server.inference.llm.router.routes import Turn
from avatar_server.inference.llm.router.transformer import FORMAT, LORA_SCALE
from avatar_server.inference.llm.router.weights import Weights
from avatar_server.models import ModelStore
from avatar_server.paths import assets_dir

ADAPTER = assets_dir() / "router" / "adapter.npz"
"""Of its making only the number of layers counts for training anew."""
LAYERS, FROM, RANK = 8, 3, 8
LABELS = (
    *("small_talk", "question", "command", "stop", "repeat", "goodbye", "unclear"),
    *("question+", "command+"),
)
FILLERS = ("um", "uh", "so", "okay", "well", "er", "hey", "ah", "right", "hmm", "like")
FILLERS_JA = ("えっと", "あの", "えー", "あ", "うーん", "ねえ", "まあ")
SMOOTHING = 0.05
DROPOUT = 0.1
RESOLVED_SHARE, ALONE_SHARE = 0.5, 0.3
"""Of resolved requests, and of rows without their history, what an epoch takes."""
FORGOTTEN = 0.15
"""How often an earlier turn comes without its route."""
AVERAGED_OVER = 300
"""Steps over which the weights that are kept are an exponential average."""
POOL = 20
"""Batches whose texts are sorted by length together, so that little is padded."""

Item = tuple[str, tuple[Turn, ...], int, float]


class Adapted(nn.Module):
    """A published matrix, and a low-rank addition to it."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor(weight).bfloat16())
        self.register_buffer("bias", torch.tensor(bias).bfloat16())
        self.a = nn.Parameter(torch.randn(RANK, weight.shape[1]) / math.sqrt(weight.shape[1]))
        self.b = nn.Parameter(torch.zeros(weight.shape[0], RANK))

    def forward(self, x: Tensor) -> Tensor:
        low = functional.linear(functional.linear(x, self.a), self.b)
        return functional.linear(x, self.weight, self.bias) + LORA_SCALE * low


class Layer(nn.Module):
    def __init__(self, weights: Weights, number: int) -> None:
        super().__init__()
        width, inner = weights.width, weights.inner
        self.heads = weights.heads
        for name in ("q", "k", "v", "ao", "fi", "fo"):
            rows, columns = {"fi": (inner, width), "fo": (width, inner)}.get(name, (width, width))
            matrix = weights.tensor(f"l{number}.{name}.w", rows, columns)
            setattr(self, name, Adapted(matrix, weights.tensor(f"l{number}.{name}.b", rows)))
        for ours, published in (("n1", "aln"), ("n2", "oln")):
            norm = nn.LayerNorm(width, eps=1e-12)
            with torch.no_grad():
                norm.weight.copy_(torch.tensor(weights.tensor(f"l{number}.{published}.w", width)))
                norm.bias.copy_(torch.tensor(weights.tensor(f"l{number}.{published}.b", width)))
            setattr(self, ours, norm)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape

        def parted(y: Tensor) -> Tensor:
            return y.view(batch, length, self.heads, -1).transpose(1, 2)

        seen = functional.scaled_dot_product_attention(
            parted(self.q(x)), parted(self.k(x)), parted(self.v(x)), attn_mask=mask
        )
        seen = self.ao(seen.transpose(1, 2).reshape(batch, length, width))
        x = self.n1(x + functional.dropout(seen, DROPOUT, self.training))
        inner = self.fo(functional.gelu(self.fi(x)))
        return self.n2(x + functional.dropout(inner, DROPOUT, self.training))


class Lower(nn.Module):
    """The layers that stay as they are published."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights, width = weights, weights.width
        self.positions = torch.tensor(
            weights.tensor("emb.pos", -1, width) + weights.tensor("emb.type", -1, width)[0]
        )
        self.norm = nn.LayerNorm(width, eps=1e-12)
        with torch.no_grad():
            self.norm.weight.copy_(torch.tensor(weights.tensor("emb.ln.w", width)))
            self.norm.bias.copy_(torch.tensor(weights.tensor("emb.ln.b", width)))
        self.layers = nn.ModuleList(Layer(weights, n) for n in range(FROM))
        self.eval()

    @torch.no_grad()
    def forward(self, ids: Tensor, there: Tensor) -> Tensor:
        words = self.weights.words(ids.flatten().tolist())
        x = self.norm(torch.tensor(words).view(*ids.shape, -1) + self.positions[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, there[:, None, None, :])
        return x


class Upper(nn.Module):
    """All that is trained; its input are the lower layers' states."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(weights, n) for n in range(FROM, LAYERS))
        self.segments = nn.Parameter(torch.zeros(8, weights.width))
        self.head = nn.Linear(2 * weights.width, len(LABELS))
        nn.init.zeros_(self.head.weight)

    def forward(self, states: Tensor, kinds: Tensor, there: Tensor) -> Tensor:
        x = functional.dropout(states.float(), DROPOUT, self.training) + self.segments[kinds]
        for layer in self.layers:
            x = layer(x, there[:, None, None, :])
        own = (there & (kinds == 0)).float()[..., None]
        pooled = torch.cat([x[:, 0].float(), (x.float() * own).sum(1) / own.sum(1)], 1)
        return self.head(functional.dropout(pooled, DROPOUT, self.training))

    def parts(self) -> dict[str, Tensor]:
        """By the names of the adapter's file."""
        out = {"segments": self.segments[:7], "head.w": self.head.weight, "head.b": self.head.bias}
        for number, layer in enumerate(self.layers, FROM):
            for name in ("q", "k", "v", "ao", "fi", "fo"):
                adapted = getattr(layer, name)
                out[f"{number}.{name}.a"], out[f"{number}.{name}.b"] = adapted.a, adapted.b
            for name in ("n1", "n2"):
                norm = getattr(layer, name)
                out[f"{number}.{name}.w"], out[f"{number}.{name}.b"] = norm.weight, norm.bias
        return out


def items(rows: list[Example]) -> list[Item]:
    """Rows, and what stands alone beside them, with their label and share."""
    out: list[Item] = []
    for row in rows:
        label = LABELS.index(row.route + "+" * row.continuation)
        out.append((row.text, row.history, label, 1.0))
        if row.continuation and row.resolved:
            out.append((row.resolved, (), LABELS.index(row.route), RESOLVED_SHARE))
        elif row.history and row.route != "unclear":
            out.append((row.text, (), label, ALONE_SHARE))
    return out


def jittered(text: str) -> str:
    """As a recogniser might have heard it: with a filler, a word twice, or one missing."""
    japanese = any("\u3040" <= c <= "\u30ff" for c in text)
    chance, words = random.random(), text.split()
    if chance < 0.12:
        return f"{random.choice(FILLERS_JA if japanese else FILLERS)} {text}"
    if chance < 0.18 and not japanese and len(words) > 2:
        place = random.randrange(len(words))
        return " ".join([*words[:place], words[place], *words[place:]])
    if chance < 0.24 and japanese and len(text) > 6:
        place = random.randrange(len(text))
        return text[:place] + text[place + 1 :]
    if chance < 0.24 and not japanese and len(words) > 4:
        words.pop(random.randrange(len(words)))
        return " ".join(words)
    return text


def batch(reader: JointReader, chosen: list[Item]) -> tuple[Tensor, Tensor, Tensor]:
    """Pieces, their segments' kinds, and where there are any: (texts, pieces) each."""
    made = []
    for text, history, _, _ in chosen:
        turns = [
            Turn(t.role, t.text, None if random.random() < FORGOTTEN else t.route) for t in history
        ]
        made.append(reader.sequence(jittered(text), turns))
    shape = len(made), max(len(ids) for ids, _ in made)
    ids, kinds = torch.ones(shape, dtype=torch.long), torch.full(shape, 7)
    there = torch.zeros(shape, dtype=torch.bool)
    for row, (pieces, segments) in enumerate(made):
        ids[row, : len(pieces)], kinds[row, : len(pieces)] = (
            torch.tensor(pieces),
            torch.tensor(segments),
        )
        there[row, : len(pieces)] = True
    return ids, kinds, there


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parse.add_argument("--out", type=Path, required=True)
    parse.add_argument("--start", type=Path)
    parse.add_argument("--held-out", nargs="*", default=[])
    parse.add_argument("--epochs", type=float, default=5)
    parse.add_argument("--rate", type=float, default=1.5e-3)
    parse.add_argument("--batch", type=int, default=32)
    parse.add_argument("--budget-s", type=float, default=3_600)
    parse.add_argument("--seed", type=int, default=0)
    given = parse.parse_args()
    torch.manual_seed(given.seed)
    random.seed(given.seed)
    rows = load_examples(assets_dir() / "eval" / "routing-train.jsonl")
    if missing := set(given.held_out) - {topic(row) for row in rows}:
        parse.error(f"no rows are of {sorted(missing)}; topics: {sorted(set(map(topic, rows)))}")
    kept = [row for row in rows if topic(row) not in given.held_out]
    held = [row for row in rows if topic(row) in given.held_out]
    path = ModelStore().path("multilingual-e5-small")
    reader, lower, net = JointReader(path, ADAPTER), Lower(Weights(path)), Upper(Weights(path))
    if given.start is not None:
        with np.load(given.start, allow_pickle=False) as file, torch.no_grad():
            for name, value in net.parts().items():
                value.copy_(torch.tensor(file[name].astype(np.float32)))
    train = items(kept)
    print(f"{len(train)} texts, {sum(p.numel() for p in net.parameters()):,} numbers to train")
    lengths = [len(reader.sequence(text, history)[0]) for text, history, _, _ in train]
    optimiser = torch.optim.AdamW(net.parameters(), given.rate, (0.9, 0.98), weight_decay=0.01)
    total = int(sum(share for *_, share in train) / given.batch * given.epochs)
    averaged = {name: value.detach().clone() for name, value in net.parts().items()}
    began, step, mean = time.monotonic(), 0, 0.0
    while step < total and time.monotonic() - began < given.budget_s:
        for chosen in batches(train, lengths, given.batch):
            done = max(step / total, (time.monotonic() - began) / given.budget_s)
            if done >= 1:
                break
            for group in optimiser.param_groups:
                group["lr"] = given.rate * min(1, (step + 1) / (0.06 * total)) * max(0.02, 1 - done)
            net.train()
            with torch.autocast("cpu", torch.bfloat16):
                ids, kinds, there = batch(reader, [train[k] for k in chosen])
                logits = net(lower(ids, there), kinds, there)
            wanted = torch.tensor([train[k][2] for k in chosen])
            loss = functional.cross_entropy(logits.float(), wanted, label_smoothing=SMOOTHING)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimiser.step()
            step += 1
            kept_share = min(step / (step + 9), 1 - 1 / AVERAGED_OVER)
            with torch.no_grad():
                for name, value in net.parts().items():
                    averaged[name].lerp_(value, 1 - kept_share)
            mean = loss.item() if step == 1 else 0.98 * mean + 0.02 * loss.item()
            if step % 50 == 0:
                print(f"{step}/{total} {mean:.3f} {time.monotonic() - began:.0f} s", flush=True)
        save(averaged, given.out)
    if held:
        judge(JointReader(path, given.out), held)


def batches(train: list[Item], lengths: list[int], size: int) -> list[list[int]]:
    """An epoch: of each kind of text its share, those of like length together."""
    order = [k for k, (*_, share) in enumerate(train) if random.random() < share]
    random.shuffle(order)
    out = []
    for start in range(0, len(order), size * POOL):
        pool = sorted(order[start : start + size * POOL], key=lambda k: lengths[k])
        out += [pool[at : at + size] for at in range(0, len(pool), size)]
    random.shuffle(out)
    return out


def save(parts: dict[str, Tensor], path: Path) -> None:
    about = {
        "format": FORMAT,
        "labels": LABELS,
        "temperature": 1.0,
        "layers": LAYERS,
        "adapted_from": FROM,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: value.float().numpy().astype(np.float16) for name, value in parts.items()}
    np.savez_compressed(path, about=np.array(json.dumps(about)), **arrays)


def judge(reader: JointReader, rows: list[Example]) -> None:
    """Print how often the reader alone is right."""
    right = []
    for row in rows:
        chances = reader.chances(row.text, row.history)
        right.append(max(chances, key=lambda label: chances[label]) == _label(row))
    print(f"held out: {np.mean(right):.1%} of {len(right)} right")


def _label(row: Example) -> str:
    return row.route + "+" * row.continuation


if __name__ == "__main__":
    main()
