"""Decoders of transformers with small random weights: logits and generated tokens against the model's
own eager attention. Skipped without torch and transformers."""

import unittest

import support
from support import attnserve

try:
    import torch
    import transformers
    import attnserve.hf as hf
    MISSING = None
except ImportError as error:
    MISSING = str(error)

SIZES = dict(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
# Name: model class, config class, what differs from SIZES.
MODELS = {
    "Llama (GQA)": ("LlamaForCausalLM", "LlamaConfig", {}),
    "Mistral (window)": ("MistralForCausalLM", "MistralConfig", dict(sliding_window=7)),
    "Qwen 3": ("Qwen3ForCausalLM", "Qwen3Config", dict(head_dim=16)),
    "Gemma 2 (soft cap, window)": (
        "Gemma2ForCausalLM", "Gemma2Config",
        dict(head_dim=16, sliding_window=9, query_pre_attn_scalar=16, attn_logit_softcapping=5.0)),
    "Gemma 3 (5 windowed : 1 full, D 256)": (
        "Gemma3ForCausalLM", "Gemma3TextConfig",
        dict(num_hidden_layers=6, head_dim=256, sliding_window=9, query_pre_attn_scalar=256)),
    "gpt-oss (sinks, alternating windows)": (
        "GptOssForCausalLM", "GptOssConfig",
        dict(head_dim=16, sliding_window=8, num_local_experts=4, num_experts_per_tok=2)),
}


def make_model(name, dtype=None):
    kind, config, differs = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**{**SIZES, **differs}))
    for parameter in model.parameters():
        if parameter.dim() > 1:  # large enough that attention is not nearly uniform
            torch.nn.init.normal_(parameter, std=0.15)
    for module in model.modules():
        if hasattr(module, "sinks"):
            torch.nn.init.normal_(module.sinks)
    return model.eval().to(dtype or torch.float32)


def padded_batch():
    """Ids, mask and positions of three prompts of 27, 40 and 36 tokens, padded to the left."""
    ids = torch.randint(3, 300, (3, 40))
    mask = torch.ones_like(ids)
    mask[0, :13] = 0
    mask[2, :4] = 0
    ids[mask == 0] = 0
    return ids, mask, (mask.cumsum(1) - 1).clamp(min=0)


@unittest.skipIf(MISSING, "needs torch and transformers: %s" % MISSING)
class HfTest(support.ServerCase):
    def setUp(self):
        super().setUp()
        self.client = attnserve.Client(self.server.address)
        self.addCleanup(self.client.close)
        torch.manual_seed(1234)
        no_grad = torch.no_grad()
        no_grad.__enter__()
        self.addCleanup(no_grad.__exit__, None, None, None)

    def logits(self, model, ids, mask, positions, cache=None, prefill=30):
        """Of every token: a prefill, then token by token. Without a cache: all at once."""
        if cache is None:
            return model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
        parts = []
        steps = [(0, prefill)] + [(t, t + 1) for t in range(prefill, ids.shape[1])]
        for begin, end in steps:
            parts.append(model(input_ids=ids[:, begin:end], attention_mask=mask[:, :end],
                               position_ids=positions[:, begin:end], past_key_values=cache,
                               use_cache=True).logits)
        return torch.cat(parts, 1)

    def test_logits_of_every_architecture(self):
        ids, mask, positions = padded_batch()
        real = mask.bool()
        for name in MODELS:
            with self.subTest(name):
                model = make_model(name)
                model.set_attn_implementation("eager")
                want = self.logits(model, ids, mask, positions)[real]
                with hf.AttnCache(model, self.client) as cache:
                    got = self.logits(model, ids, mask, positions, cache)[real]
                    self.assertEqual([s.len for s in cache.sequences], [27, 40, 36])
                error = ((got - want).abs().max() / want.abs().max()).item()
                print("%s: error %.1e of the largest logit" % (name, error))
                self.assertLess(error, 1e-4)

    def test_sixteen_bits_err_no_more_than_twice_what_eager_does(self):
        ids, mask, positions = padded_batch()
        real = mask.bool()
        for dtype in (torch.bfloat16, torch.float16):
            model = make_model("Llama (GQA)")
            model.set_attn_implementation("eager")
            exact = self.logits(model, ids, mask, positions)[real]
            model = model.to(dtype)
            eager = self.logits(model, ids, mask, positions)[real].float()
            with hf.AttnCache(model, self.client) as cache:
                ours = self.logits(model, ids, mask, positions, cache)[real].float()
            self.assertLess((ours - exact).abs().mean(), 2 * (eager - exact).abs().mean())

    def generate(self, model, inputs, cache=None, **options):
        torch.manual_seed(77)
        model.set_attn_implementation("eager" if cache is None else "attnserve")
        if cache is not None:
            options["past_key_values"] = cache
        return model.generate(**inputs, max_new_tokens=12, **options)

    def check_generation(self, name="Gemma 2 (soft cap, window)", **options):
        ids, mask, _ = padded_batch()
        inputs = dict(input_ids=ids, attention_mask=mask)
        model = make_model(name)
        want = self.generate(model, inputs, **options)
        with hf.AttnCache(model, self.client) as cache:
            got = self.generate(model, inputs, cache, **options)
        self.assertEqual(got.tolist(), want.tolist())

    def test_greedy(self):
        self.check_generation(do_sample=False)

    def test_sampling(self):
        self.check_generation(do_sample=True, temperature=0.8, top_k=40)

    def test_beams(self):
        self.check_generation(do_sample=False, num_beams=3)

    def test_several_answers_to_each_prompt(self):
        self.check_generation(do_sample=True, num_return_sequences=2)

    def test_assisted_decoding_rolls_back(self):
        ids = torch.randint(3, 300, (1, 20))
        inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
        model, assistant = make_model("Llama (GQA)"), make_model("Llama (GQA)")
        for parameter in assistant.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))  # right now and then
        want = self.generate(model, inputs, do_sample=False)
        with hf.AttnCache(model, self.client) as cache:
            got = self.generate(model, inputs, cache, do_sample=False, assistant_model=assistant)
        self.assertEqual(got.tolist(), want.tolist())

    def test_a_chat_goes_on_where_it_was(self):
        ids = torch.randint(3, 300, (1, 25))
        model = make_model("Qwen 3")
        with hf.AttnCache(model, self.client) as cache:
            first = self.generate(model, dict(input_ids=ids), cache, do_sample=False)
            more = torch.cat([first, torch.randint(3, 300, (1, 6))], 1)
            second = self.generate(model, dict(input_ids=more), cache, do_sample=False)
        model.set_attn_implementation("eager")
        want = self.generate(model, dict(input_ids=more), do_sample=False)
        self.assertEqual(second.tolist(), want.tolist())

    def test_what_cannot_be_served_is_refused(self):
        model = make_model("Llama (GQA)")
        ids, mask, _ = padded_batch()
        with hf.AttnCache(model, self.client) as cache:
            with self.assertRaises(attnserve.UnsupportedError) as caught:
                model(input_ids=ids)
            self.assertEqual(caught.exception.field, "past_key_values")
            with self.assertRaises(attnserve.InvalidRequestError) as caught:
                model(input_ids=ids, attention_mask=mask.flip(1), past_key_values=cache)
            self.assertEqual(caught.exception.field, "attention_mask")
        with self.assertRaises(attnserve.UnsupportedError):
            hf.spec_of(torch.nn.Linear(3, 3))

    def test_masks_of_images_and_of_packed_sequences_are_refused(self):
        from transformers import masking_utils

        def image(batch, head, q, kv):
            return (q >= 3) & (q < 6) & (kv >= 3) & (kv < 6)

        def halves(batch, head, q, kv):
            return (q < 5) == (kv < 5)

        causal = masking_utils.causal_mask_function
        sizes = dict(batch_size=2, q_length=8, kv_length=8)
        self.assertIsNone(hf._padding_mask(mask_function=causal, **sizes))
        window = masking_utils.sliding_window_causal_mask_function(3)
        self.assertIsNone(hf._padding_mask(mask_function=window, **sizes))
        for bad in (masking_utils.or_masks(causal, image), masking_utils.and_masks(causal, halves)):
            with self.assertRaises(attnserve.UnsupportedError) as caught:
                hf._padding_mask(mask_function=bad, **sizes)
            self.assertEqual(caught.exception.field, "attention_mask")

    def test_an_exception_leaves_no_sequence(self):
        model = make_model("Llama (GQA)")
        ids, _, _ = padded_batch()

        class Stop(transformers.LogitsProcessor):
            def __call__(self, input_ids, scores):
                if input_ids.shape[1] > 43:
                    raise KeyboardInterrupt
                return scores

        with self.assertRaises(KeyboardInterrupt):
            with hf.AttnCache(model, self.client) as cache:
                self.generate(model, dict(input_ids=ids), cache, do_sample=False,
                              logits_processor=[Stop()])
        self.assertEqual(self.client._calls.open_sequences, {})


if __name__ == "__main__":
    unittest.main()
