"""A random Llama with adapters, and trainers of peers on sequences that follow a rule of each peer, for tests."""

import torch
from torch.utils.data import Dataset

WORDS = 32
LENGTH = 12
TEMPLATE = "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"


def tiny_llama(*, rank=2, dtype=torch.float32, targets=("q_proj", "v_proj"), alpha=None, **sizes):
    """Return a causal model of two layers, the same at each call, with LoRA adapters that are not trained yet."""
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 -- takes seconds
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed  # noqa: PLC0415

    set_seed(11)
    usual = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=WORDS, num_key_value_heads=1, max_position_embeddings=64, **(usual | sizes))
    model = LlamaForCausalLM(config).to(dtype)
    set_seed(12 + rank)  # peers need not draw the same adapters
    lora = LoraConfig(r=rank, lora_alpha=alpha or 4 * rank, target_modules=list(targets), task_type="CAUSAL_LM")
    return get_peft_model(model, lora)


def tiny_tokenizer():
    """Return a tokenizer of the words w0, w1 and so on, with a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415 -- takes seconds
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    words = ["<pad>", "<eos>", "<unk>", "user", "assistant", *(f"w{number}" for number in range(WORDS - 5))]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106 -- no secret
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    made = PreTrainedTokenizerFast(tokenizer_object=inner, **special)
    made.chat_template = TEMPLATE
    return made


class Sequences(Dataset):
    """Token sequences, half of whose labels do not count."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.served = []

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        self.served.append(index)
        labels = self.tokens[index].clone()
        labels[: LENGTH // 4] = -100
        return {"input_ids": self.tokens[index], "labels": labels}


def sequences(peer, count, *, seed=0):
    """Return sequences that count up by a step, the same for all peers, from words of the peer's own."""
    own = torch.Generator().manual_seed(1000 * seed + sum(map(ord, peer)))
    first = torch.randint(WORDS // 2, (count, 1), generator=own) + WORDS // 2 * (sum(map(ord, peer)) % 2)
    return Sequences((first + 3 * torch.arange(LENGTH)) % WORDS)


def make_trainer(model, peer, folder, *, kind=None, arguments=None, count=8, **settings):
    """Return a trainer of a peer."""
    from transformers import Trainer, TrainingArguments  # noqa: PLC0415 -- takes seconds

    kind, arguments = kind or Trainer, arguments or TrainingArguments
    usual = {
        "output_dir": str(folder / peer),
        "max_steps": 3,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 3,
        "learning_rate": 0.02,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 2,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return kind(
        model=model,
        args=arguments(**(usual | settings)),
        train_dataset=sequences(peer, count),
        eval_dataset=sequences(peer, 4, seed=1),
    )


def texts(peer, peers, seed, count=64, first=None):
    """Return sequences that count up by a step, and their next tokens, as samples of an experiment.

    The first peer may have another number of them.
    """
    count = first if first is not None and peer == peers[0] else count
    tokens = sequences(peer, count, seed=seed).tokens
    return tokens, torch.cat([tokens[:, 1:], torch.full((count, 1), -100)], dim=1)


def trainer_learner(peers, rounds, seed, folder):
    """Return the learner of an experiment whose trainers learn many sequences by heart."""
    from pathlib import Path  # noqa: PLC0415

    from p2pfl.plugins.language import TrainerLearner  # noqa: PLC0415 -- takes seconds

    model = tiny_llama(rank=8, targets=("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"))
    settings = {"count": 80, "max_steps": 80, "per_device_train_batch_size": 20}
    trainers = {peer: make_trainer(model, peer, Path(folder), **settings) for peer in peers}
    return TrainerLearner(trainers, rounds=rounds, seed=seed)
