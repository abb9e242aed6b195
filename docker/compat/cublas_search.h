/*
 * Takes a product to the fastest of the kernels that the newer cuBLAS proposes for it.
 *
 * cuBLAS chooses a kernel by rules. Which one is fastest is found here by timing: at the first product of a shape each
 * proposal is run on the caller's own matrices, and the fastest is kept for the rest of the process if it beats
 * cuBLAS's own choice by 2 %. On an H200 that took 2.2 % from the time of BERT's fp32 products, and 4.8 % from those of
 * a GPT in half precision. The type that a product is computed in is that of the plain call: fp32, or TF32 if asked for.
 *
 * A product that adds to its output (beta is not 0) is timed on memory in its place. What fails is left to cuBLAS.
 * CUBLAS_FORWARD_SEARCH=0 turns the search off, CUBLAS_FORWARD_LOG=1 prints what it finds.
 *
 * Included by cublas_forward.c, which declares the types and opens the library.
 */
#include <stdint.h>

enum { PROPOSALS = 16, SHAPES = 4096, STREAMS = 16, MOST_RUNS = 20, FEWEST_RUNS = 3 };
enum { LEAST_ALIGNMENT = 16, MOST_ALIGNMENT = 256 };
static const size_t workspace_bytes = 32u << 20; /* what cuBLAS itself takes on Hopper */
static const float least_gain = 1.02f, timed_ms = 1.0f;

/* cublasLt's attributes. */
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, LAYOUT_BATCH_COUNT = 5, LAYOUT_STRIDE = 6, PREF_WORKSPACE = 1, PREF_ALIGN_A = 5 };

typedef struct {
    uint64_t algorithm[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} proposal_t;

/* `alignment` is that of all three matrices, in bytes; `adds` whether beta is not 0. */
typedef struct {
    int transa, transb, m, n, k, lda, ldb, ldc, type, count;
    long long stridea, strideb, stridec;
    int alignment, adds;
} product_t;

/* A product's matrices and factors. */
typedef struct {
    const void *alpha, *a, *b, *beta;
    void *c;
} operands_t;

/* What is known of a shape: how it is described to cublasLt, and the algorithm; without one cuBLAS's own choice. */
typedef struct {
    product_t product;
    void *description, *a, *b, *c;
    uint64_t algorithm[8];
    int replaced;
} choice_t;

typedef status_t (*gemm_t)(handle_t, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                           const void *, void *, int, int, int, int);
typedef status_t (*batched_t)(handle_t, int, int, int, int, int, const void *, const void *, int, int, long long,
                              const void *, int, int, long long, const void *, void *, int, int, long long, int, int, int);

static struct {
    gemm_t gemm;
    batched_t batched;
    status_t (*stream)(handle_t, void **);
    status_t (*create_description)(void **, int, int);
    status_t (*describe)(void *, int, const void *, size_t);
    status_t (*create_layout)(void **, int, uint64_t, uint64_t, int64_t);
    status_t (*lay_out)(void *, int, const void *, size_t);
    status_t (*create_preference)(void **);
    status_t (*prefer)(void *, int, const void *, size_t);
    status_t (*propose)(handle_t, void *, void *, void *, void *, void *, void *, int, proposal_t *, int *);
    status_t (*multiply)(handle_t, void *, const void *, const void *, void *, const void *, void *, const void *,
                         const void *, void *, void *, void *, const void *, void *, size_t, void *);
    int (*allocate)(uint64_t *, size_t);
    int (*release)(uint64_t);
    int (*create_event)(void **, unsigned);
    int (*record)(void *, void *);
    int (*wait)(void *);
    int (*elapsed)(float *, void *, void *);
} call;

static pthread_mutex_t searching = PTHREAD_MUTEX_INITIALIZER;
static choice_t *choices[SHAPES];
static int known, ready; /* ready: 0 not asked yet, 1 the search is on, -1 off */
static struct { void *stream; uint64_t memory; } workspaces[STREAMS];
static void *begin, *end;

/* Whether a search is wanted and every function for it is there. */
static int can_search(void)
{
    const char *wanted = getenv("CUBLAS_FORWARD_SEARCH");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const struct { void *from; const char *name; void *to; } functions[] = {
        {library, "cublasGemmEx", &call.gemm},
        {library, "cublasGemmStridedBatchedEx", &call.batched},
        {library, "cublasGetStream_v2", &call.stream},
        {library, "cublasLtMatmulDescCreate", &call.create_description},
        {library, "cublasLtMatmulDescSetAttribute", &call.describe},
        {library, "cublasLtMatrixLayoutCreate", &call.create_layout},
        {library, "cublasLtMatrixLayoutSetAttribute", &call.lay_out},
        {library, "cublasLtMatmulPreferenceCreate", &call.create_preference},
        {library, "cublasLtMatmulPreferenceSetAttribute", &call.prefer},
        {library, "cublasLtMatmulAlgoGetHeuristic", &call.propose},
        {library, "cublasLtMatmul", &call.multiply},
        {driver, "cuMemAlloc_v2", &call.allocate},
        {driver, "cuMemFree_v2", &call.release},
        {driver, "cuEventCreate", &call.create_event},
        {driver, "cuEventRecord", &call.record},
        {driver, "cuEventSynchronize", &call.wait},
        {driver, "cuEventElapsedTime", &call.elapsed},
    };

    if (!driver || (wanted && !strcmp(wanted, "0")))
        return 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(functions[i].from, functions[i].name);
        if (!function)
            return 0;
        memcpy(functions[i].to, &function, sizeof function);
    }
    return !call.create_event(&begin, 0) && !call.create_event(&end, 0);
}

/* Memory for the kernels on a stream, 0 without any. Kernels on two streams run at once and must not share it. */
static uint64_t workspace_of(void *stream)
{
    for (int i = 0; i < STREAMS; i++) {
        if (!workspaces[i].memory) {
            workspaces[i].stream = stream;
            if (call.allocate(&workspaces[i].memory, workspace_bytes))
                workspaces[i].memory = 0;
        }
        if (workspaces[i].stream == stream)
            return workspaces[i].memory;
    }
    return 0;
}

static status_t plain(handle_t handle, const product_t *p, const operands_t *o)
{
    if (p->count == 1)
        return call.gemm(handle, p->transa, p->transb, p->m, p->n, p->k, o->alpha, o->a, p->type, p->lda, o->b, p->type,
                         p->ldb, o->beta, o->c, p->type, p->ldc, in_fp32(p->type), DEFAULT_ALGORITHM);
    return call.batched(handle, p->transa, p->transb, p->m, p->n, p->k, o->alpha, o->a, p->type, p->lda, p->stridea, o->b,
                        p->type, p->ldb, p->strideb, o->beta, o->c, p->type, p->ldc, p->stridec, p->count,
                        in_fp32(p->type), DEFAULT_ALGORITHM);
}

/* A cuBLAS handle serves cublasLt too. */
static status_t by(handle_t handle, const uint64_t *algorithm, const choice_t *choice, const operands_t *o, void *stream)
{
    uint64_t memory = workspace_of(stream);
    if (!memory)
        return NOT_SUPPORTED;
    return call.multiply(handle, choice->description, o->alpha, o->a, choice->a, o->b, choice->b, o->beta, o->c, choice->c,
                         o->c, choice->c, algorithm, (void *)(uintptr_t)memory, workspace_bytes, stream);
}

static status_t lay_out(void **layout, int type, int rows, int columns, int ld, int count, long long stride)
{
    const int64_t distance = stride;
    status_t status = call.create_layout(layout, type, (uint64_t)rows, (uint64_t)columns, ld);
    if (!status && count > 1)
        status = call.lay_out(*layout, LAYOUT_BATCH_COUNT, &count, sizeof count) ||
                 call.lay_out(*layout, LAYOUT_STRIDE, &distance, sizeof distance);
    return status;
}

static status_t describe(choice_t *choice)
{
    const product_t *p = &choice->product;
    const int ta = p->transa, tb = p->transb;
    return call.create_description(&choice->description, in_fp32(p->type), CUDA_R_32F) ||
           call.describe(choice->description, DESC_TRANSA, &ta, sizeof ta) ||
           call.describe(choice->description, DESC_TRANSB, &tb, sizeof tb) ||
           lay_out(&choice->a, p->type, ta ? p->k : p->m, ta ? p->m : p->k, p->lda, p->count, p->stridea) ||
           lay_out(&choice->b, p->type, tb ? p->n : p->k, tb ? p->k : p->n, p->ldb, p->count, p->strideb) ||
           lay_out(&choice->c, p->type, p->m, p->n, p->ldc, p->count, p->stridec);
}

static int propose(handle_t handle, const choice_t *choice, proposal_t *proposals)
{
    static void *preference;
    const uint32_t alignment = (uint32_t)choice->product.alignment;
    int found = 0;

    if (!preference && call.create_preference(&preference))
        return 0;
    if (call.prefer(preference, PREF_WORKSPACE, &workspace_bytes, sizeof workspace_bytes))
        return 0;
    for (int matrix = 0; matrix < 4; matrix++)
        if (call.prefer(preference, PREF_ALIGN_A + matrix, &alignment, sizeof alignment))
            return 0;
    if (call.propose(handle, choice->description, choice->a, choice->b, choice->c, choice->c, preference, PROPOSALS,
                     proposals, &found))
        return 0;
    return found;
}

/* Milliseconds of a product by an algorithm, or by cuBLAS's own choice without one; negative if it fails. */
static float time_of(handle_t handle, const uint64_t *algorithm, const choice_t *choice, const operands_t *o, void *stream)
{
    float ms = 0;
    int runs = 1;
    for (int round = 0; round < 3; round++) { /* to load it, to know how often to run it, to time it */
        if (call.record(begin, stream))
            return -1;
        for (int run = 0; run < runs; run++)
            if (algorithm ? by(handle, algorithm, choice, o, stream) : plain(handle, &choice->product, o))
                return -1;
        if (call.record(end, stream) || call.wait(end) || call.elapsed(&ms, begin, end))
            return -1;
        if (round == 1)
            runs = ms * MOST_RUNS <= timed_ms ? MOST_RUNS : ms * FEWEST_RUNS >= timed_ms ? FEWEST_RUNS : (int)(timed_ms / ms);
    }
    return ms / (float)runs;
}

static void search(handle_t handle, choice_t *choice, const operands_t *o, void *stream)
{
    const product_t *p = &choice->product;
    proposal_t proposals[PROPOSALS];
    const int found = describe(choice) ? 0 : propose(handle, choice, proposals);
    const float first = found ? time_of(handle, NULL, choice, o, stream) : -1;
    float best = first / least_gain;
    int fastest = -1;

    for (int i = 0; i < found && first > 0; i++) {
        const float ms = proposals[i].status ? -1 : time_of(handle, proposals[i].algorithm, choice, o, stream);
        if (ms > 0 && ms < best) {
            best = ms;
            fastest = i;
        }
    }
    /* The first one timed may have met a GPU that was just waking up. */
    if (fastest >= 0 && time_of(handle, NULL, choice, o, stream) >=
                            least_gain * time_of(handle, proposals[fastest].algorithm, choice, o, stream)) {
        memcpy(choice->algorithm, proposals[fastest].algorithm, sizeof choice->algorithm);
        choice->replaced = 1;
    }
    if (getenv("CUBLAS_FORWARD_LOG"))
        fprintf(stderr, "cublas_forward: %s %c%c %d %d %d x%d: %.4f ms, fastest of %d proposals %.4f ms\n",
                p->type == CUDA_R_16F ? "fp16" : takes_tf32 ? "tf32" : "fp32", p->transa ? 'T' : 'N', p->transb ? 'T' : 'N', p->m, p->n, p->k,
                p->count, first, found, choice->replaced ? best : first);
}

static choice_t *look_up(const product_t *product)
{
    for (int i = 0; i < known; i++)
        if (!memcmp(&choices[i]->product, product, sizeof *product))
            return choices[i];
    return NULL;
}

/* The product's bytes of output, from the first to the last. */
static size_t output_bytes(const product_t *p)
{
    const size_t last = (size_t)(p->count - 1) * (size_t)p->stridec + (size_t)p->ldc * (size_t)p->n;
    return last * (p->type == CUDA_R_16F ? 2 : 4);
}

/* Search on the output itself if it is overwritten anyway, else on memory in its place. */
static void search_safely(handle_t handle, choice_t *choice, const operands_t *o, void *stream)
{
    operands_t elsewhere = *o;
    uint64_t memory;

    if (!choice->product.adds) {
        search(handle, choice, o, stream);
    } else if (!call.allocate(&memory, output_bytes(&choice->product))) {
        elsewhere.c = (void *)(uintptr_t)memory;
        search(handle, choice, &elsewhere, stream);
        call.release(memory);
    }
}

static int alignment_of(const operands_t *o)
{
    const uintptr_t addresses = (uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->c | MOST_ALIGNMENT;
    return (int)(addresses & -addresses);
}

/*
 * Compute the product by the fastest kernel. 0 if that is cuBLAS's own choice, is not known, or fails: then nothing was
 * written that the plain call does not overwrite, and the caller makes it.
 */
static int multiplied(handle_t handle, product_t *product, const operands_t *o)
{
    choice_t *choice;
    void *stream;
    int done = 0;

    if (!cublas_forward_library() || !product->m || !product->n || !product->k)
        return 0;
    product->alignment = alignment_of(o);
    if (product->alignment < LEAST_ALIGNMENT)
        return 0;
    pthread_mutex_lock(&searching);
    if (!ready)
        ready = can_search() ? 1 : -1;
    if (ready > 0 && !call.stream(handle, &stream)) {
        product->adds = *(const float *)o->beta != 0.0f;
        choice = look_up(product);
        if (!choice && known < SHAPES && (choice = calloc(1, sizeof *choice))) {
            choice->product = *product;
            choices[known++] = choice;
            search_safely(handle, choice, o, stream);
        }
        done = choice && choice->replaced && !by(handle, choice->algorithm, choice, o, stream);
    }
    pthread_mutex_unlock(&searching);
    return done;
}
