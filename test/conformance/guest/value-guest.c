/*
 * A guest for driver tests: init of a machine that keeps one value in memory and one on disk.
 *
 * Lines on the agent's port: "set memory TEXT", "set disk TEXT", "get memory", "get disk", "fill MIB" (writes
 * that much memory), "off". Everything but "get" answers "ok". Loads the modules of the image's own initramfs.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char memory_value[8192];

static void load_modules(void)
{
    FILE *order = fopen("/modules/order", "r");
    char name[200], file[256];
    while (order && fscanf(order, "%199s", name) == 1) {
        snprintf(file, sizeof file, "/modules/%s", name);
        int fd = open(file, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && syscall(SYS_finit_module, fd, "", 0) != 0) perror(file);
        if (fd >= 0) close(fd);
    }
}

static int open_port(void)
{
    for (;;) {
        DIR *dev = opendir("/dev");
        for (struct dirent *entry; dev && (entry = readdir(dev));) {
            char file[300];
            snprintf(file, sizeof file, "/dev/%s", entry->d_name);
            int fd = strncmp(entry->d_name, "vport", 5) ? -1 : open(file, O_RDWR);
            if (fd >= 0) return fd;
        }
        if (dev) closedir(dev);
        usleep(5000);
    }
}

static void set_disk(const char *text)
{
    int fd = open("/root/value", O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (write(fd, text, strlen(text)) < 0 || fsync(fd) != 0) perror("/root/value");
    close(fd);
}

/* From the disk itself: what the kernel has cached of it is dropped first. */
static void get_disk(char *text, size_t size)
{
    int drop = open("/proc/sys/vm/drop_caches", O_WRONLY);
    if (write(drop, "3", 1) != 1) perror("drop_caches");
    close(drop);
    int fd = open("/root/value", O_RDONLY);
    ssize_t length = fd < 0 ? 0 : read(fd, text, size - 1);
    text[length > 0 ? length : 0] = 0;
    if (fd >= 0) close(fd);
}

static void fill(size_t mib)
{
    char *block = malloc(mib << 20);
    for (size_t page = 0; block && page < mib << 8; page++) memset(block + page * 4096, (int)(page % 255 + 1), 64);
}

static const char *answer(char *line, char *text, size_t size)
{
    if (!strncmp(line, "set memory ", 11)) snprintf(memory_value, sizeof memory_value, "%s", line + 11);
    else if (!strncmp(line, "set disk ", 9)) set_disk(line + 9);
    else if (!strcmp(line, "get memory")) return memory_value;
    else if (!strcmp(line, "get disk")) return get_disk(text, size), text;
    else if (!strncmp(line, "fill ", 5)) fill((size_t)atoi(line + 5));
    else if (!strcmp(line, "off")) { puts("asked to end"); sync(); reboot(RB_POWER_OFF); }
    else return "unknown";
    return "ok";
}

int main(void)
{
    mkdir("/dev", 0755), mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir("/root", 0755);
    mount("dev", "/dev", "devtmpfs", 0, 0), mount("proc", "/proc", "proc", 0, 0), mount("sys", "/sys", "sysfs", 0, 0);
    load_modules();
    while (access("/dev/vda", F_OK)) usleep(5000);
    if (mount("/dev/vda", "/root", "ext4", 0, 0)) perror("/dev/vda");
    int port = open_port();
    char input[8192], text[8192];
    size_t length = 0;
    for (;;) {
        struct pollfd ready = { .fd = port, .events = POLLIN };
        poll(&ready, 1, -1);
        ssize_t count = ready.revents & POLLIN ? read(port, input + length, sizeof input - 1 - length) : 0;
        if (count <= 0) { length = 0; usleep(10000); continue; }
        input[length += (size_t)count] = 0;
        for (char *end; (end = memchr(input, '\n', length));) {
            *end = 0;
            const char *reply = answer(input, text, sizeof text);
            if (write(port, reply, strlen(reply)) < 0 || write(port, "\n", 1) < 0) perror("port");
            length -= (size_t)(end + 1 - input);
            memmove(input, end + 1, length);
        }
    }
}
