"""Agon, the paper's main run: Qwen3-0.6B on DeepMath-hard. Every field is documented here.

    python -m agon_jax.main --config=configs/adv.py --workdir=runs/adv

Cost: 375 steps x 128 rollouts of up to 16k tokens; made for one large GPU or a TPU slice. Needs
the Hugging Face hub (weights and problems). Expected by the paper: 61 % [55.2, 66.6] of 300
held-out problems for the cascade, against 30 % for GRPO and 23 % zero-shot. Not yet reproduced
by us. Marks: [2nd] known from second-hand notes on the paper, [open] unknown, our choice.
"""

from agon_jax.config import default


def get_config():
    c = default()
    c.job = "compare"  # train and judge methods | train: the game below, no judging | tiny_base | copy_base
    c.seed = 0  # everything random follows from it and from (step, problem, rollout)
    c.base = "Qwen/Qwen3-0.6B"  # local folder, hub id, or "tiny" (the bundled base)
    c.dtype = "bfloat16"  # of weights, activations and KV cache; adapters are always float32
    c.mesh = (1, -1, 1)  # devices on (data, fsdp, tensor); -1 takes what is left
    c.thinking = True  # the thinking switch of chat templates that have one (Qwen3, Qwen3.5)
    # The referee and its prompts: math | code | reasoning_gym | operators (the tiny world) | copy_world
    c.task = "math"
    c.copy_world.detect = 0.0  # of that task: share of the wrong drafts that carry a mark
    c.verify.workers = 2  # processes of the referee
    c.verify.allow_unsandboxed = False  # True: programs of task "code" run without a sandbox where none is
    c.methods = ("adv",)  # of job "compare": grpo, self_refine, coop, adv, margin, tie_break, fixed_roles

    # The two policies: LoRA adapters on one frozen base.
    c.lora.rank = 16
    c.lora.alpha = 32.0  # [open] the update is scaled by alpha / rank
    c.lora.rslora = False  # True: the update is scaled by alpha / sqrt(rank)
    c.lora.targets = (".*",)  # regular expressions over module names: (".*",) is every linear layer
    c.lora.noise = 1e-3  # [open] std of policy A's B matrices; policy B starts at zero
    c.init_adapters = ""  # PEFT folders to start from: one that holds policy_a and policy_b, or "A,B"

    # The game. In job "compare", what defines a method (agon_jax/methods.py) takes its place.
    c.game.policies = 2
    c.game.group_size = 8  # [2nd] K drafts and K challenges a problem; single-policy methods: 2K
    c.game.challenge = True  # False: plain GRPO
    c.game.rotate = True  # swap the roles at every step; False: policy A always drafts
    c.game.reward = "adv"  # of challengers: coop | adv | margin | tie_break
    c.game.weights.correct = 2.0  # [2nd]
    c.game.weights.format = 0.5  # [2nd]
    c.game.weights.conversion = 1.0  # [2nd] right where the rival was wrong
    c.game.weights.length = 0.5  # [open] tie_break only: both right, and shorter than the rival

    # Problems.
    # deepmath_hard | gsm8k | math500 | aime24 | aime25 | amc23 | codecontests_easy | jsonl |
    # reasoning_gym | operators | copy_world
    c.data.source = "deepmath_hard"
    c.data.path = ""  # local copy; the file of "jsonl"; "leg_counting,chain_sum:500" for reasoning_gym
    c.data.question_field = "problem"  # of a JSONL row
    c.data.answer_field = "answer"  # of a JSONL row
    c.data.shares = (0.8, 0.1, 0.1)  # of a content hash: train, validation, held-out; rows never move
    c.data.transfer = ("math500", "gsm8k_test")  # what overlaps with these is not trained on
    c.data.train = 3000  # [2nd] at most
    c.data.validation = 300  # picks the direction of the cascade
    c.data.heldout = 300
    c.data.problems_per_step = 8  # [open]
    c.data.prompt_buckets = (512, 1024, 2048, 4096)  # prompts pad to one of these; over the last: dropped
    c.data.max_attempt_tokens = 2048  # a rival's summary is cut there

    # Sampling of training rollouts. Below top_p = 1 the sampler's distribution is not the policy's
    # own; log-probs are then taken over the same nucleus. The paper samples at 0.6 and 0.95 [2nd];
    # we train on the policy itself and evaluate as the paper does.
    c.sampling.temperature = 1.0
    c.sampling.top_p = 1.0
    c.sampling.max_new_tokens = 16384  # [open]

    # The update of both adapters.
    c.grpo.steps = None  # None: one epoch
    c.grpo.learning_rate = 5e-5  # [2nd] peak
    c.grpo.warmup = 0.1  # [2nd] share of the steps; then linear decay to 0
    c.grpo.weight_decay = 0.0
    c.grpo.max_grad_norm = 1.0  # each policy by its own norm
    c.grpo.clip_low = 0.2  # [open]
    c.grpo.clip_high = 0.2  # [open]
    c.grpo.kl_weight = 0.001  # [open] to the base without adapter; 0 saves a forward pass
    c.grpo.aggregation = "sequence"  # sequence (GRPO) | token (DAPO)
    c.grpo.completion_buckets = (1024, 2048, 4096, 8192, 16384)  # rows are cut to one of these
    c.grpo.microbatches = 8  # parts that the rows of a policy are processed in; memory only
    c.grpo.chunk = 256  # positions a row whose logits exist at once
    c.grpo.remat = True  # recompute layers in the backward pass

    # Evaluation.
    c.eval.temperature = 0.6  # [2nd]
    c.eval.top_p = 0.95  # [2nd]
    c.eval.rows_per_call = 64  # rows of one sampling call

    c.log.checkpoint_every = 10  # steps
    c.log.transcripts_every = 10  # steps
    c.log.tensorboard = True
    return c
