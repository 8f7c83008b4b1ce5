/* The least that a FUSE server can be: one file in RAM, libfuse's low-level interface. */
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint8_t *ram;
static size_t ram_size;


static void init(void *user, struct fuse_conn_info *conn)
{
    (void)user;
    conn->max_write = 1 << 20;
    conn->max_background = 128;
    conn->want |= conn->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
    conn->want &= ~(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

static void fill(struct stat *st)
{
    memset(st, 0, sizeof *st);
    st->st_ino = 1;
    st->st_mode = S_IFREG | 0600;
    st->st_nlink = 1;
    st->st_uid = getuid();
    st->st_gid = getgid();
    st->st_size = (off_t)ram_size;
    st->st_blocks = (blkcnt_t)(ram_size / 512);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat st;
    (void)ino;
    (void)fi;
    fill(&st);
    fuse_reply_attr(req, &st, 1.0);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
                       struct fuse_file_info *fi)
{
    (void)attr;
    (void)set;
    op_getattr(req, ino, fi);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fi->direct_io = 1;
    fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    if ((size_t)off >= ram_size)
        size = 0;
    else if (size > ram_size - (size_t)off)
        size = ram_size - (size_t)off;
    fuse_reply_buf(req, (char *)ram + off, size);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
                     struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    if ((size_t)off >= ram_size || size > ram_size - (size_t)off) {
        fuse_reply_err(req, ENOSPC);
        return;
    }
    memcpy(ram + off, data, size);
    fuse_reply_write(req, size);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    (void)fi;
    fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops ops = {
    .init = init,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .open = op_open,
    .read = op_read,
    .write = op_write,
    .fsync = op_fsync,
};

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s FILE BYTES THREADS\n", argv[0]);
        return 2;
    }
    ram_size = strtoull(argv[2], NULL, 10);
    unsigned threads = (unsigned)atoi(argv[3]);
    ram = mmap(NULL, ram_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
               -1, 0);
    if (ram == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    char *names[] = {argv[0], NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, names);
    struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, NULL);
    if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, argv[1]))
        return 1;
    int result;
    if (threads <= 1) {
        result = fuse_session_loop(session);
    } else {
        struct fuse_loop_config *config = fuse_loop_cfg_create();
        fuse_loop_cfg_set_clone_fd(config, 1);
        fuse_loop_cfg_set_max_threads(config, threads);
        fuse_loop_cfg_set_idle_threads(config, threads);
        result = fuse_session_loop_mt(session, config);
        fuse_loop_cfg_destroy(config);
    }
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return result != 0;
}
