/*
 * What a tiny guest does: print "TICK <n> <uptime>" on the console five times a second, and every
 * five seconds "SUM <checksum>" of a file, read anew from the disk.
 *
 * One program, as a shell that starts others for it takes a tenth of an emulated CPU.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FOLDER_NAME "/var"
#define FILE_NAME "/var/file"
#define PART_NAME "/var/file.part"
enum { FILE_SIZE = 256 << 10, PAUSE_US = 200000, TICKS_OF_A_SUM = 25 };

static uint8_t data[FILE_SIZE] __attribute__((aligned(4096)));

static int is_whole(int file, ssize_t (*move)(int, void *, size_t))
{
	size_t done = 0;

	while (done < FILE_SIZE) {
		ssize_t now = move(file, data + done, FILE_SIZE - done);

		if (now <= 0)
			return 0;
		done += now;
	}
	return 1;
}

static ssize_t written(int file, void *from, size_t size)
{
	return write(file, from, size);
}

/* Each guest has a file of its own; /dev/urandom would take a second to be ready for it. */
static int make(void)
{
	int to = open(PART_NAME, O_WRONLY | O_CREAT | O_TRUNC, 0644), folder, good;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	srandom(now.tv_nsec ^ now.tv_sec);
	for (size_t at = 0; at < FILE_SIZE; at++)
		data[at] = random() >> 8;
	good = is_whole(to, written) && fsync(to) == 0;
	close(to);
	if (!good || rename(PART_NAME, FILE_NAME) != 0)
		return 0;
	/* The name, too, must survive a loss of power: a sum that was said holds from then on. */
	folder = open(FOLDER_NAME, O_RDONLY | O_DIRECTORY);
	good = folder >= 0 && fsync(folder) == 0;
	close(folder);
	return good;
}

static void say_sum(int console)
{
	/* Past the guest's own cache. */
	int file = open(FILE_NAME, O_RDONLY | O_DIRECT);
	uint64_t one = 14695981039346656037u, other = 88172645463325252u;

	if (file < 0 || !is_whole(file, read)) {
		dprintf(console, "SUM of %s: it cannot be read\n", FILE_NAME);
	} else {
		for (size_t at = 0; at < FILE_SIZE; at += sizeof(uint64_t)) {
			uint64_t word = *(uint64_t *)(data + at);

			one = (one ^ word) * 1099511628211u;
			other = (other + word) * 6364136223846793005u + 1;
		}
		dprintf(console, "SUM %016" PRIx64 "%016" PRIx64 "\n", one, other);
	}
	close(file);
}

int main(void)
{
	int console = open("/dev/console", O_WRONLY);

	if (access(FILE_NAME, F_OK) != 0 && !make())
		return 1;
	for (unsigned n = 0;; n++) {
		double up = 0;
		FILE *uptime = fopen("/proc/uptime", "r");

		if (uptime == NULL || fscanf(uptime, "%lf", &up) != 1)
			return 1;
		fclose(uptime);
		if (n % TICKS_OF_A_SUM == 0)
			say_sum(console);
		dprintf(console, "TICK %u %.2f\n", n + 1, up);
		usleep(PAUSE_US);
	}
}
