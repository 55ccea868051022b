# XXH3-64 and XXH3-128 with seed 0 and the default secret, after the published specification
# (xxHash, doc/xxhash_spec.md). Knows bytes only. Names of steps are those of the specification.
import struct

M32 = (1 << 32) - 1
M64 = (1 << 64) - 1
PRIME32 = [0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D]
PRIME64 = [0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
           0x27D4EB2F165667C5]
PRIME_MX1 = 0x165667919E3779F9
PRIME_MX2 = 0x9FB21C651E98DF25
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
BLOCK_WORDS = 128  # 16 stripes of 8 lanes


def words(data, at, count):
    return struct.unpack_from(f"<{count}Q", data, at)


SECRET_WORDS = words(SECRET, 0, 24)


def rotate(value, by):
    return (value << by | value >> 64 - by) & M64


def swap(value, count):
    return int.from_bytes(value.to_bytes(count, "little"), "big")


def fold(product):
    return (product & M64) ^ (product >> 64)


def avalanche(x):
    x ^= x >> 37
    x = x * PRIME_MX1 & M64
    return x ^ x >> 32


def avalanche_xxh64(x):
    x ^= x >> 33
    x = x * PRIME64[1] & M64
    x ^= x >> 29
    x = x * PRIME64[2] & M64
    return x ^ x >> 32


def empty_64():
    a, b = words(SECRET, 56, 2)
    return avalanche_xxh64(a ^ b)


def empty_128():
    a, b, c, d = words(SECRET, 64, 4)
    return avalanche_xxh64(a ^ b), avalanche_xxh64(c ^ d)


def up_to_3(data):
    """Both halves; XXH3-64 is the low one."""
    size = len(data)
    combined = data[-1] | size << 8 | data[0] << 16 | data[size >> 1] << 24
    a, b, c, d = struct.unpack_from("<4I", SECRET)
    swapped = swap(combined, 4)
    turned = (swapped << 13 | swapped >> 19) & M32
    return avalanche_xxh64(a ^ b ^ combined), avalanche_xxh64(c ^ d ^ turned)


def up_to_8_64(data):
    first, last = struct.unpack("<II", data[:4] + data[-4:])
    a, b = words(SECRET, 8, 2)
    value = a ^ b ^ (last | first << 32)
    value ^= rotate(value, 49) ^ rotate(value, 24)
    value = value * PRIME_MX2 & M64
    value ^= (value >> 35) + len(data)
    value = value * PRIME_MX2 & M64
    return value ^ value >> 28


def up_to_8_128(data):
    first, last = struct.unpack("<II", data[:4] + data[-4:])
    a, b = words(SECRET, 16, 2)
    product = (a ^ b ^ (first | last << 32)) * (PRIME64[0] + (len(data) << 2))
    low, high = product & M64, product >> 64
    high = (high + (low << 1)) & M64
    low ^= high >> 3
    low ^= low >> 35
    low = low * PRIME_MX2 & M64
    return low ^ low >> 28, avalanche(high)


def up_to_16_64(data):
    first, last = struct.unpack("<QQ", data[:8] + data[-8:])
    a, b, c, d = words(SECRET, 24, 4)
    low, high = a ^ b ^ first, c ^ d ^ last
    return avalanche((len(data) + swap(low, 8) + high + fold(low * high)) & M64)


def up_to_16_128(data):
    first, last = struct.unpack("<QQ", data[:8] + data[-8:])
    a, b, c, d = words(SECRET, 32, 4)
    second = c ^ d ^ last
    product = (a ^ b ^ first ^ last) * PRIME64[0]
    low = (product + (len(data) - 1 << 54)) & M64
    high = ((product >> 64) + second + (second & M32) * (PRIME32[1] - 1)) & M64
    product = (low ^ swap(high, 8)) * PRIME64[1]
    return avalanche(product & M64), avalanche((product >> 64) + high * PRIME64[1] & M64)


def mix_step(data, at, secret_at):
    (a, b), (c, d) = words(data, at, 2), words(SECRET, secret_at, 2)
    return fold((a ^ c) * (b ^ d))


def mix_two(acc, data, one, two, secret_at):
    acc[0] = acc[0] + mix_step(data, one, secret_at) & M64
    acc[1] = acc[1] + mix_step(data, two, secret_at + 16) & M64
    acc[0] ^= sum(words(data, two, 2)) & M64
    acc[1] ^= sum(words(data, one, 2)) & M64


def up_to_240_64(data):
    size = len(data)
    acc = size * PRIME64[0]
    if size <= 128:
        for i in range((size - 1) // 32 + 1):
            acc += mix_step(data, i * 16, i * 32) + mix_step(data, size - i * 16 - 16, i * 32 + 16)
        return avalanche(acc & M64)
    acc = avalanche(acc + sum(mix_step(data, i * 16, i * 16) for i in range(8)) & M64)
    acc += sum(mix_step(data, i * 16, (i - 8) * 16 + 3) for i in range(8, size // 16))
    return avalanche(acc + mix_step(data, size - 16, 119) & M64)


def up_to_240_128(data):
    size = len(data)
    acc = [size * PRIME64[0] & M64, 0]
    if size <= 128:
        for i in reversed(range((size - 1) // 32 + 1)):
            mix_two(acc, data, i * 16, size - i * 16 - 16, i * 32)
    else:
        for i in range(4):
            mix_two(acc, data, i * 32, i * 32 + 16, i * 32)
        acc = [avalanche(each) for each in acc]
        for i in range(4, size // 32):
            mix_two(acc, data, i * 32, i * 32 + 16, (i - 4) * 32 + 3)
        mix_two(acc, data, size - 16, size - 32, 103)
    high = acc[0] * PRIME64[0] + acc[1] * PRIME64[3] + size * PRIME64[1]
    return avalanche(sum(acc) & M64), -avalanche(high & M64) & M64


def accumulate(acc, stripes, secret):
    """All stripes of a block at once: within a block they are only added up."""
    count = len(stripes) // 8
    for lane in range(8):
        column = stripes[lane::8]
        acc[lane ^ 1] += sum(column)
        keyed = [word ^ key for word, key in zip(column, secret[lane:lane + count])]
        acc[lane] += sum((value & M32) * (value >> 32) for value in keyed)


def accumulators(data):
    acc = [PRIME32[2], *PRIME64[:4], PRIME32[1], PRIME64[4], PRIME32[0]]
    content = words(data, 0, (len(data) - 1) // 64 * 8)
    last_block = (len(data) - 1) // 1024 * BLOCK_WORDS
    for at in range(0, last_block, BLOCK_WORDS):
        accumulate(acc, content[at:at + BLOCK_WORDS], SECRET_WORDS)
        for i, key in enumerate(SECRET_WORDS[16:]):
            value = acc[i] & M64
            acc[i] = (value ^ value >> 47 ^ key) * PRIME32[0] & M64
    accumulate(acc, content[last_block:], SECRET_WORDS)
    accumulate(acc, words(data, len(data) - 64, 8), words(SECRET, 121, 8))
    return [each & M64 for each in acc]


def final_merge(acc, start, secret_at):
    keyed = [a ^ b for a, b in zip(acc, words(SECRET, secret_at, 8))]
    return avalanche(start + sum(fold(keyed[i] * keyed[i + 1]) for i in range(0, 8, 2)) & M64)


def xxh3_64(data):
    if len(data) > 240:
        return final_merge(accumulators(data), len(data) * PRIME64[0], 11)
    if len(data) > 16:
        return up_to_240_64(data)
    if len(data) > 8:
        return up_to_16_64(data)
    if len(data) > 3:
        return up_to_8_64(data)
    return up_to_3(data)[0] if data else empty_64()


def xxh3_128(data):
    """(low, high)"""
    size = len(data)
    if size > 240:
        acc = accumulators(data)
        return (final_merge(acc, size * PRIME64[0], 11),
                final_merge(acc, ~(size * PRIME64[1]) & M64, 117))
    if size > 16:
        return up_to_240_128(data)
    if size > 8:
        return up_to_16_128(data)
    if size > 3:
        return up_to_8_128(data)
    return up_to_3(data) if data else empty_128()
