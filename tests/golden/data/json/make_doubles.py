"""Writes doubles.txt: the bits of a double in hexadecimal and Python's repr, one a line."""
import random
import struct

rng = random.Random(20261129)
values = [2.0**k for k in range(-1074, 1024, 3)] + [float("1e%d" % k) for k in range(-323, 309, 2)]
values += [1e15, 1e16, 9999999999999998.0, 1e17, 1e-4, 1e-5, 9.999e-5, 1e-7, 0.1, 1.1, 100.0, 5e-324, 1.7976931348623157e308]
values += [2.2250738585072014e-308, 2.225073858507201e-308, 9007199254740993.0, 123456789012345680.0, 0.30000000000000004]
while len(values) < 3000:
    v = struct.unpack("<d", struct.pack("<Q", rng.getrandbits(63)))[0]
    if v == v and v != float("inf"):
        values.append(v)
while len(values) < 4500:
    values.append(round(rng.uniform(-1, 1) * 10 ** rng.randint(-3, 6), rng.randint(0, 9)))
with open("doubles.txt", "w") as f:
    for v in values:
        f.write("%016x %r\n" % (struct.unpack("<Q", struct.pack("<d", v))[0], v))
