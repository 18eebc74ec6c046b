"""What the small files of a sentence-transformers model say of it, without loading torch.

Opening a store must not take as long as importing torch: dimensions, window and prompts are read
from the model's JSON files, and tokens are counted with its tokenizer alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evervec.embedders.base import describe
from evervec.embedders.model_folder import ModelFiles, pooling_modes
from evervec.errors import ProviderUnavailable

_SMALL_FILES = ("*.json", "*/config.json")
_TEXT_PROMPTS = ("document", "passage", "corpus")
_UNSAID = 1 << 20


@dataclass(frozen=True)
class Description:
    """A model as its files describe it; None where they do not say."""

    dimensions: int | None
    window: int | None
    text_prompt: str
    query_prompt: str
    tokenizer: Path | None


def describe_model(files: ModelFiles) -> Description:
    """Read a folder in the layout of sentence-transformers."""
    config = files.json("config_sentence_transformers.json")
    prompts = config.get("prompts") or {}
    usual = prompts.get(config.get("default_prompt_name") or "") or ""
    texts = (prompts[name] for name in _TEXT_PROMPTS if prompts.get(name))
    tokenizer = files.folder / "tokenizer.json"
    return Description(
        dimensions=_dimensions(files),
        window=_window(files),
        text_prompt=next(texts, usual),
        query_prompt=prompts.get("query") or usual,
        tokenizer=tokenizer if tokenizer.is_file() else None,
    )


def _dimensions(files: ModelFiles) -> int | None:
    """By the last module that makes vectors of another size."""
    for module in reversed(files.json("modules.json", default=[])):
        kind = str(module.get("type", "")).rpartition(".")[2]
        config = files.json(f"{module.get('path', '')}/config.json") if module.get("path") else {}
        if kind == "Normalize":
            continue
        if kind == "Dense":
            return config.get("out_features")
        if kind == "Pooling":
            each = config.get("embedding_dimension") or config.get("word_embedding_dimension")
            return len(pooling_modes(config)) * each if each else None
        return None
    return None


def _window(files: ModelFiles) -> int | None:
    """As sentence-transformers sets it, if the files say it."""
    said = files.json("sentence_bert_config.json").get("max_seq_length")
    longest = files.json("tokenizer_config.json").get("model_max_length") or _UNSAID
    places = files.json("config.json").get("max_position_embeddings") or _UNSAID
    window = said or min(longest, places)
    return int(window) if window < _UNSAID else None


def files_of_hub_model(name: str, revision: str | None) -> ModelFiles:
    """The small files of a model on Hugging Face's hub, from the cache of this machine if they are
    there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        try:
            folder = snapshot_download(
                name, revision=revision, allow_patterns=_SMALL_FILES, local_files_only=True
            )
        except LocalEntryNotFoundError:
            folder = snapshot_download(name, revision=revision, allow_patterns=_SMALL_FILES)
    except Exception as error:  # it raises many types of errors
        raise ProviderUnavailable(
            f"the model {name} cannot be read ({describe(error)}): let this machine reach "
            "huggingface.co once, or give a folder with the model"
        ) from error
    return ModelFiles(Path(folder))
