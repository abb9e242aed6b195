"""Profiles of GPU kernels: what is read of a trace, how kernels are sorted, and a whole `make profile`."""

import json
import re
import shlex
from pathlib import Path

import pytest

from repro.analysis.chrome_trace import as_text, chrome_trace
from repro.analysis.kernel_classes import CLASSES, class_of, short_name
from repro.analysis.kernel_trace import (
    Profile,
    Record,
    Trace,
    TraceError,
    busy_and_gaps,
    profile_of,
    read_trace,
    window,
)
from repro.analysis.profiles import profiles
from repro.images.stack import Libraries, StackError, find_cupti
from repro.planning.plan import Wanted, make_plan
from repro.planning.profiling import INTERVAL, ITERATIONS, as_profile
from repro.published.cases import load_catalogue
from repro.report.run.profile import profile_figures, profile_section
from repro.trainers.config import parse
from tests.support.attempts import recorded
from tests.support.clusters import cpu_inventory
from tests.support.metrics import row
from tests.support.paths import STANDIN, TRAINER_PYTHON
from tests.support.programs import V100, lay_gpu
from tests.support.runs import attempts, only_run

COMMAND = shlex.join([str(TRAINER_PYTHON), str(STANDIN)])
MS = 1_000_000

# Names as CUPTI gave them on an H200, cut off: of OneFlow 0.8.0's kernels, and of PyTorch's.
NAMES = {
    "communication": ["ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"],
    "attention": [
        "fmha_cutlassB_f32_aligned_64x64_k64_dropout_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::a",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0",
    ],
    "convolution": [
        "void cudnn::detail::dgrad_alg1_engine<float, 128, 6, 8, 3, 3, 5, true, false>(int, int, int, float const*",
        "void batch_gemm_kernel1x1_core<float, float, float, true, false, false, false, true, true, true>(float* con",
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_stage3_warpsize2x2x1_g1_ffma",
        "sm80_xmma_gemm_cf32cf32_f32f32_cf32_tn_n_tilesize64x64x8_stage3_warpsize2x2x1_ffma_aligna8_alignc8",
        "void cudnn::winograd::winograd3x3Kernel<float, float, 1, 4, 8, false>(cudnn::maxwell::winograd::KernelParams)",
        "void fft2d_r2c_32x32<float, false, 0u, false>(float2*, float const*, int, int, int, int, int, int, int, int",
        "void precomputed_convolve_sgemm<float, 128, 6, 7, 3, 3, 5, 1, false>(int, int, int, float const*, int, float*",
        "triton_tem_fused_convolution_native_batch_norm_1",
        "void scalePackedTensor_kernel<float, float>(cudnnTensor4dStruct, float*, float)",
    ],
    "matrix": [
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(cutlass_80_simt_sgemm_256x128_8x4_nn_ali",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_ke",
        "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_TNT",
        "cudnn_generated_fort_native_sm90_matMul_knob_2_128x128x32_5_0",
        "triton_tem_fused_mm_relu_3",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false, float, float, float, true",
    ],
    "optimizer": [
        "void (anonymous namespace)::AdamUpdateGpu<float, float, __half>(long, float, float, float, float, float, fl",
        "void (anonymous namespace)::MomentumUpdateGpu<float, float>(long, float, float, float, float, float, float",
        "void (anonymous namespace)::MultiBlockReduceGpu<float, Square<float>, BinaryAdd<float> >(Square<float>",
        "void (anonymous namespace)::MultiCountNotFiniteGpu<float, 128>((anonymous namespace)::Param<float, 128>)",
        "void (anonymous namespace)::FusedCastScaleGpu<float, __half>(long, float, __half const*, float const*, floa",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::Fused",
    ],
    "embedding": [
        "void user_op::DoCUDADimScatter<float, long, user_op::BinOpAddFunctor>(NdIndexOffsetHelper<long, 8>",
        "void user_op::DoCUDADimGather<float, long>(NdIndexOffsetHelper<long, 8>, NdIndexOffsetHelper<long, 8>, int",
    ],
    "softmax": [
        "void cuda::softmax::SoftmaxBlockSMemImpl<TrilScaleLoad<__half, float>, MaskAndScaleStore<float, __half>, fl",
        "(anonymous namespace)::GenerateGpu(curandStateXORWOW*, long, float, bool*)",
        "void (anonymous namespace)::FusedBiasAddRowGpu<(anonymous namespace)::MaskAndScaleAddFunctor<float>, float,",
        "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float, at::native::LogSoftMax",
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(at",
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::masked_scale_kernel<bool",
        "triton_per_fused__log_softmax_mul_nll_loss_forward_sub_sum_view_9",
        "triton_poi_fused_add_native_dropout_0",
        "triton_red_fused_copy__exp_sub_sum_unsqueeze_2",
        "void oneflow::user_op::(anonymous namespace)::ComputeDiffGpu<float, long, int>(long, long, long, long, float",
    ],
    "norm": [
        "triton_poi_fused_convolution_backward_native_batch_norm_backward_nll_loss_forward_threshold_backward_66",
        "triton_poi_fused__native_batch_norm_legit_functional_add_relu_11",
        "triton_red_fused_convolution_backward_div_expand_native_batch_norm_backward_nll_loss_forward_threshold_backward",
        "triton_per_fused__to_copy_add_embedding_dense_backward_native_dropout_backward_native_layer_norm_backward_nll",
        "void cuda::layer_norm::LayerNormGradWarpImpl<cuda::layer_norm::DirectLoad<float, float>, (anonymous namespa",
        "void cudnn::detail::bn_bw_1C11_singleread<float, 512, true, 1, 2, 0>(float, float, float, float, cudnnTensor",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>(cudnnTensorStruct, float const*",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 32u, 32u, 256u, f",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float, float",
    ],
    "copy": [
        "triton_poi_fused_cat_clone_transpose_18",
        "triton_poi_fused__to_copy_t_13",
        "void ep::primitive::permute::internal::(anonymous namespace)::PermuteKernel<4ul, 16ul, int>(ep::primitive",
        "void ep::primitive::(anonymous namespace)::CopyNdKernel<2ul, 16ul, int>(ep::primitive::(anonymous namespace)",
        "void cuda::elementwise::ApplyGeneric<4, false, cuda::elementwise::SimpleFactory<ep::primitive::(anonymous "
        "namespace)::CastFunctor<__half, float, void>",
        "void at::native::vectorized_elementwise_kernel<8, at::native::float16_copy_kernel_cuda(at::TensorIteratorBa",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<4u>",
        "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)0>",
        "Memcpy host to device",
        "Memset",
    ],
    "elementwise": [
        "void (anonymous namespace)::FusedBiasAddGradRowGpu<(anonymous namespace)::GeluGradFunctor<float>, float, in",
        "void ep::primitive::broadcast_elementwise_binary::(anonymous namespace)::BroadcastElementwiseBinaryGpu<(ep",
        "void (anonymous namespace)::MatrixColReduceByWarpBlock<BinaryFuncSum, float, int, float>(int, int, float co",
        "void cub::DeviceSegmentedReduceKernel<cub::DeviceReducePolicy<float const, float, int, cub::Sum>::Policy600, "
        "PermutationIterator<float const",
        "void (anonymous namespace)::ReluBackwardGpu<float>(long, int const*, float const*, float*)",
        "triton_poi_fused_add_nll_loss_forward_threshold_backward_43",
        "triton_poi_fused__to_copy_add_32",
        "triton_red_fused_gelu_gelu_backward_sum_view_16",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul",
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::na",
    ],
    "other": ["void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float, int>(float const*, long"],
}


@pytest.mark.parametrize(("name", "expected"), [(name, kind) for kind, names in NAMES.items() for name in names])
def test_a_kernel_is_sorted_by_its_name(name, expected):
    assert class_of(name) == expected


def test_every_class_has_an_example_here():
    assert {name for name, _title, _pattern in CLASSES} == set(NAMES)


def test_a_name_is_shown_without_what_says_nothing():
    assert short_name("void at::native::(anonymous namespace)::f<at::native::g>(std::array<int>)") == "f<g>(array<int>)"
    assert len(short_name("x" * 500)) == 90


def test_busy_time_is_the_union_and_gaps_lie_between():
    """Two overlap, one lies within another, one reaches into the window and one beyond it."""
    times = [(-5, 2), (4, 8), (5, 7), (6, 10), (15, 30), (40, 50)]
    records = [Record(*each, number) for number, each in enumerate(times)]
    assert busy_and_gaps(records, 0, 20) == (2 + 6 + 5, [(2, 1), (5, 4)])
    assert busy_and_gaps([], 0, 20) == (0, [])


def lines(*records, names=("a", "b"), more=()):
    """A trace file whose clock is 1000 s behind, of (start, end, name) in ms of the time since 1970."""
    head = ["trace 1 130001 /lib/libcupti.so.13", f"clock {5 * MS} {1_000_000 * MS + 5 * MS}"]
    head += [f"name {number} {name}" for number, name in enumerate(names)]
    moved = ((round((ms - 1_000_000) * MS) for ms in times) for *times, _ in records)
    rows = [f"{start} {end} 0 7 {record[-1]}" for (start, end), record in zip(moved, records, strict=True)]
    return "".join(f"{line}\n" for line in (*head, *rows, *more))


def iterations(count, begin=1_000_100.0):
    """Iterations of 10 ms: a for 4 ms, twice b for 1 ms beside it and after it, and 3 ms nothing."""
    for each in range(count):
        at = begin + 10 * each
        yield from ((at, at + 4, 0), (at + 1, at + 2, 1), (at + 6, at + 7, 1))


def test_an_iteration_is_the_mean_over_the_window(tmp_path):
    (tmp_path / "trace.1").write_text(lines(*iterations(10)))
    trace = read_trace(tmp_path / "trace.1")
    assert trace.cupti == "130001 /lib/libcupti.so.13"
    found = profile_of(trace, 1000.120, 1000.160, 4)
    assert (found.iteration_ms, found.busy_ms, found.idle_ms, found.launches) == (10.0, 5.0, 5.0, 3.0)
    assert [(each.name, each.launches, each.ms) for each in found.kernels] == [("a", 1.0, 4.0), ("b", 2.0, 2.0)]
    gaps = [(gap.before, gap.count, round(gap.ms, 6)) for gap in found.gaps]
    assert gaps == [("a", 0.75, 2.25), ("b", 1.0, 2.0)], "the window begins with a, so that only three gaps end with it"
    found.write(tmp_path)
    assert Profile.read(tmp_path) == found
    assert (tmp_path / "kernels.csv").read_text().splitlines()[0] == (
        "name,class,launches_per_iteration,ms_per_iteration"
    )


def test_a_timeline_has_each_kernel_of_the_window_once(tmp_path):
    """In the format that Perfetto reads: complete events in microseconds, a process a GPU and a thread a stream."""
    (tmp_path / "trace.1").write_text(lines(*iterations(10)))
    trace = read_trace(tmp_path / "trace.1")
    found = json.loads(as_text(chrome_trace(trace, 1000.120, 1000.160)))
    named = [event for event in found["traceEvents"] if event["ph"] == "M"]
    assert [(each["name"], each["pid"], each["tid"], each["args"]["name"]) for each in named] == [
        ("process_name", 0, 0, "GPU 0"),
        ("thread_name", 0, 7, "stream 7"),
    ]
    events = [event for event in found["traceEvents"] if event["ph"] == "X"]
    assert len(events) == 4 * 3 and len(events) + len(named) == len(found["traceEvents"])
    assert [(each["name"], each["ts"], each["dur"]) for each in events[:4]] == [
        ("a", 0.0, 4000.0),
        ("b", 1000.0, 1000.0),
        ("b", 6000.0, 1000.0),
        ("a", 10000.0, 4000.0),
    ]
    assert {(each["pid"], each["tid"], each["cat"]) for each in events} == {(0, 7, "other")}
    spent = sum(kernel.ms * kernel.launches for kernel in profile_of(trace, 1000.120, 1000.160, 4).kernels[:1])
    assert sum(each["dur"] for each in events if each["name"] == "a") / 4 == 1000 * spent


def test_times_go_by_the_nearest_pair_of_clocks():
    trace = Trace("", ((0, 100 * MS), (1000 * MS, 1101 * MS)), {}, ())
    assert trace.at(0.150) == 50 * MS
    assert trace.at(1.2) == 1099 * MS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no record"),
        (lines(*iterations(10), more=["12 x 0 7 1"]), "cannot be read: 12 x 0 7 1"),
        (lines(*iterations(10), more=["dropped 3"]), "CUPTI lost 3 records"),
        (lines(*iterations(4)), "does not cover the measured iterations"),
        (lines(*iterations(4, begin=1_000_140.0)), "does not cover the measured iterations"),
        (lines(), "does not cover the measured iterations"),
    ],
)
def test_what_cannot_be_counted_is_refused(tmp_path, text, message):
    (tmp_path / "trace.1").write_text(text)
    with pytest.raises(TraceError, match=message):
        profile_of(read_trace(tmp_path / "trace.1"), 1000.120, 1000.160, 4)


def test_a_cut_off_line_is_passed_over(tmp_path):
    (tmp_path / "trace.1").write_text(lines(*iterations(2)) + "123456 1234")
    assert len(read_trace(tmp_path / "trace.1").records) == 6


def test_the_window_is_the_last_printed_iterations(tmp_path):
    metrics = tmp_path / "metrics-rank0.jsonl"
    rows = [
        {"event": "start", "time": 0.0},
        *(row(n) for n in (10, 20, 30, 40)),
        {"event": "end", "time": 99.0},
    ]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert window(metrics) == (30.0, 40.0, 10)
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    with pytest.raises(TraceError, match="fewer than 10 iterations"):
        window(metrics)


def test_a_plan_has_short_runs_of_the_published_shapes_that_stand_for_nothing():
    cases = load_catalogue().select("bert", "bert_1n1g_bs96")
    plan = as_profile(make_plan(cases, 1, Wanted(baselines=("pytorch",))))
    assert [unit.name for unit in plan.units] == ["bert_1n1g_bs96", "bert_1n1g_bs96.pytorch"]
    own = plan.units[0]
    assert (plan.kind, plan.scale, plan.repeats, plan.looks) == ("profile", "published", 1, ())
    assert (own.stands_for, own.derived_from) == ((), ("bert_1n1g_bs96",))
    config = parse(own.config.written("out", "out").as_json())
    assert (config.iterations, config.log_interval, config.micro_batch) == (ITERATIONS, INTERVAL, 96)


def test_cupti_is_the_users_or_the_newest_toolkits_or_beside_the_baselines_pytorch(tmp_path, monkeypatch):
    baseline = tmp_path / "env/bin/python"
    for path in (
        "cuda-12.4/extras/CUPTI/lib64/libcupti.so.12",
        "cuda-12.4/extras/CUPTI/lib64/libcupti.so.2024.1.0",
        "cuda-13.0/targets/x86_64-linux/lib/libcupti.so.13",
        "cuda-10.2/extras/CUPTI/lib64/libcupti.so.10.2",
        "env/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13",
        "mine/libcupti.so.11.8",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    toolkit = tmp_path / "cuda-13.0/targets/x86_64-linux/lib/libcupti.so.13"
    assert find_cupti(Libraries(baseline_python=str(baseline)), tmp_path) == toolkit
    assert find_cupti(Libraries(cupti=str(tmp_path / "mine")), tmp_path) == tmp_path / "mine/libcupti.so.11.8"
    beside = find_cupti(Libraries(baseline_python=str(baseline)), tmp_path / "none")
    assert beside == tmp_path / "env/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13"
    monkeypatch.chdir(tmp_path)
    assert find_cupti(Libraries(baseline_python="env/bin/python"), tmp_path / "none") == beside, (
        "a trainer's folder is another"
    )
    with pytest.raises(StackError, match=re.escape("CUPTI=/nowhere: it is a libcupti.so of version 11 or later")):
        find_cupti(Libraries(cupti="/nowhere"))


def test_without_a_gpu_nothing_starts(refused, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    said = refused("profile", MODEL="bert")
    assert said == "make profile traces what a GPU does, and nvidia-smi shows none here\n"


def test_a_cluster_without_gpus_is_refused_before_it_is_asked(refused, tmp_path):
    inventory = cpu_inventory(tmp_path / "inventory")
    said = refused("profile", MODEL="bert", CLUSTER=inventory)
    variables = inventory / "group_vars/all.yml"
    assert said == f"make profile traces what a GPU does, and cluster_gpu is empty in {variables}\n"
    other = refused("profile", MODEL="bert", CLUSTER=inventory, STACK="cpu", CUPTI="/opt/cupti")
    assert other.startswith("STACK: for runs on one machine")


@pytest.fixture
def profiled(task, tmp_path):
    """Runs `make profile` with the stand-in for both programs, a script for nvidia-smi and a file for CUPTI."""
    lay_gpu(tmp_path / "bin", V100)
    (tmp_path / "libcupti.so.13").touch()

    def run(name="profile", **settings):
        given = {
            "MODEL": "bert",
            "CASES": "bert_1n1g_bs96",
            "BASELINE_COMMAND": COMMAND,
            "BASELINES": "pytorch",
            "CUPTI": tmp_path,
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        }
        if name != "profile":
            given = {"PATH": given["PATH"]}
        return task(name, **given | settings)

    return run


def test_a_run_from_its_traces_to_its_reports(profiled, tmp_path):
    done = profiled()
    assert done.returncode == 0, done.stderr
    assert "bert_1n1g_bs96: 10.00 ms an iteration, traced; the GPU is busy 84.9% of it" in done.stdout
    folder = only_run(tmp_path)
    kept = [path.relative_to(folder).as_posix() for path in folder.rglob("trace.*")]
    assert sorted(kept) == [f"units/bert_1n1g_bs96{of}/repeat-1.attempt-1/trace.json" for of in (".pytorch", "")]
    assert json.loads((folder / "verdicts.json").read_text())["verdicts"] == []
    assert done.stdout.count("an iteration, traced") == 2
    for again in (False, True):
        if again:
            assert profiled("report").returncode == 0
            assert (folder / "figures" / "profile-1.zh.svg").exists()
        english, chinese = ((folder / f"report.{language}.md").read_text() for language in ("en", "zh"))
        assert "| bert_1n1g_bs96 | OneFlow | 10.00 | 8.49 | 1.51 | 84.9% | 4 | 9.49 |" in english
        assert all(f"`{path}`" in english and f"`{path}`" in chinese for path in kept)
        assert "| Communication (NCCL) | 2.000 | 2.000 | +0.000 |" in english
        assert "| `made_up<1>(int)` | Other | 1.0 | 3.490 | 34.9% |" in english
        assert "| `nvjet_sm90_hsh_256x128_TNT` | Matrix products | 1.0 | 0.500 |" in english
        assert "| `made_up<1>(int)` | Other | 1.0 | 0.010 |" not in english, "gaps of 10 us are none"
        assert "| 矩阵乘 | 3.000 | 3.000 | +0.000 |" in chinese
        assert "## GPU 的时间花在哪里" in chinese


def test_a_run_without_a_trace_has_failed_and_is_gone_on_with(profiled, tmp_path):
    done = profiled(STANDIN="untraced", BASELINES="", BASELINE_COMMAND="")
    assert done.returncode == 1
    assert "1 configurations have no profile (bert_1n1g_bs96)" in done.stderr
    folder = only_run(tmp_path)
    assert "rank 0 left no trace of its kernels" in (folder / "report.en.md").read_text()
    assert profiled("report", CHECK=1).returncode == 1
    done = profiled(RUN=folder.name, BASELINES="", BASELINE_COMMAND="")
    assert done.returncode == 0, done.stderr
    assert [attempt["status"] for attempt in attempts(folder)] == ["failed", "ok"]


def kept(folder: Path, name: str, *kernels):
    """An attempt with a profile of an iteration of 100 ms in which these kernels, (name, ms), follow each other."""
    (folder / name).mkdir()
    ends = [sum(ms for _, ms in kernels[: n + 1]) for n in range(len(kernels))]
    records = tuple(
        Record(round((end - ms) * MS), round(end * MS), n)
        for n, (end, (_, ms)) in enumerate(zip(ends, kernels, strict=True))
    )
    names = {n: kernel for n, (kernel, _) in enumerate(kernels)}
    profile_of(Trace("", ((0, 0),), names, records), 0.0, 0.1, 1).write(folder / name)
    return recorded({"unit": name, "folder": name})


def test_classes_are_sorted_by_what_oneflow_spends_more(tmp_path):
    cases = load_catalogue().select("bert", "bert_1n1g_bs96")
    plan = as_profile(make_plan(cases, 1, Wanted(baselines=("pytorch", "pytorch-tf32"))))
    ours, theirs, missing = (unit.name for unit in plan.units)
    found = [
        kept(tmp_path, ours, ("sgemm", 60), ("AdamUpdateGpu", 10), ("ReluGpu", 20)),
        kept(tmp_path, theirs, ("sgemm", 61), ("multi_tensor_apply", 4), ("fmha", 8)),
    ]
    read = profiles(plan, found, tmp_path)
    assert read.problems == [f"1 configurations have no profile ({missing})"]
    section = profile_section(lambda text: text, read)
    tables = {block.id: block for block in section.blocks if block.kind == "table"}
    assert [cell.text for cell in tables["profile-iterations"].rows[2]] == [missing, "pytorch-tf32", *"––––––"]
    rows = [tuple(cell.text for cell in row) for row in tables["profile-classes-1-1"].rows]
    assert rows == [
        ("Activation, bias, other elementwise", "20.000", "0.000", "+20.000"),
        ("Optimizer, gradient norm", "10.000", "4.000", "+6.000"),
        ("Matrix products", "60.000", "61.000", "-1.000"),
        ("Attention (fused)", "0.000", "8.000", "-8.000"),
        ("GPU idle", "10.000", "27.000", "-17.000"),
        ("Iteration", "100.000", "100.000", "+0.000"),
    ]
    chart = profile_figures(read)[0].chart(lambda text: text)
    assert [part.label for part in chart.parts] == [
        "Attention (fused)",
        "Matrix products",
        "Optimizer, gradient norm",
        "Activation, bias, other elementwise",
        "GPU idle",
    ]
    assert chart.values == ((0.0, 60.0, 10.0, 20.0, 10.0), (8.0, 61.0, 4.0, 0.0, 27.0))
    assert len({(part.style.ink, part.style.hatch) for part in chart.parts}) == 5
