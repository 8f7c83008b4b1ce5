# One client of the soak: writes, reads and checks blocks of its own until it is killed. What is known of each block
# outlives it: what was answered, what was sent last, and until when a write that it died of may still arrive.
import mmap, os, random, struct, sys, time

kind, where, nth, blocks, size, state, check = sys.argv[1:8]
nth, blocks, size, check = int(nth), int(blocks), int(size), check == "check"
RECORD = struct.Struct("<QQd")
LATE_S = 10


class File:
    def __init__(self):
        self.fd = os.open(where, os.O_RDWR)

    def write(self, at, data):
        assert os.pwrite(self.fd, data, at) == len(data)

    def read(self, at, len):
        return os.pread(self.fd, len, at)

    def flush(self):
        os.fsync(self.fd)

    def is_hole(self, at, len):
        return False


class Nbd:
    def __init__(self):
        import nbd
        self.nbd, self.h = nbd, nbd.NBD()
        self.h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
        if size % 512:
            self.h.set_request_block_size(False)
            self.h.set_strict_mode(0)
        self.h.set_uri_allow_local_file(True)
        self.h.connect_uri(where)

    def write(self, at, data):
        self.h.pwrite(data, at, self.nbd.CMD_FLAG_FUA if random.random() < .1 else 0)

    def read(self, at, len):
        return self.h.pread(len, at)

    def flush(self):
        self.h.flush()

    def is_hole(self, at, len):
        found = []
        self.h.block_status(len, at, lambda context, at, entries, error: found.extend(entries))
        return found[1] & 2 != 0


disk = File() if kind == "file" else Nbd()
start = nth * blocks * 4096
with open(state, "r+b") as file:
    known = mmap.mmap(file.fileno(), blocks * RECORD.size)


def contents(block, seq):
    if seq == 0:
        return bytes(size)
    word = struct.pack("<IIQ", nth, block, seq)
    return (word * (size // 16 + 1))[:size]


def look(block):
    """Reads a block, which must hold what was answered, or what the client before died of."""
    acked, sent, _ = RECORD.unpack_from(known, block * RECORD.size)
    found = disk.read(start + block * size, size)
    for seq in {acked, sent}:
        if found == contents(block, seq):
            return seq
    raise AssertionError(f"client {nth}, block {block}: {found[:16].hex()} is neither {acked} nor {sent}")


def note(block, acked, sent, until=0.0):
    # Not by pack_into, which writes zeros first: a client that is killed then would be known to have written nothing.
    at = block * RECORD.size
    known[at : at + RECORD.size] = RECORD.pack(acked, sent, until)


for block in range(blocks):
    acked, sent, until = RECORD.unpack_from(known, block * RECORD.size)
    seq = look(block)
    if acked != sent and not until:
        note(block, acked, sent, time.time() + LATE_S)
if check:
    sys.exit(0)
while True:
    block = random.randrange(blocks)
    acked, sent, until = RECORD.unpack_from(known, block * RECORD.size)
    if until > time.time():
        continue
    at, seq = start + block * size, look(block)
    if seq != 0 and random.random() < .1:
        assert not disk.is_hole(at, size), f"client {nth}, block {block}: written, and told as a hole"
    if random.random() < .7:
        after = max(acked, sent) + 1
        note(block, seq, after)
        disk.write(at, contents(block, after))
        note(block, after, after)
    elif random.random() < .1:
        disk.flush()
