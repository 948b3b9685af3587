/* Boot: see boot.h. */
#define _GNU_SOURCE
#include "boot.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <net/if.h>
#include <net/route.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "identity.h"
#include "system.h"

enum { DEVICE_LIMIT_MS = 10000, DEVICE_RETRY_NS = 2000000 };

/* Of the kernel's fs/ext4/ext4.h. */
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)

static const char PORT_NAME[] = "org.kosa8.agent";
static const char NEW_ROOT[] = "/newroot";
/* No kernel thread that reads every block bitmap and looks for inode tables to clear: each clone would go on with it. */
static const char ROOT_OPTIONS[] = "noinit_itable,no_prefetch_block_bitmaps";

_Noreturn void end_machine(const char *what) {
  dprintf(STDERR_FILENO, "kosa8 agent: %s: %s\n", what, strerror(errno));
  sync();
  reboot(RB_POWER_OFF);
  reboot(RB_AUTOBOOT);
  for (;;) pause();
}

static void mount_or_end(const char *type, const char *target, unsigned long flags, const char *options) {
  mkdir(target, 0755);
  if (mount(type, target, type, flags, options) != 0) end_machine(target);
}

static void open_console(void) {
  int console = open("/dev/console", O_RDWR | O_NOCTTY);
  if (console < 0) console = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++) {
    if (fd != console) dup2(console, fd);
  }
  if (console > 2) close(console);
}

/* Device drivers announce themselves within milliseconds; a short sleep is cheaper than a netlink socket. */
static bool wait_for(bool (*is_there)(void)) {
  struct timespec pause = {.tv_nsec = DEVICE_RETRY_NS};
  for (int64_t deadline = monotonic_ms() + DEVICE_LIMIT_MS; !is_there();) {
    if (monotonic_ms() > deadline) {
      errno = ETIMEDOUT;
      return false;
    }
    nanosleep(&pause, NULL);
  }
  return true;
}

static void load_module(const char *name) {
  char path[300];
  snprintf(path, sizeof path, "/modules/%s", name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) end_machine(path);
  /* ENODEV: a driver for hardware this machine has not, which is no reason to stop. */
  if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST && errno != ENODEV) end_machine(path);
  close(fd);
  unlink(path);
}

static void load_modules(void) {
  FILE *order = fopen("/modules/order", "re");
  if (order == NULL) end_machine("/modules/order");
  for (char line[256]; fgets(line, sizeof line, order) != NULL;) {
    line[strcspn(line, "\r\n")] = 0;
    if (line[0] != 0) load_module(line);
  }
  fclose(order);
}

static bool is_disk_there(void) {
  return access("/dev/vda", R_OK) == 0;
}

static void carry_mount(const char *from) {
  char target[64];
  snprintf(target, sizeof target, "%s%s", NEW_ROOT, from);
  mkdir(target, 0755);
  if (mount(from, target, NULL, MS_MOVE, NULL) != 0) end_machine(target);
}

/* The host may have made the disk larger than the image's; where it has not, this does nothing. */
static void fill_disk(void) {
  uint64_t bytes = 0;
  struct statfs root_stat;
  int disk = open("/dev/vda", O_RDONLY | O_CLOEXEC), root = open(NEW_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (ioctl(disk, BLKGETSIZE64, &bytes) != 0 || fstatfs(root, &root_stat) != 0) end_machine("size of /dev/vda");
  uint64_t blocks = bytes / (uint64_t)root_stat.f_bsize;
  if (ioctl(root, EXT4_IOC_RESIZE_FS, &blocks) != 0) end_machine("growing of the root file system");
  close(root);
  close(disk);
}

static void enter_root(void) {
  if (!wait_for(is_disk_there)) end_machine("/dev/vda");
  mkdir(NEW_ROOT, 0755);
  if (mount("/dev/vda", NEW_ROOT, "ext4", MS_NOATIME | MS_LAZYTIME, ROOT_OPTIONS) != 0) end_machine("mount of /dev/vda");
  fill_disk();
  carry_mount("/dev");
  carry_mount("/proc");
  carry_mount("/sys");
  /* The initramfs stays below the new root for ever; its files are memory. */
  unlink("/init");
  unlink("/modules/order");
  rmdir("/modules");
  if (chdir(NEW_ROOT) != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0)
    end_machine("change of the root");
}

static void mount_folders(void) {
  mount_or_end("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666");
  mount_or_end("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
  mount_or_end("tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=755");
  mkdir("/run/lock", 01777);
  mkdir("/run/kosa8", 0755);
  mkdir("/tmp", 01777);
  chmod("/tmp", 01777);
  mount_or_end("cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  if (symlink("/proc/self/fd", "/dev/fd") != 0 || symlink("/proc/self/fd/0", "/dev/stdin") != 0 ||
      symlink("/proc/self/fd/1", "/dev/stdout") != 0 || symlink("/proc/self/fd/2", "/dev/stderr") != 0)
    end_machine("/dev/fd");
}

static struct sockaddr ipv4(const char *address) {
  union {
    struct sockaddr any;
    struct sockaddr_in in;
  } result = {.in = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)}};
  return result.any;
}

static bool bring_up(int fd, const char *interface) {
  struct ifreq request = {0};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
  if (ioctl(fd, SIOCGIFFLAGS, &request) != 0) return false;
  request.ifr_flags |= IFF_UP;
  return ioctl(fd, SIOCSIFFLAGS, &request) == 0;
}

/* The addresses of QEMU's user-mode network. */
static bool configure_card(int fd) {
  struct ifreq request = {0};
  strcpy(request.ifr_name, "eth0");
  request.ifr_addr = ipv4("10.0.2.15");
  if (ioctl(fd, SIOCSIFADDR, &request) != 0) return false;
  request.ifr_netmask = ipv4("255.255.255.0");
  if (ioctl(fd, SIOCSIFNETMASK, &request) != 0 || !bring_up(fd, "eth0")) return false;
  struct rtentry route = {
    .rt_dst = ipv4("0.0.0.0"),
    .rt_genmask = ipv4("0.0.0.0"),
    .rt_gateway = ipv4("10.0.2.2"),
    .rt_flags = RTF_UP | RTF_GATEWAY,
  };
  return ioctl(fd, SIOCADDRT, &route) == 0;
}

/* What stands behind `name=` on the kernel's command line; 0 without it. */
static unsigned long read_parameter(const char *name) {
  char line[4096];
  if (!read_file_at(AT_FDCWD, "/proc/cmdline", line, sizeof line)) return 0;
  const char *found = strstr(line, name);
  return found == NULL || found[strlen(name)] != '=' ? 0 : strtoul(found + strlen(name) + 1, NULL, 10);
}

uint32_t boot_processes_max(void) {
  return (uint32_t)read_parameter("kosa8.pids");
}

static bool has_card;

bool machine_has_card(void) {
  return has_card;
}

static void configure_network(void) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || !bring_up(fd, "lo")) end_machine("lo");
  struct ifreq card = {.ifr_name = "eth0"};
  has_card = ioctl(fd, SIOCGIFINDEX, &card) == 0;
  if (has_card && !configure_card(fd)) end_machine("eth0");
  close(fd);
  if (read_parameter("kosa8.dns") == 1 && !replace_file("/etc/resolv.conf", "nameserver 10.0.2.3\n", 0644))
    end_machine("/etc/resolv.conf");
}

static void raise_limits(void) {
  struct rlimit files = {.rlim_cur = 65536, .rlim_max = 1048576};
  setrlimit(RLIMIT_NOFILE, &files);
}

void boot_machine(void) {
  mount_or_end("devtmpfs", "/dev", MS_NOSUID, "mode=755");
  open_console();
  mount_or_end("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  mount_or_end("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  load_modules();
  enter_root();
  mount_folders();
  const char *failed = prepare_identity();
  if (failed != NULL) end_machine(failed);
  configure_network();
  raise_limits();
  if (sethostname("sandbox", strlen("sandbox")) != 0) end_machine("hostname");
}

static int agent_port = -1;

static bool is_port_there(void) {
  DIR *ports = opendir("/sys/class/virtio-ports");
  if (ports == NULL) return false;
  for (struct dirent *entry; agent_port < 0 && (entry = readdir(ports)) != NULL;) {
    char path[300], name[64];
    snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
    if (entry->d_name[0] == '.' || !read_file_at(AT_FDCWD, path, name, sizeof name)) continue;
    name[strcspn(name, "\n")] = 0;
    if (strcmp(name, PORT_NAME) != 0) continue;
    snprintf(path, sizeof path, "/dev/%s", entry->d_name);
    agent_port = open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  }
  closedir(ports);
  return agent_port >= 0;
}

int open_agent_port(void) {
  if (!wait_for(is_port_there)) end_machine(PORT_NAME);
  return agent_port;
}
