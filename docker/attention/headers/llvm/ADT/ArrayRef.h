/* LLVM's view of an array, a pointer and a length, which the wheel's headers name and lack. */
#pragma once
#include "llvm/ADT/SmallVector.h"

namespace llvm {

template <typename T>
class ArrayRef {
  public:
    using value_type = T;
    using size_type = size_t;
    using const_reference = const T &;
    using reference = const_reference;
    using const_iterator = const T *;
    using iterator = const_iterator;

    ArrayRef() = default;
    ArrayRef(const T *data, size_t length) : Data(data), Length(length) {}
    ArrayRef(const T *first, const T *last) : Data(first), Length(last - first) {}
    template <unsigned N>
    ArrayRef(const SmallVector<T, N> &of) : Data(of.data()), Length(of.size())
    {
    }

    const T *begin() const { return Data; }
    const T *end() const { return Data + Length; }
    const T *data() const { return Data; }
    size_t size() const { return Length; }
    bool empty() const { return Length == 0; }
    const T &operator[](size_t at) const { return Data[at]; }
    const T &front() const { return Data[0]; }
    const T &back() const { return Data[Length - 1]; }
    bool equals(ArrayRef other) const { return Length == other.Length && std::equal(begin(), end(), other.begin()); }

  private:
    const T *Data = nullptr;
    size_t Length = 0;
};

template <typename T>
class MutableArrayRef : public ArrayRef<T> {
  public:
    using value_type = T;
    using reference = T &;
    using const_reference = const T &;
    using iterator = T *;
    using const_iterator = const T *;

    MutableArrayRef() = default;
    MutableArrayRef(T *data, size_t length) : ArrayRef<T>(data, length) {}
    template <unsigned N>
    MutableArrayRef(SmallVector<T, N> &of) : ArrayRef<T>(of)
    {
    }

    T *data() const { return const_cast<T *>(ArrayRef<T>::data()); }
    T *begin() const { return data(); }
    T *end() const { return data() + this->size(); }
    T &operator[](size_t at) const { return data()[at]; }
};

template <typename T>
bool operator==(ArrayRef<T> one, ArrayRef<T> other)
{
    return one.equals(other);
}

template <typename T>
bool operator!=(ArrayRef<T> one, ArrayRef<T> other)
{
    return !one.equals(other);
}

} // namespace llvm
