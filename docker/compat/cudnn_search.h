/*
 * The fastest way to compute each convolution, found by timing; a part of cudnn_forward.c.
 *
 * OneFlow's calls name an algorithm of cuDNN 7. For some convolutions another of these, or an engine that only the
 * newer cuDNN's backend interface (graphs and execution plans) reaches, is up to twice as fast. At the first call for a
 * convolution, which is what the descriptors, the factors and the algorithm say, every way is timed on the call's own
 * tensors, and the fastest is taken from then on. It replaces the call as it came, the plain call, if it takes 2 % less
 * time at least.
 *
 * fp32 stays true fp32: engines that use tensor cores or reduce precision are left out. With CUDNN_FORWARD_TF32=1 those on
 * tensor cores are timed too, but none that converts its inputs to a shorter type. Convolutions in half precision use
 * them and sum in fp32. What is not a convolution of one group in fp32, without other mathematics, or in half precision
 * stays the plain call, and so does whatever fails here, without a word.
 *
 * A way that needs more workspace than OneFlow gives gets this library's own, of 512 MiB at most for each handle and
 * stream. A call that adds to its output (beta is not 0) is timed on memory in its place.
 *
 * CUDNN_FORWARD_SEARCH=0 turns the search off; CUDNN_FORWARD_LOG=1 prints a line for each convolution searched.
 */
#include <math.h>
#include <time.h>
#include "cudnn_convolution.h"
#include "cudnn_plans.h"

static const float worthwhile = 0.98f, near = 1.3f;
static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER;

struct found {
    struct found *next;
    struct key key;
    struct way way;
    struct pile pile;
};

static struct found *all_found;

/* ---- Workspace of this library ---- */

struct buffer {
    struct buffer *next;
    handle_t handle;
    void *stream, *memory;
    size_t size, kept; /* kept: what the ways found so far need */
};

static struct buffer *all_buffers;

static struct buffer *buffer_of(handle_t handle)
{
    struct buffer *buffer;
    void *stream;

    if (the_cudnnGetStream(handle, &stream))
        return NULL;
    pthread_mutex_lock(&lists);
    for (buffer = all_buffers; buffer && (buffer->handle != handle || buffer->stream != stream); buffer = buffer->next)
        ;
    if (!buffer && (buffer = calloc(1, sizeof *buffer))) {
        *buffer = (struct buffer){.next = all_buffers, .handle = handle, .stream = stream};
        all_buffers = buffer;
    }
    pthread_mutex_unlock(&lists);
    return buffer;
}

static void resize(struct buffer *buffer, size_t size)
{
    if (buffer->memory) {
        the_cuStreamSynchronize(buffer->stream);
        the_cuMemFree_v2(buffer->memory);
    }
    buffer->size = 0;
    buffer->memory = NULL;
    if (size && the_cuMemAlloc_v2(&buffer->memory, size) == 0)
        buffer->size = size;
}

/* ---- Calling and timing ---- */

static status_t execute(const struct call *c, const struct way *way, void *workspace)
{
    static const int64_t names[] = {1, 2, 3};
    void *tensors[] = {c->x, c->w, c->y};
    struct pile pile = {.count = 0};
    descriptor_t pack = make(&pile, PACK);
    status_t status = NOT_INITIALIZED;

    if (set(pack, 1000, AN_INT64, 3, names) && set(pack, 1001, A_POINTER, 3, tensors) &&
        set(pack, 1003, A_POINTER, 1, &workspace) && finalize(pack))
        status = the_cudnnBackendExecute(c->handle, way->plan, pack);
    destroy_from(&pile, 0);
    return status;
}

static status_t compute(const struct call *c, const struct way *way)
{
    void *workspace = c->workspace;
    size_t size = c->size;
    struct buffer *buffer;

    if (way->need > size) {
        if (!(buffer = buffer_of(c->handle)))
            return NOT_INITIALIZED;
        if (buffer->size < way->need)
            resize(buffer, way->need);
        if (buffer->size < way->need)
            return NOT_INITIALIZED;
        workspace = buffer->memory;
        size = buffer->size;
    }
    return way->plan ? execute(c, way, workspace) : legacy(c, way->number, workspace, size);
}

/* The events and the stream to time on. */
struct timer {
    void *stream, *start, *stop;
};

/* Milliseconds that a way takes, INFINITY if it fails. */
static float timed(const struct timer *timer, const struct call *c, const struct way *way, int repeats)
{
    float elapsed = INFINITY;

    if (the_cuEventRecord(timer->start, timer->stream))
        return INFINITY;
    for (int i = 0; i < repeats; i++)
        if (compute(c, way))
            return INFINITY;
    if (the_cuEventRecord(timer->stop, timer->stream) || the_cuEventSynchronize(timer->stop) ||
        the_cuEventElapsedTime(&elapsed, timer->start, timer->stop))
        return INFINITY;
    return elapsed / repeats;
}

/* Times every way, the slow ones briefly; then the fastest against the plain call. Returns the one to take. */
static struct way *fastest(const struct timer *timer, const struct call *c, struct ways *ways)
{
    struct way *plain = ways->all, *best = plain;

    for (struct way *way = plain; way < plain + ways->count; way++) {
        way->time = INFINITY;
        if (way > plain && plain->time == INFINITY)
            break;
        if (timed(timer, c, way, 1) == INFINITY) /* with what is only done once, such as loading the kernels */
            continue;
        way->time = timed(timer, c, way, 1);
        if (way->time < near * best->time)
            way->time = timed(timer, c, way, 3);
        if (way->time < best->time)
            best = way;
    }
    if (best == plain)
        return plain;
    plain->time = best->time = INFINITY;
    for (int i = 0; i < 3; i++) {
        const float plain_time = timed(timer, c, plain, 3), best_time = timed(timer, c, best, 3);
        plain->time = plain_time < plain->time ? plain_time : plain->time;
        best->time = best_time < best->time ? best_time : best->time;
    }
    return best->time < worthwhile * plain->time ? best : plain;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static void print_dimensions(char *to, size_t size, const char *name, const struct tensor *tensor, int rank)
{
    int written = snprintf(to, size, "%s", name);

    for (int i = 0; i < rank; i++)
        written += snprintf(to + written, size - written, "%c%lld", i ? 'x' : ' ', (long long)tensor->dimensions[i]);
}

static void print_found(const struct key *key, const struct ways *ways, const struct way *best, double started)
{
    const char *direction = key->direction == FORWARD_PASS    ? "forward"
                            : key->direction == DATA_GRADIENT ? "data gradient"
                                                              : "filter gradient";
    char x[128], w[128];

    print_dimensions(x, sizeof x, key->type == HALF_DATA ? "fp16 x" : "x", &key->x, key->rank);
    print_dimensions(w, sizeof w, "w", &key->w, key->rank);
    fprintf(stderr,
            "cudnn_forward: %s %s %s stride %lld beta %g: algorithm %d %.3f ms, best %s %lld %.3f ms with %.1f MiB; "
            "%d ways in %.2f s\n",
            direction, x, w, (long long)key->steps[0], key->beta, key->algorithm, ways->all->time,
            best->plan ? "engine" : "algorithm", (long long)best->number, best->time, best->need / 1048576.0,
            ways->count, seconds() - started);
}

static size_t bytes(const struct tensor *tensor, int rank, int type)
{
    size_t last = 0;

    for (int i = 0; i < rank; i++)
        last += (tensor->dimensions[i] - 1) * tensor->strides[i];
    return (last + 1) * (type == HALF_DATA ? 2 : sizeof(float));
}

/* Puts memory in the place of what the call adds to, so that timing leaves that alone. */
static bool replace_output(struct call *c, const struct key *key, void **memory)
{
    const struct tensor *output = c->direction == FORWARD_PASS    ? &key->y
                                  : c->direction == DATA_GRADIENT ? &key->x
                                                                  : &key->w;
    void **pointer = c->direction == FORWARD_PASS ? &c->y : c->direction == DATA_GRADIENT ? &c->x : &c->w;

    if (the_cuMemAlloc_v2(memory, bytes(output, key->rank, key->type)))
        return false;
    *pointer = *memory;
    return true;
}

/* What is found stays with its descriptors: those of the graph (the first ones), the configuration and the plan. */
static void search(struct call c, struct found *found)
{
    const double started = seconds();
    struct ways ways = {.count = 1, .all = {{.number = c.algorithm}}};
    struct pile *pile = &found->pile;
    struct buffer *buffer = buffer_of(c.handle);
    struct timer timer = {.start = NULL};
    struct way *best = ways.all;
    void *memory = NULL;
    int graph_count = 0, kept = 0;

    found->way = *best;
    if (!buffer || (*c.beta != 0 && !replace_output(&c, &found->key, &memory)))
        return;
    timer.stream = buffer->stream;
    if (the_cuEventCreate(&timer.start, 0) == 0 && the_cuEventCreate(&timer.stop, 0) == 0) {
        descriptor_t graph = make_graph(pile, &found->key);
        graph_count = pile->count;
        add_legacy(&ways, &c);
        if (graph)
            add_plans(&ways, pile, &found->key, graph);
        best = fastest(&timer, &c, &ways);
        if (logging)
            print_found(&found->key, &ways, best, started);
    }
    found->way = *best;
    for (int i = 0; i < pile->count; i++)
        if (best->plan && (i < graph_count || pile->made[i] == best->plan || pile->made[i] == best->config))
            pile->made[kept++] = pile->made[i];
        else
            the_cudnnBackendDestroyDescriptor(pile->made[i]);
    pile->count = kept;
    if (best->need > c.size && best->need > buffer->kept)
        buffer->kept = best->need;
    if (buffer->size > buffer->kept)
        resize(buffer, buffer->kept);
    if (memory) {
        the_cuStreamSynchronize(timer.stream);
        the_cuMemFree_v2(memory);
    }
    if (timer.start)
        the_cuEventDestroy_v2(timer.start);
    if (timer.stop)
        the_cuEventDestroy_v2(timer.stop);
}

/*
 * The way to take for a call, NULL for the plain call. The lock protects the lists alone: what they hold belongs to a
 * handle, with which only one thread works at a time, and no thread waits for another's stream.
 */
static struct found *found_for(const struct call *c)
{
    struct found *found;
    struct key key;

    pthread_once(&driver_once, find_driver);
    if (!searching || !describe(c, &key))
        return NULL;
    pthread_mutex_lock(&lists);
    for (found = all_found; found && memcmp(&found->key, &key, sizeof key); found = found->next)
        ;
    pthread_mutex_unlock(&lists);
    if (found || !(found = calloc(1, sizeof *found)))
        return found;
    found->key = key;
    search(*c, found);
    pthread_mutex_lock(&lists);
    found->next = all_found;
    all_found = found;
    pthread_mutex_unlock(&lists);
    return found;
}

static status_t convolve(const struct call *c)
{
    struct found *found = searching ? found_for(c) : NULL;

    if (found && (found->way.plan || found->way.number != c->algorithm)) {
        if (compute(c, &found->way) == SUCCESS)
            return SUCCESS;
        found->way = (struct way){.number = c->algorithm};
    }
    return legacy(c, c->algorithm, c->workspace, c->size);
}

/* A handle to be destroyed takes with it what was found for it. */
static void forget(handle_t handle)
{
    pthread_mutex_lock(&lists);
    for (struct found **at = &all_found, *found; (found = *at);)
        if (found->key.handle == handle) {
            *at = found->next;
            destroy_from(&found->pile, 0);
            free(found);
        } else {
            at = &found->next;
        }
    for (struct buffer **at = &all_buffers, *buffer; (buffer = *at);)
        if (buffer->handle == handle) {
            *at = buffer->next;
            if (buffer->memory) /* waits for what uses it; the stream may be gone */
                the_cuMemFree_v2(buffer->memory);
            free(buffer);
        } else {
            at = &buffer->next;
        }
    pthread_mutex_unlock(&lists);
}
