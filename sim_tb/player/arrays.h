// Files of named arrays, as arrays.py writes and reads them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

struct ArrayEntry {
    char name[24];
    uint64_t item, offset, count;  // bytes of an item, where they start, how many there are
};
static const uint64_t ARRAYS_MAGIC = 0x3153594152524144;  // DARRAYS1
static const uint64_t ARRAYS_ALIGN = 64;

[[noreturn]] inline void die(const std::string& why) {
    fprintf(stderr, "%s\n", why.c_str());
    exit(2);
}

class ArraysIn {
public:
    explicit ArraysIn(const char* path) {
        int file = open(path, O_RDONLY);
        struct stat found;
        if (file < 0 || fstat(file, &found)) die(std::string(path) + ": cannot be read");
        void* base = mmap(nullptr, found.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (base == MAP_FAILED) die(std::string(path) + ": cannot be mapped");
        base_ = static_cast<const char*>(base);
        const uint64_t* head = reinterpret_cast<const uint64_t*>(base_);
        if (head[0] != ARRAYS_MAGIC) die(std::string(path) + ": no file of arrays");
        entries_ = reinterpret_cast<const ArrayEntry*>(head + 2);
        number_ = head[1];
    }

    template <class T>
    const T* get(const char* name, size_t* count = nullptr) const {
        for (uint64_t k = 0; k < number_; ++k) {
            if (strncmp(entries_[k].name, name, sizeof entries_[k].name)) continue;
            if (entries_[k].item != sizeof(T)) die(std::string(name) + ": items of another size");
            if (count) *count = entries_[k].count;
            return reinterpret_cast<const T*>(base_ + entries_[k].offset);
        }
        die(std::string(name) + ": no such array");
    }

private:
    const char* base_;
    const ArrayEntry* entries_;
    uint64_t number_;
};

class ArraysOut {
public:
    template <class T>
    void add(const char* name, const std::vector<T>& values) {
        ArrayEntry entry{};
        strncpy(entry.name, name, sizeof entry.name - 1);
        entry.item = sizeof(T);
        entry.count = values.size();
        entries_.push_back(entry);
        data_.push_back(reinterpret_cast<const char*>(values.data()));
    }

    void write(const char* path) {
        FILE* file = fopen(path, "wb");
        if (!file) die(std::string(path) + ": cannot be written");
        uint64_t head[2] = {ARRAYS_MAGIC, entries_.size()};
        uint64_t place = sizeof head + sizeof(ArrayEntry) * entries_.size();
        for (ArrayEntry& entry : entries_) {
            place = (place + ARRAYS_ALIGN - 1) / ARRAYS_ALIGN * ARRAYS_ALIGN;
            entry.offset = place;
            place += entry.item * entry.count;
        }
        fwrite(head, sizeof head, 1, file);
        fwrite(entries_.data(), sizeof(ArrayEntry), entries_.size(), file);
        for (size_t k = 0; k < entries_.size(); ++k) {
            fseek(file, entries_[k].offset, SEEK_SET);
            if (entries_[k].count) fwrite(data_[k], entries_[k].item, entries_[k].count, file);
        }
        if (fclose(file)) die(std::string(path) + ": cannot be written");
    }

private:
    std::vector<ArrayEntry> entries_;
    std::vector<const char*> data_;
};
