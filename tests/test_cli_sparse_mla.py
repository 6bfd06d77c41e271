"""`python -m mha_sink bench sparse_mla` and `demo sparse_mla`."""

from __future__ import annotations

import argparse
import dataclasses

import pytest
import torch

import mha_sink
from mha_sink import _C, cli, sparse
from mha_sink.cli import bench, demo_sparse_mla
from mha_sink.cli.deepseek_v4 import SmallModel
from mha_sink.cli.report import access_bytes, bytes_moved, mfma_flops
from mha_sink.testing import SparseCase, window_pool_indices

TEXT = (mha_sink.sparse_mla_bwd_dsv4.__doc__ or "").encode()
BENCH = ["bench", "sparse_mla", "--device", "emulated", "--skip-correctness"]
SMALL = [*BENCH, "--cfgs", "40,16,64", "--window", "32", "--num-pool", "40"]


def rows(printed: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line}


def bench_options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(["sparse_mla", *arguments])


class TestBench:
    def test_phases_add_up(self, capsys):
        assert cli.main([*SMALL, "--breakdown"]) == 0
        printed = capsys.readouterr().out
        indices = window_pool_indices(40, 64, window=32, num_pool=40)
        used = (indices >= 0).double().mean()
        assert f"T 40, H 16, num_kv 80, topk 64, {used:.1%} of the slots used" in printed
        assert "emulated on CPU, which says nothing about a GPU's time" in printed
        table = rows(printed)
        phases = {name: table[name] for name in ("plan", "dq", "dkv_slots", "dkv_gather", "d_sink")}
        for column in (0, 1):
            counts = [int(cells[column].replace(",", "")) for cells in phases.values()]
            everything = int(table["all"][column].replace(",", ""))
            assert 0 < sum(counts) <= everything
        assert phases["plan"][3] == "-"
        for name in ("dq", "dkv_slots", "all"):
            assert 0 < float(table[name][3].removesuffix("%")) <= 100

    def test_without_a_breakdown_there_is_one_row(self, capsys):
        assert cli.main(SMALL) == 0
        table = rows(capsys.readouterr().out)
        assert "all" in table
        assert "dq" not in table

    def test_a_plan_leaves_no_inversion(self, capsys):
        assert cli.main([*SMALL, "--plan", "--breakdown", "--no-sink", "--r-chunk", "32"]) == 0
        table = rows(capsys.readouterr().out)
        assert "dq" in table
        assert "plan" not in table
        assert "d_sink" not in table

    def test_full_slots_waste_nothing(self, capsys):
        """Heads and slots are whole blocks and no slot is empty: all products are of use."""
        arguments = ["--cfgs", "8,128,128", "--indices", "uniform", "--num-pool", "64"]
        assert cli.main([*BENCH, *arguments, "--breakdown"]) == 0
        printed = capsys.readouterr().out
        assert "num_kv 72, topk 128, 100.0% of the slots used" in printed
        assert rows(printed)["dkv_slots"][3] == "100.0%"

    def test_several_shapes(self, capsys):
        assert cli.main([*SMALL, "--cfgs", "40,16,64", "8,16,32"]) == 0
        printed = capsys.readouterr().out
        assert "T 40, H 16, num_kv 80, topk 64" in printed
        assert "T 8, H 16, num_kv 8, topk 32" in printed

    def test_correctness_comes_first(self, monkeypatch, capsys):
        monkeypatch.setattr(bench, "CORRECTNESS", SparseCase("tiny", 6, 16, 32))
        arguments = [argument for argument in SMALL if argument != "--skip-correctness"]
        assert cli.main(arguments) == 0
        printed = capsys.readouterr().out
        assert printed.index("tiny on the emulator") < printed.index("T 40, H 16")
        assert rows(printed)["dkv"][-1] == "pass"

        def wrong(**arguments):
            dq, dkv, d_sink = sparse.sparse_mla_bwd_dsv4(**arguments)
            return dq, dkv * 1.1, d_sink

        monkeypatch.setattr(mha_sink, "sparse_mla_bwd_dsv4", wrong)
        assert cli.main(arguments) == 1
        printed = capsys.readouterr().out
        assert "The gate FAILED." in printed
        assert "T 40, H 16" not in printed

    def test_times(self, monkeypatch, capsys):
        """What a GPU's table shows, with the emulator's milliseconds in it."""
        monkeypatch.setattr(bench, "FLUSH_BYTES", 1)
        options = bench_options("--breakdown", "--repeats", "2", "--window", "32")
        problem = bench.make_problem((8, 16, 32), options, torch.device("cpu"))
        bench.time_phases(problem, options)
        printed = capsys.readouterr().out
        assert "median of 2 on cpu" in printed
        for phase in ("dq", "dkv_slots", "dkv_gather"):
            assert f"  {phase}, warm" in printed
        line = next(x for x in printed.splitlines() if x.startswith("whole call"))
        milliseconds, of_all, of_used = map(float, line.split()[-3:])
        assert milliseconds > 0
        assert of_used <= of_all

    def test_flops_are_those_of_five_products(self):
        options = bench_options("--indices", "uniform", "--num-pool", "1")
        problem = bench.make_problem((3, 16, 32), options, torch.device("cpu"))
        assert problem.flops(problem.slots) == 10 * 512 * 3 * 16 * 32
        assert problem.valid == problem.slots == 96

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--cfgs", "40,16,64"], "topk is 64; need at least window = 128"),
            (["--cfgs", "40,16,4096"], "at most window + num_pool = 1152"),
            (["--cfgs", "40,129,128"], "129 is not supported; supported: at most 128"),
            (["--cfgs", "40,16,128", "--r-chunk", "48"], "R_CHUNK"),
            (["--repeats", "0"], "--repeats is 0; need at least 1"),
        ],
    )
    def test_refused(self, arguments, message, capsys):
        assert cli.main([*BENCH, *arguments]) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert printed.out == ""

    @pytest.mark.parametrize("cfg", ["1,2", "a,b,c", "0,16,32", "1,2,3,4"])
    def test_a_bad_shape(self, cfg, capsys):
        with pytest.raises(SystemExit) as caught:
            cli.main([*BENCH, "--cfgs", cfg])
        assert caught.value.code == 2
        assert "--cfgs" in capsys.readouterr().err


class TestCounts:
    @pytest.mark.parametrize(
        ("mnemonic", "size"),
        [
            ("global_load_dwordx4", 64 * 16),
            ("global_load_lds_dwordx4", 64 * 16),
            ("global_store_short", 64 * 2),
            ("global_store_short_d16_hi", 64 * 2),
            ("buffer_load_ubyte", 64),
            ("global_atomic_add_f32", 64 * 4),
            ("global_atomic_pk_add_bf16", 64 * 4),
            ("global_atomic_add_x2", 64 * 8),
            ("ds_read_b128", 64 * 16),
            ("ds_read_b64_tr_b16", 64 * 8),
            ("ds_read2st64_b32", 64 * 8),
            ("ds_write_b16_d16_hi", 64 * 2),
            ("ds_read_u8_d16", 64),
            ("ds_bpermute_b32", 0),
            ("ds_swizzle_b32", 0),
            ("s_load_dwordx8", 32),
            ("s_buffer_load_dword", 4),
            ("s_memtime", 0),
            ("s_add_u32", 0),
            ("buffer_inv", 0),
            ("v_add_f32", 0),
        ],
    )
    def test_bytes_of_an_access(self, mnemonic, size):
        assert access_bytes(mnemonic) == size

    def test_sums(self):
        mix: _C.InstructionMix = {
            "wave_instructions": 11, "classes": {},
            "mnemonics": {"ds_read_b32": 2, "global_load_dword": 3, "v_mfma_f32_32x32x16_bf16": 5,
                          "v_mfma_f32_16x16x32_f16": 1},
        }  # fmt: skip
        assert bytes_moved(mix, "lds") == 512
        assert bytes_moved(mix, "global") == 768
        assert mfma_flops(mix) == 5 * 32768 + 16384

    def test_mnemonics_add_up_to_the_classes(self):
        inputs = mha_sink.testing.make_sparse_inputs(SparseCase("counted", 3, 16, 32))
        _C.profile_start()
        mha_sink.sparse_mla_fwd_dsv4(inputs.q, inputs.kv, inputs.topk_indices)
        profile = _C.profile_stop()
        assert profile
        for name, mix in profile.items():
            assert sum(mix["mnemonics"].values()) == mix["wave_instructions"], name
            lds = sum(n for x, n in mix["mnemonics"].items() if x.startswith("ds_"))
            assert lds == mix["classes"]["lds"], name


class TestDemo:
    def test_gradients_pass_and_the_loss_falls(self, capsys, tmp_path):
        path = tmp_path / "text"
        path.write_bytes(TEXT)
        arguments = ["--text", str(path), "--seqlen", "64", "--heads", "16", "--window", "16"]
        assert cli.main(["demo", "sparse_mla", *arguments, "--blocks", "8", "--steps", "2"]) == 0
        printed = capsys.readouterr().out
        assert "16 heads of 512, 64 bytes of text, a window of 16 and 8 blocks" in printed
        for name in ("dq", "dkv", "d_sink"):
            assert printed.count(f"\n{name} ") == 2, name
        losses = [float(line.split("loss ")[1].split()[0]) for line in printed.splitlines()
                  if line.startswith("Step")]  # fmt: skip
        assert len(losses) == 2
        last = float(printed.split("Loss after the last step: ")[1].split()[0])
        assert losses[0] > losses[1] > last
        assert "sparse_mla_dq_bf16" in printed
        assert "Every gate passed." in printed

    def test_a_failing_gate(self, monkeypatch, capsys):
        def wrong(*arguments, **options):
            dq, dkv, d_sink = backward(*arguments, **options)
            return dq, dkv * 1.1, d_sink

        backward = sparse.sparse_mla_bwd_dsv4
        monkeypatch.setattr(sparse, "sparse_mla_bwd_dsv4", wrong)
        assert demo_sparse_mla.run(TEXT[:40], 16, 16, 4, 1, 0) == 1
        assert "A gate FAILED." in capsys.readouterr().out

    def test_it_selects_what_the_indexer_scores_highest(self):
        tokens, window, blocks = 50, 8, 3
        model = SmallModel(4, window, blocks, seed=1).attention
        latent, pool = torch.randn(tokens, 64), torch.randn(12, 512)
        indices = model.select(latent, pool)
        assert (indices.shape, indices.dtype) == ((tokens, window + blocks), torch.int32)
        score = (model.index_q(latent) @ model.index_k(pool).T).detach()
        for token in range(tokens):
            assert indices[token, window - 1] == token
            finished = (token + 1) // 4
            chosen = [index - tokens for index in indices[token, window:].tolist() if index >= 0]
            best = score[token, :finished].topk(min(blocks, finished)).indices.tolist()
            assert chosen == best

    def test_no_token_sees_a_later_one(self):
        """Changing the last bytes leaves all logits before them as they are."""
        model = SmallModel(4, window=8, blocks=4, seed=2)
        tokens = torch.arange(41) * 7 % 256
        changed = tokens.clone()
        changed[33:] = 5
        with torch.no_grad():
            before, after = model(tokens, []), model(changed, [])
        torch.testing.assert_close(after[:33], before[:33], rtol=1e-4, atol=1e-4)
        assert not torch.allclose(after[33:], before[33:], rtol=1e-2)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--seqlen", "1"], "--seqlen is 1; need at least 2"),
            (["--seqlen", "10000000"], "--seqlen is 10000000; give a longer file"),
            (["--heads", "200"], "200 is not supported; supported: at most 128"),
        ],
    )
    def test_refused(self, arguments, message, capsys, tmp_path):
        path = tmp_path / "text"
        path.write_bytes(TEXT)
        assert cli.main(["demo", "sparse_mla", "--text", str(path), *arguments]) == 2
        assert message in capsys.readouterr().err


def test_a_step_is_measured_by_its_own_inputs():
    """Its check fails when the gradient of another step is put in."""
    model = SmallModel(4, window=8, blocks=4, seed=3)
    tokens = torch.arange(24) * 11 % 256
    record = []
    model.loss(tokens, record).backward()
    (step,) = record
    assert step.check().passed
    step.kv.grad = step.kv.grad.flip(0)
    assert dataclasses.replace(step).check().failures == ["dkv"]
