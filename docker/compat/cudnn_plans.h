/*
 * The ways to compute a convolution: cuDNN's legacy algorithms, and execution plans for its backend's engines. A part
 * of cudnn_search.h. The numbers of descriptors, attributes and types are those of cuDNN's cudnn_graph.h.
 */
enum { MOST_LEGACY = 10, MOST_CONFIGS = 64, MOST_PLANS = 12, MOST_WAYS = 40, MOST_MADE = 256 };
static const size_t most_workspace = (size_t)512 << 20;

enum { CONVOLUTION = 1, ENGINE = 2, ENGINE_CONFIG = 3, HEURISTICS = 4, PLAN = 5, GRAPH = 15, PACK = 16, TENSOR = 17 };
enum { A_HANDLE = 0, A_DATA_TYPE = 1, AN_INT64 = 3, A_FLOAT = 4, A_POINTER = 6, A_CONVOLUTION_MODE = 7 };
enum { A_HEURISTIC = 8, A_NUMERICAL_NOTE = 11, A_DESCRIPTOR = 15 };
enum { TENSOR_CORE = 0, DOWN_CONVERT_INPUTS = 1, REDUCED_PRECISION_REDUCTION = 2 };
static const int heuristics[] = {3 /* A */, 2 /* fallback */};

/* Descriptors made, to be destroyed together. */
struct pile {
    int count;
    descriptor_t made[MOST_MADE];
};

static descriptor_t make(struct pile *pile, int type)
{
    descriptor_t made;

    if (pile->count == MOST_MADE || the_cudnnBackendCreateDescriptor(type, &made))
        return NULL;
    return pile->made[pile->count++] = made;
}

static void destroy_from(struct pile *pile, int first)
{
    while (pile->count > first)
        the_cudnnBackendDestroyDescriptor(pile->made[--pile->count]);
}

static bool set(descriptor_t of, int attribute, int type, int64_t count, const void *values)
{
    return of && the_cudnnBackendSetAttribute(of, attribute, type, count, values) == SUCCESS;
}

static bool finalize(descriptor_t made)
{
    return the_cudnnBackendFinalize(made) == SUCCESS;
}

static descriptor_t make_tensor(struct pile *pile, const struct key *key, const struct tensor *is, int64_t name)
{
    const int type = key->type, rank = key->rank;
    const int64_t alignment = ALIGNMENT;
    descriptor_t tensor = make(pile, TENSOR);

    return set(tensor, 900, AN_INT64, 1, &alignment) && set(tensor, 901, A_DATA_TYPE, 1, &type) &&
                   set(tensor, 902, AN_INT64, rank, is->dimensions) && set(tensor, 903, AN_INT64, rank, is->strides) &&
                   set(tensor, 906, AN_INT64, 1, &name) && finalize(tensor)
               ? tensor
               : NULL;
}

/* A graph of one operation, whose tensors x, w and y are named 1, 2 and 3; it sums in fp32. */
static descriptor_t make_graph(struct pile *pile, const struct key *key)
{
    const int type = FLOAT_DATA;
    const int64_t rank = key->rank - 2;
    const int first = key->direction == FORWARD_PASS ? 700 : key->direction == DATA_GRADIENT ? 706 : 712;
    descriptor_t x = make_tensor(pile, key, &key->x, 1), w = make_tensor(pile, key, &key->w, 2);
    descriptor_t y = make_tensor(pile, key, &key->y, 3), convolution = make(pile, CONVOLUTION);
    descriptor_t operation = make(pile, key->direction), graph = make(pile, GRAPH);

    return x && w && y && set(convolution, 100, A_DATA_TYPE, 1, &type) &&
                   set(convolution, 101, A_CONVOLUTION_MODE, 1, &key->mode) &&
                   set(convolution, 102, AN_INT64, rank, key->dilations) &&
                   set(convolution, 103, AN_INT64, rank, key->steps) &&
                   set(convolution, 104, AN_INT64, rank, key->pads) &&
                   set(convolution, 105, AN_INT64, rank, key->pads) && set(convolution, 106, AN_INT64, 1, &rank) &&
                   finalize(convolution) && set(operation, first, A_FLOAT, 1, &key->alpha) &&
                   set(operation, first + 1, A_FLOAT, 1, &key->beta) &&
                   set(operation, first + 2, A_DESCRIPTOR, 1, &convolution) &&
                   set(operation, first + 3, A_DESCRIPTOR, 1, &w) && set(operation, first + 4, A_DESCRIPTOR, 1, &x) &&
                   set(operation, first + 5, A_DESCRIPTOR, 1, &y) && finalize(operation) &&
                   set(graph, 800, A_HANDLE, 1, &key->handle) && set(graph, 801, A_DESCRIPTOR, 1, &operation) &&
                   finalize(graph)
               ? graph
               : NULL;
}

/*
 * Whether an engine computes in the convolution's type: fp32 throughout, or in TF32 where that is taken: in fp32 graphs
 * that is what engines on tensor cores compute in unless they convert their inputs first. In half precision tensor cores
 * are meant to be used, and sums stay fp32. An engine that does not tell counts as one that does not.
 */
static bool computes_rightly(descriptor_t engine, int type)
{
    const bool tensor_cores = takes_tf32 || type == HALF_DATA;
    int32_t notes[32];
    int64_t count = 0;

    if (the_cudnnBackendGetAttribute(engine, 1303, A_NUMERICAL_NOTE, 32, &count, notes) || count > 32)
        return false;
    for (int i = 0; i < count; i++)
        if ((notes[i] == TENSOR_CORE && !tensor_cores) || notes[i] == DOWN_CONVERT_INPUTS ||
            notes[i] == REDUCED_PRECISION_REDUCTION)
            return false;
    return true;
}

/* ---- The ways to compute a convolution ---- */

/* A plan with its configuration, or without a plan a legacy algorithm. */
struct way {
    descriptor_t plan, config;
    int64_t number; /* the algorithm's or the engine's */
    size_t need;    /* bytes of workspace; the plain call, which is the first way, needs none but its own */
    float time;
};

struct ways {
    int count;
    struct way all[MOST_WAYS];
};

static void add_legacy(struct ways *ways, const struct call *c)
{
    struct performance listed[MOST_LEGACY];
    int count = 0;
    status_t status;

    if (c->direction == FORWARD_PASS)
        status = the_cudnnGetConvolutionForwardAlgorithm_v7(c->handle, c->x_is, c->w_is, c->convolution, c->y_is,
                                                            MOST_LEGACY, &count, listed);
    else if (c->direction == DATA_GRADIENT)
        status = the_cudnnGetConvolutionBackwardDataAlgorithm_v7(c->handle, c->w_is, c->y_is, c->convolution, c->x_is,
                                                                 MOST_LEGACY, &count, listed);
    else
        status = the_cudnnGetConvolutionBackwardFilterAlgorithm_v7(c->handle, c->x_is, c->y_is, c->convolution, c->w_is,
                                                                   MOST_LEGACY, &count, listed);
    for (int i = 0; status == SUCCESS && i < count && ways->count < MOST_WAYS; i++)
        if (listed[i].status == SUCCESS && listed[i].algorithm != c->algorithm && listed[i].memory <= most_workspace)
            ways->all[ways->count++] = (struct way){.number = listed[i].algorithm, .need = listed[i].memory};
}

/* Whether the plan of a configuration computes rightly and fits; then it is a way. */
static bool add_plan(struct ways *ways, struct pile *pile, const struct key *key, descriptor_t config)
{
    const handle_t handle = key->handle;
    const int first = pile->count;
    struct way way = {.config = config};
    int64_t got, need = 0;
    descriptor_t engine = make(pile, ENGINE);

    if (engine && the_cudnnBackendGetAttribute(config, 300, A_DESCRIPTOR, 1, &got, &engine) == SUCCESS &&
        computes_rightly(engine, key->type)) {
        the_cudnnBackendGetAttribute(engine, 1301, AN_INT64, 1, &got, &way.number);
        way.plan = make(pile, PLAN);
        if (set(way.plan, 400, A_HANDLE, 1, &handle) && set(way.plan, 401, A_DESCRIPTOR, 1, &config) &&
            finalize(way.plan) && !the_cudnnBackendGetAttribute(way.plan, 402, AN_INT64, 1, &got, &need) && need >= 0 &&
            (size_t)need <= most_workspace) {
            way.need = need;
            ways->all[ways->count++] = way;
            return true;
        }
    }
    destroy_from(pile, first);
    return false;
}

/* What each of the heuristics proposes first; proposals that use tensor cores often lead, taken or not. */
static void add_plans(struct ways *ways, struct pile *pile, const struct key *key, descriptor_t graph)
{
    for (size_t i = 0; i < sizeof heuristics / sizeof *heuristics; i++) {
        descriptor_t configs[MOST_CONFIGS], heuristic = make(pile, HEURISTICS);
        int64_t count = 0;
        int added = 0;

        if (!set(heuristic, 200, A_HEURISTIC, 1, &heuristics[i]) || !set(heuristic, 201, A_DESCRIPTOR, 1, &graph) ||
            !finalize(heuristic))
            continue;
        for (int n = 0; n < MOST_CONFIGS; n++)
            if (!(configs[n] = make(pile, ENGINE_CONFIG)))
                return;
        if (the_cudnnBackendGetAttribute(heuristic, 202, A_DESCRIPTOR, MOST_CONFIGS, &count, configs))
            continue;
        for (int n = 0; n < count && n < MOST_CONFIGS && added < MOST_PLANS && ways->count < MOST_WAYS; n++)
            added += add_plan(ways, pile, key, configs[n]);
    }
}
