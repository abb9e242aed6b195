/*
 * Self-attention by cuDNN's fused kernels: its backend's plain C interface, opened at run time. A part of
 * attention_operator.cpp.
 *
 * A forward pass computes scores = q · kᵀ · scale, hides later positions, and gives softmax(scores) with dropout · v
 * and the logarithm of each row's sum; the backward pass computes the scores again from it. No matrix of scores is
 * stored. The graphs have the operations that cuDNN recognises as flash attention; the numbers of descriptors,
 * attributes and types are those of its cudnn_graph.h.
 */
#pragma once
#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace attention {

/* What is computed: queries, keys and values of `size` lie beside each other in (batch, length, heads, 3 * size). */
struct Shape {
    int64_t batch, length, heads, size;
    float dropout;
    bool causal;

    bool operator<(const Shape &other) const { return tie() < other.tie(); }
    std::tuple<int64_t, int64_t, int64_t, int64_t, float, bool> tie() const
    {
        return std::make_tuple(batch, length, heads, size, dropout, causal);
    }
    int64_t rows() const { return batch * heads * length; }
};

enum { HALF_BYTES = 2, ALIGNMENT = 256, MOST_CONFIGS = 16 };
enum Type { FLOAT = 0, HALF = 2, INT32 = 4, INT64 = 10, BOOLEAN = 11 };
enum Mode { ADD = 0, MUL = 1, DIV = 6, SUB = 9, EXP = 13, LOG = 15, IDENTITY = 21, NOT_BEFORE = 303 };
enum Other { INDEX = 501, SELECT = 601, SUM = 0, MAXIMUM = 3 };

using Descriptor = void *;

/* The functions of cuDNN and of the driver, opened once. */
struct Library {
    int (*create)(void **);
    int (*set_stream)(void *, void *);
    int (*make)(int, Descriptor *);
    int (*destroy)(Descriptor);
    int (*set)(Descriptor, int, int, int64_t, const void *);
    int (*get)(Descriptor, int, int, int64_t, int64_t *, void *);
    int (*finalize)(Descriptor);
    int (*execute)(void *, Descriptor, Descriptor);
    void (*last_error)(char *, size_t);
    int (*allocate)(void **, size_t);
    int (*release)(void *);
    int (*clear)(void *, unsigned, size_t, void *);
    int (*copy)(void *, const void *, size_t, void *);
    int (*synchronize)(void *);

    static const Library &opened()
    {
        static const Library library;
        return library;
    }

  private:
    Library()
    {
        const char *given = std::getenv("CUDNN_FORWARD_LIBRARY");
        const std::string name = given && *given ? given : "libcudnn.so.9";
        void *cudnn = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!cudnn || !driver)
            throw std::runtime_error(dlerror());
        find(cudnn, "cudnnCreate", create);
        find(cudnn, "cudnnSetStream", set_stream);
        find(cudnn, "cudnnBackendCreateDescriptor", make);
        find(cudnn, "cudnnBackendDestroyDescriptor", destroy);
        find(cudnn, "cudnnBackendSetAttribute", set);
        find(cudnn, "cudnnBackendGetAttribute", get);
        find(cudnn, "cudnnBackendFinalize", finalize);
        find(cudnn, "cudnnBackendExecute", execute);
        find(cudnn, "cudnnGetLastErrorString", last_error);
        find(driver, "cuMemAlloc_v2", allocate);
        find(driver, "cuMemFree_v2", release);
        find(driver, "cuMemsetD8Async", clear);
        find(driver, "cuMemcpyHtoDAsync_v2", copy);
        find(driver, "cuStreamSynchronize", synchronize);
    }
    template <typename Function>
    static void find(void *in, const char *name, Function &function)
    {
        function = reinterpret_cast<Function>(dlsym(in, name));
        if (!function)
            throw std::runtime_error(std::string("no ") + name + ", which cuDNN 9 and the driver have");
    }
};

inline void check(int status, const char *what)
{
    if (status == 0)
        return;
    char said[512] = "";
    Library::opened().last_error(said, sizeof said);
    throw std::runtime_error(std::string(what) + ": status " + std::to_string(status) + " " + said);
}

/* A graph of operations and the plan that executes it. */
class Plan {
  public:
    enum Name : int64_t { Q = 1, K, V, O, STATS, SEED, OFFSET, D_O, D_Q, D_K, D_V, SUMS, D_Q_SUM, FIRST_INNER };

    Plan(const Shape &shape, void *handle, bool backward) : cudnn(Library::opened()), shape(shape), handle(handle)
    {
        const int64_t row = 3 * shape.size * shape.heads, d = shape.size, n = shape.heads, s = shape.length;
        whole = {{shape.batch, n, s, s}, {n * s * s, s * s, s, 1}};
        turned = {{shape.batch, n, s, s}, {n * s * s, s * s, 1, s}};
        rows = {{shape.batch, n, s, 1}, {n * s, s, 1, 1}};
        products = {{shape.batch, n, s, d}, {s * row, 3 * d, row, 1}};
        transposed = {{shape.batch, n, d, s}, {s * row, 3 * d, 1, row}};
        contexts = {{shape.batch, n, s, d}, {s * n * d, d, n * d, 1}};
        backward ? build_backward() : build_forward();
        choose();
    }
    Plan(const Plan &) = delete;
    ~Plan()
    {
        for (auto made = all.rbegin(); made != all.rend(); ++made)
            cudnn.destroy(*made);
    }

    size_t workspace() const { return size; }

    /* Execute on the handle's stream; `data` has the tensors' addresses, but those of numbers that the graph has. */
    void execute(std::map<int64_t, void *> data, void *workspace) const
    {
        std::vector<int64_t> names;
        std::vector<void *> places;
        for (auto &each : numbers)
            data[each.first] = const_cast<float *>(&each.second);
        for (auto &each : data) {
            names.push_back(each.first);
            places.push_back(each.second);
        }
        Descriptor pack = nullptr;
        check(cudnn.make(16, &pack), "a pack of tensors");
        const std::unique_ptr<void, int (*)(Descriptor)> kept(pack, cudnn.destroy);
        set(pack, 1000, A_NUMBER, names);
        set(pack, 1001, AN_ADDRESS, places);
        set(pack, 1003, AN_ADDRESS, std::vector<void *>{workspace});
        check(cudnn.finalize(pack), "a pack of tensors");
        check(cudnn.execute(handle, plan, pack), "attention");
    }

  private:
    enum { A_HANDLE = 0, A_TYPE = 1, A_NUMBER = 3, A_FLOAT = 4, A_DOUBLE = 5, AN_ADDRESS = 6, A_HEURISTIC = 8 };
    enum { A_BOOL = 2, A_POINTWISE_MODE = 14, A_DESCRIPTOR = 15, A_REDUCTION = 18, A_DISTRIBUTION = 29 };

    struct Extent {
        std::vector<int64_t> dimensions, strides;
    };

    template <typename T>
    void set(Descriptor of, int attribute, int type, const std::vector<T> &values) const
    {
        check(cudnn.set(of, attribute, type, values.size(), values.data()), "an attribute");
    }
    template <typename T>
    void set(Descriptor of, int attribute, int type, T value) const
    {
        check(cudnn.set(of, attribute, type, 1, &value), "an attribute");
    }
    Descriptor make(int kind)
    {
        Descriptor made = nullptr;
        check(cudnn.make(kind, &made), "a descriptor");
        all.push_back(made);
        return made;
    }
    Descriptor finished(Descriptor made)
    {
        check(cudnn.finalize(made), "a descriptor");
        return made;
    }

    /* A tensor, by default one that is nowhere stored. */
    Descriptor tensor(const Extent &extent, Type type = FLOAT, int64_t name = 0)
    {
        Descriptor made = make(17);
        set(made, 900, A_NUMBER, int64_t(16));
        set(made, 901, A_TYPE, int(type));
        set(made, 902, A_NUMBER, extent.dimensions);
        set(made, 903, A_NUMBER, extent.strides);
        set(made, 906, A_NUMBER, name ? name : inner++);
        if (!name)
            set(made, 907, A_BOOL, true);
        return finished(made);
    }
    Descriptor number(float value)
    {
        const int64_t name = inner++;
        Descriptor made = make(17);
        set(made, 900, A_NUMBER, int64_t(16));
        set(made, 901, A_TYPE, int(FLOAT));
        set(made, 902, A_NUMBER, one.dimensions);
        set(made, 903, A_NUMBER, one.strides);
        set(made, 906, A_NUMBER, name);
        set(made, 908, A_BOOL, true);
        numbers[name] = value;
        return finished(made);
    }

    void pointwise(int mode, Descriptor x, Descriptor b, Descriptor y, Type precision = FLOAT, Descriptor condition = nullptr,
                   int64_t axis = -1)
    {
        Descriptor what = make(0), operation = nullptr;
        set(what, 0, A_POINTWISE_MODE, mode);
        set(what, 1, A_TYPE, int(precision));
        if (axis >= 0)
            set(what, 9, A_NUMBER, axis);
        finished(what);
        operation = make(13);
        set(operation, 750, A_DESCRIPTOR, what);
        set(operation, 751, A_DESCRIPTOR, x);
        if (b)
            set(operation, 752, A_DESCRIPTOR, b);
        set(operation, 753, A_DESCRIPTOR, y);
        if (condition)
            set(operation, 758, A_DESCRIPTOR, condition);
        operations.push_back(finished(operation));
    }
    Descriptor pointwise(int mode, Descriptor x, Descriptor b, const Extent &extent)
    {
        Descriptor y = tensor(extent);
        pointwise(mode, x, b, y);
        return y;
    }
    void reduce(int by, Descriptor x, Descriptor y)
    {
        Descriptor what = make(21), operation = nullptr;
        set(what, 1600, A_REDUCTION, by);
        set(what, 1601, A_TYPE, int(FLOAT));
        finished(what);
        operation = make(22);
        set(operation, 1610, A_DESCRIPTOR, x);
        set(operation, 1611, A_DESCRIPTOR, y);
        set(operation, 1612, A_DESCRIPTOR, what);
        operations.push_back(finished(operation));
    }
    void product(Descriptor a, Descriptor b, Descriptor c)
    {
        Descriptor what = make(18), operation = nullptr;
        set(what, 1500, A_TYPE, int(FLOAT));
        finished(what);
        operation = make(19);
        set(operation, 1520, A_DESCRIPTOR, a);
        set(operation, 1521, A_DESCRIPTOR, b);
        set(operation, 1522, A_DESCRIPTOR, c);
        set(operation, 1523, A_DESCRIPTOR, what);
        operations.push_back(finished(operation));
    }
    Descriptor reshape(Descriptor x, const Extent &extent, Type type)
    {
        Descriptor y = tensor(extent, type), operation = make(31);
        set(operation, 2200, A_DESCRIPTOR, x);
        set(operation, 2201, A_DESCRIPTOR, y);
        operations.push_back(finished(operation));
        return y;
    }
    /* 1 for a weight that stays and 0 for one that is dropped. */
    Descriptor kept_weights()
    {
        Descriptor seed = tensor(one, INT64, SEED), offset = tensor(one, INT64, OFFSET), y = tensor(whole);
        Descriptor what = make(32), operation = nullptr;
        set(what, 2300, A_DISTRIBUTION, int(0));
        set(what, 2305, A_DOUBLE, 1.0 - double(shape.dropout));
        finished(what);
        operation = make(33);
        set(operation, 2310, A_DESCRIPTOR, y);
        set(operation, 2311, A_DESCRIPTOR, seed);
        set(operation, 2312, A_DESCRIPTOR, what);
        set(operation, 2313, A_DESCRIPTOR, offset);
        operations.push_back(finished(operation));
        return y;
    }
    Descriptor without_future(Descriptor scores)
    {
        if (!shape.causal)
            return scores;
        Descriptor row = tensor(whole, INT32), column = tensor(whole, INT32), past = tensor(whole, BOOLEAN);
        Descriptor y = tensor(whole);
        pointwise(INDEX, scores, nullptr, row, FLOAT, nullptr, 2);
        pointwise(INDEX, scores, nullptr, column, FLOAT, nullptr, 3);
        pointwise(NOT_BEFORE, row, column, past, BOOLEAN);
        pointwise(SELECT, scores, number(-std::numeric_limits<float>::infinity()), y, FLOAT, past);
        return y;
    }
    Descriptor scaled_scores(Descriptor q, Descriptor kt, Descriptor scale)
    {
        Descriptor scores = tensor(whole);
        product(q, kt, scores);
        return pointwise(MUL, scores, scale, whole);
    }
    float scale() const { return 1.0f / std::sqrt(float(shape.size)); }
    float kept() const { return 1.0f - shape.dropout; }

    void build_forward()
    {
        Descriptor q = tensor(products, HALF, Q), kt = tensor(transposed, HALF, K), v = tensor(products, HALF, V);
        Descriptor scores = without_future(scaled_scores(q, kt, number(scale())));
        Descriptor largest = tensor(rows), sum = tensor(rows);
        reduce(MAXIMUM, scores, largest);
        Descriptor powers = pointwise(EXP, pointwise(SUB, scores, largest, whole), nullptr, whole);
        reduce(SUM, powers, sum);
        pointwise(ADD, largest, pointwise(LOG, sum, nullptr, rows), tensor(rows, FLOAT, STATS));
        const bool drops = shape.dropout > 0;
        Descriptor weights = tensor(whole, drops ? FLOAT : HALF);
        pointwise(DIV, powers, sum, weights);
        if (drops) {
            Descriptor remaining = pointwise(MUL, weights, kept_weights(), whole);
            weights = tensor(whole, HALF);
            pointwise(MUL, remaining, number(1 / kept()), weights);
        }
        product(weights, v, tensor(contexts, HALF, O));
    }
    void build_backward()
    {
        const bool drops = shape.dropout > 0;
        Descriptor q = tensor(products, HALF, Q), kt = tensor(transposed, HALF, K), vt = tensor(transposed, HALF, V);
        Descriptor o = tensor(contexts, HALF, O), d_o = tensor(contexts, HALF, D_O);
        Descriptor stats = tensor(rows, FLOAT, STATS), factor = number(scale());
        Descriptor stays = drops ? kept_weights() : nullptr, grown = drops ? number(1 / kept()) : nullptr;

        Descriptor shares = tensor(rows), sums = tensor(rows, FLOAT, SUMS);
        reduce(SUM, pointwise(MUL, d_o, o, {contexts.dimensions, contexts.strides}), shares);
        pointwise(MUL, shares, number(kept()), sums);

        Descriptor shifted = pointwise(SUB, scaled_scores(q, kt, factor), stats, whole);
        Descriptor weights = pointwise(EXP, without_future(shifted), nullptr, whole), remaining = weights;
        if (drops)
            remaining = pointwise(MUL, pointwise(MUL, weights, stays, whole), grown, whole);
        product(reshape(remaining, turned, HALF), d_o, tensor(products, HALF, D_V));

        Descriptor slopes = tensor(whole);
        product(d_o, vt, slopes);
        if (drops)
            slopes = pointwise(MUL, slopes, stays, whole);
        slopes = pointwise(MUL, pointwise(SUB, slopes, sums, whole), weights, whole);
        if (drops)
            slopes = pointwise(MUL, slopes, grown, whole);
        slopes = pointwise(MUL, slopes, factor, whole);
        product(reshape(slopes, turned, HALF), q, tensor(products, HALF, D_K));

        const int64_t d = shape.size, n = shape.heads, s = shape.length;
        Descriptor k = reshape(kt, products, FLOAT);
        Descriptor sum = tensor({contexts.dimensions, {n * s * d, s * d, d, 1}}, FLOAT, D_Q_SUM);
        product(slopes, k, sum);
        pointwise(IDENTITY, sum, nullptr, tensor(products, HALF, D_Q));
    }

    /* The first proposal of cuDNN's heuristics that can be finished. */
    void choose()
    {
        Descriptor graph = make(15), heuristic = nullptr;
        set(graph, 800, A_HANDLE, handle);
        set(graph, 801, A_DESCRIPTOR, operations);
        finished(graph);
        heuristic = make(4);
        set(heuristic, 200, A_HEURISTIC, int(3));
        set(heuristic, 201, A_DESCRIPTOR, graph);
        finished(heuristic);
        std::vector<Descriptor> configs;
        while (configs.size() < MOST_CONFIGS)
            configs.push_back(make(3));
        int64_t count = 0, got = 0, bytes = 0;
        check(cudnn.get(heuristic, 202, A_DESCRIPTOR, MOST_CONFIGS, &count, configs.data()), "cuDNN's proposals");
        for (int64_t i = 0; i < count && i < MOST_CONFIGS; i++) {
            plan = make(5);
            set(plan, 400, A_HANDLE, handle);
            set(plan, 401, A_DESCRIPTOR, configs[i]);
            if (cudnn.finalize(plan))
                continue;
            check(cudnn.get(plan, 402, A_NUMBER, 1, &got, &bytes), "the size of a workspace");
            size = bytes;
            return;
        }
        throw std::runtime_error("cuDNN has no fused attention for this shape on this GPU");
    }

    const Library &cudnn;
    const Shape shape;
    void *const handle;
    const Extent one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    Extent whole, turned, rows, products, transposed, contexts;
    int64_t inner = FIRST_INNER;
    std::map<int64_t, float> numbers;
    std::vector<Descriptor> all, operations;
    Descriptor plan = nullptr;
    size_t size = 0;
};

/* Memory of the GPU that only grows. */
class Buffer {
  public:
    void *reserve(size_t bytes, void *stream)
    {
        const Library &library = Library::opened();
        if (bytes > size) {
            if (place) {
                check(library.synchronize(stream), "waiting for the GPU");
                check(library.release(place), "memory");
            }
            check(library.allocate(&place, bytes), "memory for attention");
            size = bytes;
        }
        return place;
    }

  private:
    void *place = nullptr;
    size_t size = 0;
};

/* All attention on one stream: its calls follow each other, so they share a workspace. */
class Stream {
  public:
    explicit Stream(void *stream) : library(Library::opened()), stream(stream)
    {
        check(library.create(&handle), "cuDNN");
        check(library.set_stream(handle, stream), "cuDNN's stream");
    }

    /* Context (b, s, n, d) and the logarithms of the rows' sums (b, n, s) of x (b, s, n, 3d). */
    void forward(const Shape &shape, const void *x, void *context, float *stats, int64_t seed, int64_t offset)
    {
        const Plan &plan = planned(shape, false);
        char *place = static_cast<char *>(work.reserve(DRAWS + plan.workspace(), stream));
        auto data = draws(shape, place, seed, offset);
        add(data, Plan::Q, x, shape);
        data[Plan::O] = context;
        data[Plan::STATS] = stats;
        plan.execute(data, place + DRAWS);
    }
    /* The gradient of x from that of the context and from what the forward pass gave. */
    void backward(const Shape &shape, const void *x, const void *context, const float *stats, const void *d_context,
                  void *d_x, int64_t seed, int64_t offset)
    {
        const Plan &plan = planned(shape, true);
        const size_t sums = rounded(shape.rows() * sizeof(float)), d_q = rounded(sums * shape.size);
        char *place = static_cast<char *>(work.reserve(DRAWS + sums + d_q + plan.workspace(), stream));
        auto data = draws(shape, place, seed, offset);
        add(data, Plan::Q, x, shape);
        add(data, Plan::D_Q, d_x, shape);
        data[Plan::O] = const_cast<void *>(context);
        data[Plan::STATS] = const_cast<float *>(stats);
        data[Plan::D_O] = const_cast<void *>(d_context);
        data[Plan::SUMS] = place + DRAWS;
        data[Plan::D_Q_SUM] = place + DRAWS + sums;
        check(library.clear(data[Plan::D_Q_SUM], 0, d_q, stream), "clearing a sum");
        plan.execute(data, place + DRAWS + sums + d_q);
    }

  private:
    enum : size_t { DRAWS = ALIGNMENT };

    static size_t rounded(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

    const Plan &planned(const Shape &shape, bool backward)
    {
        auto &plan = plans[{shape, backward}];
        if (!plan)
            plan.reset(new Plan(shape, handle, backward));
        return *plan;
    }
    /* Seed and offset of the random numbers, brought to the GPU in order with what uses them. */
    std::map<int64_t, void *> draws(const Shape &shape, char *place, int64_t seed, int64_t offset)
    {
        if (!(shape.dropout > 0))
            return {};
        const int64_t both[2] = {seed, offset};
        check(library.copy(place, both, sizeof both, stream), "random numbers");
        return {{Plan::SEED, place}, {Plan::OFFSET, place + sizeof(int64_t)}};
    }
    /* Three tensors whose vectors lie beside each other, and whose names follow each other. */
    static void add(std::map<int64_t, void *> &data, int64_t first, const void *x, const Shape &shape)
    {
        for (int64_t i = 0; i < 3; i++)
            data[first + i] = static_cast<char *>(const_cast<void *>(x)) + i * shape.size * HALF_BYTES;
    }

    const Library &library;
    void *const stream;
    void *handle = nullptr;
    std::map<std::pair<Shape, bool>, std::unique_ptr<Plan>> plans;
    Buffer work;
};

inline Stream &on(void *stream)
{
    static std::mutex mutex;
    static std::map<void *, std::unique_ptr<Stream>> streams;
    const std::lock_guard<std::mutex> guard(mutex);
    auto &found = streams[stream];
    if (!found)
        found.reset(new Stream(stream));
    return *found;
}

} // namespace attention
