/* Self-attention on the CPU in fp32, row by row, for tests without a GPU. A part of attention_operator.cpp. */
#pragma once
#include "cudnn_attention.h"

namespace attention {

/* A number in [0, 1) for a weight, by a counter that is mixed (splitmix64). */
inline float drawn(uint64_t seed, uint64_t offset, uint64_t place)
{
    uint64_t x = seed + offset * 0x9E3779B97F4A7C15 + place * 0xD1B54A32D192ED03;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return static_cast<float>((x ^ (x >> 31)) >> 40) / (1 << 24);
}

class Plain {
  public:
    Plain(const Shape &shape, const float *x, int64_t seed, int64_t offset)
        : shape(shape), x(x), seed(seed), offset(offset), scale(1.0f / std::sqrt(float(shape.size)))
    {
    }

    void forward(float *context, float *stats) const
    {
        std::vector<float> weights(shape.length);
        each_row([&](int64_t sample, int64_t head, int64_t row) {
            const int64_t end = seen(row);
            float largest = -std::numeric_limits<float>::infinity(), sum = 0;
            for (int64_t at = 0; at < end; at++)
                largest = std::max(largest, weights[at] = score(sample, head, row, at));
            for (int64_t at = 0; at < end; at++)
                sum += std::exp(weights[at] - largest);
            const float log_sum = stats[row_of(sample, head, row)] = largest + std::log(sum);
            float *to = context + context_at(sample, row, head);
            std::fill_n(to, shape.size, 0.0f);
            for (int64_t at = 0; at < end; at++)
                add(to, std::exp(weights[at] - log_sum) * remains(sample, head, row, at), part(sample, at, head, 2));
        });
    }
    void backward(const float *context, const float *stats, const float *d_context, float *d_x) const
    {
        std::fill_n(d_x, shape.rows() * 3 * shape.size, 0.0f);
        each_row([&](int64_t sample, int64_t head, int64_t row) {
            const float *slope = d_context + context_at(sample, row, head);
            const float share = product(slope, context + context_at(sample, row, head));
            for (int64_t at = 0, end = seen(row); at < end; at++) {
                const float weight = std::exp(score(sample, head, row, at) - stats[row_of(sample, head, row)]);
                const float remaining = remains(sample, head, row, at);
                add(d_x + place(sample, at, head, 2), weight * remaining, slope);
                const float of_weight = remaining * product(slope, part(sample, at, head, 2));
                const float of_score = weight * (of_weight - share) * scale;
                add(d_x + place(sample, row, head, 0), of_score, part(sample, at, head, 1));
                add(d_x + place(sample, at, head, 1), of_score, part(sample, row, head, 0));
            }
        });
    }

  private:
    template <typename Call>
    void each_row(Call call) const
    {
        for (int64_t sample = 0; sample < shape.batch; sample++)
            for (int64_t head = 0; head < shape.heads; head++)
                for (int64_t row = 0; row < shape.length; row++)
                    call(sample, head, row);
    }
    int64_t seen(int64_t row) const { return shape.causal ? row + 1 : shape.length; }
    int64_t row_of(int64_t sample, int64_t head, int64_t row) const
    {
        return (sample * shape.heads + head) * shape.length + row;
    }
    int64_t context_at(int64_t sample, int64_t row, int64_t head) const
    {
        return ((sample * shape.length + row) * shape.heads + head) * shape.size;
    }
    /* Where a query, key or value (0, 1, 2) begins. */
    int64_t place(int64_t sample, int64_t row, int64_t head, int64_t third) const
    {
        return 3 * context_at(sample, row, head) + third * shape.size;
    }
    const float *part(int64_t sample, int64_t row, int64_t head, int64_t third) const
    {
        return x + place(sample, row, head, third);
    }
    float product(const float *one, const float *other) const
    {
        float sum = 0;
        for (int64_t i = 0; i < shape.size; i++)
            sum += one[i] * other[i];
        return sum;
    }
    void add(float *to, float factor, const float *vector) const
    {
        for (int64_t i = 0; i < shape.size; i++)
            to[i] += factor * vector[i];
    }
    float score(int64_t sample, int64_t head, int64_t row, int64_t at) const
    {
        return scale * product(part(sample, row, head, 0), part(sample, at, head, 1));
    }
    float remains(int64_t sample, int64_t head, int64_t row, int64_t at) const
    {
        if (!(shape.dropout > 0))
            return 1;
        const uint64_t number = row_of(sample, head, row) * shape.length + at;
        return drawn(seed, offset, number) < shape.dropout ? 0 : 1 / (1 - shape.dropout);
    }

    const Shape shape;
    const float *const x;
    const int64_t seed, offset;
    const float scale;
};

} // namespace attention
