"""Text in and out of a model: tokenizer, prompts, parsing of completions."""
