# Run by nbdsh with SOCKET set: each command, each flag, and requests that libnbd itself
# would refuse if it were strict.
import errno
import re


def connect(export="md0", context=True, structured=True):
    c = nbd.NBD()
    c.set_export_name(export)
    c.set_request_structured_replies(structured)
    if context:
        c.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    c.connect_unix(SOCKET)
    return c


def fails(expected, action, said="command failed"):
    # The text tells a refusal by the server from one by libnbd.
    try:
        action()
    except nbd.Error as error:
        assert error.errnum == expected and re.search(said, error.string), (error.string, expected)
    else:
        raise AssertionError("succeeded")


def extents(c, length, offset, flags=0):
    found = []
    c.block_status(length, offset, lambda context, at, entries, err: found.extend(entries), flags)
    return found


SIZE = 64 << 20
c = connect()
assert c.get_protocol() == "newstyle-fixed"
assert c.get_structured_replies_negotiated()
assert c.get_size() == SIZE
assert c.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
assert c.get_block_size(nbd.SIZE_MINIMUM) == 512
assert c.get_block_size(nbd.SIZE_MAXIMUM) == 32 << 20
assert c.can_df() and c.can_fua() and c.can_multi_conn() and c.can_cache()

# Data there and back, in all the ways.
data = bytes(i * 7 % 251 for i in range(70000 // 512 * 512))
c.pwrite(data, 512, nbd.CMD_FLAG_FUA)
assert c.pread(len(data), 512) == data
for flags in (0, nbd.CMD_FLAG_DF):
    chunks = []
    note = lambda buf, at, status, err: chunks.append((bytes(buf), at, status))
    c.pread_structured(4096, 512, note, flags)
    assert chunks == [(data[:4096], 512, nbd.READ_DATA)], chunks
c.flush()
c.cache(65536, 0)

# Holes.
c.pwrite(b"x" * 16384, 1 << 20)
assert extents(c, 16384, 1 << 20) == [16384, 0]
c.trim(4096, 1 << 20, nbd.CMD_FLAG_FUA)
assert extents(c, 16384, 1 << 20) == [4096, 3, 12288, 0]
assert extents(c, 16384, 1 << 20, nbd.CMD_FLAG_REQ_ONE) == [4096, 3]
assert extents(c, 2048, (1 << 20) + 512, nbd.CMD_FLAG_REQ_ONE) == [2048, 3]
c.zero(4096, (1 << 20) + 4096, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
c.zero(4096, (1 << 20) + 8192)
assert extents(c, 16384, 1 << 20) == [4096, 3, 4096, 0, 4096, 3, 4096, 0]
assert c.pread(16384, 1 << 20) == bytes(12288) + b"x" * 4096
fails(errno.ENOTSUP, lambda: c.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO))

# Many at once, longer than the receive buffer and shorter, out of one socket.
bufs = []
for i in range(400):
    size = 512 * (1 + i * 37 % 300)
    buf = nbd.Buffer.from_bytearray(bytearray([i % 256]) * size)
    bufs.append((buf, (4 << 20) + i * 153600, size))
cookies = [c.aio_pwrite(buf, at % (SIZE - size) // 512 * 512) for buf, at, size in bufs[:200]]
while c.aio_in_flight():
    c.poll(-1)
for cookie in cookies:
    assert c.aio_command_completed(cookie)
reads = []
for buf, at, size in bufs[:200]:
    into = nbd.Buffer(size)
    reads.append((c.aio_pread(into, at % (SIZE - size) // 512 * 512), into, buf))
while c.aio_in_flight():
    c.poll(-1)
for cookie, into, buf in reads:
    assert c.aio_command_completed(cookie)
    assert into.to_bytearray() == buf.to_bytearray()

# The largest payload, and what is beyond it.
big = bytes(range(256)) * (32 << 12)
c.pwrite(big, 0)
assert c.pread(32 << 20, 0) == big
c.set_strict_mode(0)
fails(errno.EOVERFLOW, lambda: c.pread((32 << 20) + 512, 0))

# What a strict client would not say.
fails(errno.EINVAL, lambda: c.pread(512, 1))
fails(errno.EINVAL, lambda: c.pread(511, 0))
fails(errno.EINVAL, lambda: c.pwrite(b"x" * 100, 0))
fails(errno.EINVAL, lambda: c.pread(1024, SIZE - 512))
fails(errno.ENOSPC, lambda: c.pwrite(b"x" * 1024, SIZE - 512))
fails(errno.ENOSPC, lambda: c.zero(1024, SIZE - 512))
fails(errno.EINVAL, lambda: c.trim(1024, SIZE - 512))
fails(errno.EINVAL, lambda: c.cache(1024, SIZE))
fails(errno.EINVAL, lambda: extents(c, 1024, SIZE))
fails(errno.EINVAL, lambda: c.pwrite(b"x" * 512, 0, 0x80))
fails(errno.EINVAL, lambda: c.pread(512, 0, nbd.CMD_FLAG_NO_HOLE))
c.pwrite(b"", 0)
c.trim(0, 0)
assert c.pread(512, 0) == big[:512], "the connection still works"
c.shutdown()

# Without structured replies.
c = connect(context=False, structured=False)
assert not c.get_structured_replies_negotiated() and not c.can_df()
assert c.pread(65536, 0) == big[:65536]
c.set_strict_mode(0)
fails(errno.EINVAL, lambda: c.pread((32 << 20) + 512, 0))
fails(errno.EINVAL, lambda: c.pread(512, 0, nbd.CMD_FLAG_DF))
assert c.pread(512, 512) == big[512:1024]
c.shutdown()

# Read-only.
c = connect("ro")
assert c.is_read_only() and c.is_rotational()
c.set_strict_mode(0)
fails(errno.EPERM, lambda: c.pwrite(b"x" * 100000, 0))
fails(errno.EPERM, lambda: c.trim(4096, 0))
fails(errno.EPERM, lambda: c.zero(4096, 0))
c.flush()
assert c.pread(512, 0) == bytes(512)
c.shutdown()

# 4 KiB blocks and a small maximum: refused, but not cut off.
c = connect("big-blocks")
assert c.get_block_size(nbd.SIZE_MINIMUM) == 4096
assert c.get_block_size(nbd.SIZE_PREFERRED) == 65536
c.set_strict_mode(0)
fails(errno.EINVAL, lambda: c.pwrite(b"x" * 512, 512))
fails(errno.EINVAL, lambda: c.pwrite(bytes(2 << 20), 0))
fails(errno.EOVERFLOW, lambda: c.pread(2 << 20, 0))
c.pwrite(b"y" * 4096, 4096)
c.shutdown()

# Haggling step by step.
c = nbd.NBD()
c.set_opt_mode(True)
c.connect_unix(SOCKET)
names = []
c.opt_list(lambda name, description: names.append((name, description)))
assert names == [("md0", ""), ("ro", "an array with no pen"), ("big-blocks", "")], names
contexts = []
c.opt_list_meta_context(lambda name: contexts.append(name))
assert contexts == ["base:allocation"]
c.set_export_name("absent")
# As libnbd 1.14 and 1.22 have it.
fails(errno.ENOENT, c.opt_info, "server replied with error|the server has no export")
c.set_export_name("big-blocks")
c.opt_info()
assert c.get_size() == 4 << 20
c.set_export_name("")
c.set_full_info(True)
c.opt_info()
assert c.get_canonical_export_name() == "md0"
c.opt_go()
assert c.pread(512, 0) == big[:512]
c.shutdown()

c = nbd.NBD()
c.set_opt_mode(True)
c.connect_unix(SOCKET)
c.opt_abort()
print("all sound")
