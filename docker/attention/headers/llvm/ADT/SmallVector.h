/*
 * The vector of LLVM that OneFlow keeps shapes in, which the wheel's headers name and lack. Its layout is LLVM's: a
 * pointer, two 32-bit counts, and room for N elements. Only elements that can be copied as bytes are supported.
 */
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <type_traits>

namespace llvm {

template <typename T, unsigned N>
class SmallVector {
    static_assert(std::is_trivially_copyable<T>::value && sizeof(T) >= 4, "its counts would have other sizes");

  public:
    using value_type = T;
    using size_type = size_t;
    using difference_type = ptrdiff_t;
    using reference = T &;
    using const_reference = const T &;
    using pointer = T *;
    using const_pointer = const T *;
    using iterator = T *;
    using const_iterator = const T *;
    using reverse_iterator = std::reverse_iterator<iterator>;
    using const_reverse_iterator = std::reverse_iterator<const_iterator>;

    SmallVector() = default;
    explicit SmallVector(size_t count, const T &value = T()) { assign(count, value); }
    SmallVector(std::initializer_list<T> values) { append(values.begin(), values.end()); }
    template <typename It, typename = typename std::iterator_traits<It>::iterator_category>
    SmallVector(It first, It last)
    {
        append(first, last);
    }
    SmallVector(const SmallVector &other) { append(other.begin(), other.end()); }
    SmallVector(SmallVector &&other) { take(other); }
    ~SmallVector() { release(); }

    SmallVector &operator=(const SmallVector &other)
    {
        if (this != &other)
            assign(other.begin(), other.end());
        return *this;
    }
    SmallVector &operator=(SmallVector &&other)
    {
        if (this != &other) {
            release();
            take(other);
        }
        return *this;
    }
    SmallVector &operator=(std::initializer_list<T> values)
    {
        assign(values.begin(), values.end());
        return *this;
    }

    size_t size() const { return Size; }
    size_t capacity() const { return Capacity; }
    bool empty() const { return Size == 0; }
    T *data() { return static_cast<T *>(BeginX); }
    const T *data() const { return static_cast<const T *>(BeginX); }
    iterator begin() { return data(); }
    iterator end() { return data() + Size; }
    const_iterator begin() const { return data(); }
    const_iterator end() const { return data() + Size; }
    reverse_iterator rbegin() { return reverse_iterator(end()); }
    reverse_iterator rend() { return reverse_iterator(begin()); }
    const_reverse_iterator rbegin() const { return const_reverse_iterator(end()); }
    const_reverse_iterator rend() const { return const_reverse_iterator(begin()); }
    T &operator[](size_t at) { return data()[at]; }
    const T &operator[](size_t at) const { return data()[at]; }
    T &front() { return data()[0]; }
    const T &front() const { return data()[0]; }
    T &back() { return data()[Size - 1]; }
    const T &back() const { return data()[Size - 1]; }

    void clear() { Size = 0; }
    void pop_back() { Size--; }
    void reserve(size_t count)
    {
        if (count <= Capacity)
            return;
        void *larger = std::malloc(count * sizeof(T));
        if (!larger)
            std::abort();
        std::memcpy(larger, BeginX, Size * sizeof(T));
        const uint32_t kept = Size;
        release();
        BeginX = larger;
        Size = kept;
        Capacity = count;
    }
    void push_back(const T &value)
    {
        const T copied = value;
        if (Size == Capacity)
            reserve(2 * static_cast<size_t>(Capacity) + 1);
        data()[Size++] = copied;
    }
    template <typename... Arguments>
    T &emplace_back(Arguments &&...arguments)
    {
        push_back(T(std::forward<Arguments>(arguments)...));
        return back();
    }
    void resize(size_t count, const T &value = T())
    {
        reserve(count);
        for (; Size < count; Size++)
            data()[Size] = value;
        Size = count;
    }
    template <typename It>
    void append(It first, It last)
    {
        for (; first != last; ++first)
            push_back(*first);
    }
    void assign(size_t count, const T &value)
    {
        clear();
        resize(count, value);
    }
    template <typename It, typename = typename std::iterator_traits<It>::iterator_category>
    void assign(It first, It last)
    {
        clear();
        append(first, last);
    }
    iterator insert(iterator place, const T &value)
    {
        const size_t at = place - begin();
        const T copied = value;
        push_back(copied);
        std::rotate(begin() + at, end() - 1, end());
        return begin() + at;
    }
    template <typename It, typename = typename std::iterator_traits<It>::iterator_category>
    iterator insert(iterator place, It first, It last)
    {
        const size_t at = place - begin(), before = Size;
        append(first, last);
        std::rotate(begin() + at, begin() + before, end());
        return begin() + at;
    }
    iterator erase(const_iterator place) { return erase(place, place + 1); }
    iterator erase(const_iterator first, const_iterator last)
    {
        iterator to = begin() + (first - begin());
        std::copy(last, static_cast<const SmallVector *>(this)->end(), to);
        Size -= last - first;
        return to;
    }
    void swap(SmallVector &other) { std::swap(*this, other); }

    bool operator==(const SmallVector &other) const
    {
        return Size == other.Size && std::equal(begin(), end(), other.begin());
    }
    bool operator!=(const SmallVector &other) const { return !(*this == other); }
    bool operator<(const SmallVector &other) const
    {
        return std::lexicographical_compare(begin(), end(), other.begin(), other.end());
    }

  protected:
    void *BeginX = inside;
    uint32_t Size = 0, Capacity = N;

  private:
    void release()
    {
        if (BeginX != inside)
            std::free(BeginX);
        BeginX = inside;
        Size = 0;
        Capacity = N;
    }
    /* The elements of another, which is empty then; this is empty before. */
    void take(SmallVector &other)
    {
        if (other.BeginX == other.inside) {
            std::memcpy(inside, other.inside, other.Size * sizeof(T));
            Size = other.Size;
        } else {
            BeginX = other.BeginX;
            Size = other.Size;
            Capacity = other.Capacity;
            other.BeginX = other.inside;
        }
        other.release();
    }

    alignas(T) char inside[N * sizeof(T)];
};

} // namespace llvm
