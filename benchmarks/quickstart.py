"""Speed of the quickstart's training step, against TRL on the same work in the same run.

    pip install -e '.[bench]' && python benchmarks/quickstart.py [--peer=none]

Prints, for GRPO and Agon at 256 rollouts a step on the bundled tiny base: sampled tokens/s,
seconds a step (sampling, host work and update), and seconds to compile; then the seconds a step
of TRL's GRPO (no vLLM, PEFT LoRA of the same rank) and the ratio. Takes about three minutes.
"""

import argparse
import itertools
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from agon_jax.main import load_config, prepare_cpu  # noqa: E402


def measure(config, parts, method, steps):
    """(compile seconds, seconds a step, sampled tokens/s) of one method; medians over steps."""
    from rich.console import Console

    from agon_jax import setup
    from agon_jax.display import Display
    from agon_jax.logs import member_folder, read_metrics
    from agon_jax.train import train

    class Clock(Display):
        def step(self, done, metrics):
            marks.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        marks = [time.perf_counter()]
        path, display = pathlib.Path(folder), Clock(Console(quiet=True))
        train(config, parts, setup.make_game(config, method), (0,), path, display)
        rows = read_metrics(member_folder(path, 0) / "metrics.jsonl")
    seconds = [after - before for before, after in itertools.pairwise(marks)]
    warm = slice(2, None)  # each role of a policy has been compiled by then
    per_step = statistics.median(seconds[warm])
    update = statistics.median(row["seconds_update"] for row in rows[warm])
    rate = statistics.median(row["tokens_per_second"] for row in rows[warm])
    return seconds[0] - per_step, per_step, update, rate


def measure_trl(parts, config, steps):
    """Seconds a step of TRL's GRPOTrainer: the same base, prompts, rollouts and LoRA rank."""
    import datasets
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from agon_jax import setup
    from agon_jax.text.completion import parse

    folder = str(setup.base_folder("tiny"))
    task, problems = parts.actor.task, parts.splits.train
    by_text = {problem.text: problem for problem in problems}
    rollouts = config.data.problems_per_step * 2 * config.game.group_size

    def reward(prompts, completions, **_):
        scores = []
        for prompt, completion in zip(prompts, completions, strict=True):
            parsed = parse(completion[0]["content"], finished=True)
            problem = by_text[prompt[0]["content"]]
            right = parsed.answer is not None and task.verify(problem, parsed.answer)
            scores.append(2.0 * right + 0.5 * parsed.well_formed)
        return scores

    marks = []

    class Clock(TrainerCallback):
        def on_step_end(self, *args, **kwargs):
            marks.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as out:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
            processing_class=AutoTokenizer.from_pretrained(folder),
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=out, use_cpu=True, bf16=False, beta=0.0, max_steps=steps,
                per_device_train_batch_size=rollouts, num_generations=2 * config.game.group_size,
                max_completion_length=config.sampling.max_new_tokens, temperature=1.0,
                learning_rate=1e-3, report_to=[], logging_steps=1000, save_strategy="no",
                disable_tqdm=True, gradient_checkpointing=False,
            ),
            train_dataset=datasets.Dataset.from_list(
                [{"prompt": [{"role": "user", "content": p.text}]} for p in problems]
            ),
            peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
            callbacks=[Clock()],
        )  # fmt: skip
        trainer.train()
    return statistics.median(b - a for a, b in itertools.pairwise(marks[1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--peer", choices=("trl", "none"), default="trl")
    args = parser.parse_args()
    prepare_cpu()

    from agon_jax import setup

    config = load_config(ROOT / "configs" / "quickstart.py")
    config.grpo.steps, config.log.tensorboard = args.steps, False
    config.log.checkpoint_every = 1000
    parts = setup.make_parts(config)
    times = {}
    for method in ("grpo", "adv"):
        compile_s, times[method], update, rate = measure(config, parts, method, args.steps)
        print(
            f"{method:5} {times[method]:.2f} s a step of 256 rollouts (update {update:.2f} s), "
            f"{rate:,.0f} sampled tokens/s, compile {compile_s:.0f} s",
            flush=True,
        )
    if args.peer == "trl":
        peer = measure_trl(parts, config, max(args.steps // 2, 4))
        print(f"TRL   {peer:.2f} s a step of 256 rollouts (GRPO, no vLLM)")
        for method, seconds in times.items():
            print(f"{method:5} takes {seconds / peer:.2f} x TRL's time a step")


if __name__ == "__main__":
    main()
