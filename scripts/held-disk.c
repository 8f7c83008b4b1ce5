/* held-disk BYTES MICROSECONDS DIRECTORY: a file DIRECTORY/disk in memory, by FUSE, whose reads and writes take so long
 * each, one after the other, whatever their size; flushes take no time. */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static const long SECOND = 1000000000;
/* What comes so soon after the last one's end was as good as waiting: so the rate is held on a busy machine, too. */
static const long SLACK = 1000000;

static char *bytes;
static off_t size;
static long hold_ns;
static struct timespec until;

static void hold(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - until.tv_sec) * SECOND + now.tv_nsec - until.tv_nsec > SLACK) until = now;
    until.tv_nsec += hold_ns;
    until.tv_sec += until.tv_nsec / SECOND;
    until.tv_nsec %= SECOND;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static int get_attributes(const char *path, struct stat *found, struct fuse_file_info *file) {
    memset(found, 0, sizeof *found);
    found->st_nlink = 1;
    found->st_mode = strcmp(path, "/") ? S_IFREG | 0666 : S_IFDIR | 0755;
    found->st_size = size;
    return strcmp(path, "/") && strcmp(path, "/disk") ? -ENOENT : 0;
}

static int open_disk(const char *path, struct fuse_file_info *file) {
    file->direct_io = 1;
    return 0;
}

static int read_disk(const char *path, char *into, size_t length, off_t at, struct fuse_file_info *file) {
    hold();
    if (at >= size) return 0;
    if ((off_t)length > size - at) length = size - at;
    memcpy(into, bytes + at, length);
    return length;
}

static int write_disk(const char *path, const char *from, size_t length, off_t at, struct fuse_file_info *file) {
    hold();
    if (at > size || (off_t)length > size - at) return -ENOSPC;
    memcpy(bytes + at, from, length);
    return length;
}

static int flush_disk(const char *path, int data_only, struct fuse_file_info *file) {
    return 0;
}

static int truncate_disk(const char *path, off_t to, struct fuse_file_info *file) {
    return to == size ? 0 : -EINVAL;
}

static void *begin(struct fuse_conn_info *connection, struct fuse_config *config) {
    connection->max_write = 1 << 20;
    /* All that waits does so here in its turn: what the kernel would hold back would be overtaken by flushes. */
    connection->max_background = 1024;
    connection->congestion_threshold = 1024;
    connection->want |= connection->capable & FUSE_CAP_ASYNC_DIO;
    return NULL;
}

int main(int count, char **words) {
    static const struct fuse_operations operations = {
        .getattr = get_attributes,
        .open = open_disk,
        .read = read_disk,
        .write = write_disk,
        .fsync = flush_disk,
        .truncate = truncate_disk,
        .init = begin,
    };
    if (count != 4) return 2;
    size = atoll(words[1]);
    hold_ns = atol(words[2]) * 1000;
    /* Every page at once: on a virtual machine a page that nobody has touched before can take 50 us. */
    bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (bytes == MAP_FAILED) return 1;
    char *mount[] = {words[0], "-f", "-s", "-o", "allow_other", words[3], NULL};
    return fuse_main(6, mount, &operations, NULL);
}
