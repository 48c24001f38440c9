/* fnv1a64 < FILE: prints the hash that an RPC worker names the file of a cached tensor by, FNV-1a with 64 bits. Each byte waits for the
   one before it, so this runs at the processor's pace, about 1 GB/s, where an interpreter needs a hundred times as long. */
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static unsigned char block[1 << 20];

int main(void) {
    uint64_t hash = 0xcbf29ce484222325ULL;
    ssize_t length;

    while ((length = read(0, block, sizeof block)) > 0)
        for (ssize_t i = 0; i < length; i++)
            hash = (hash ^ block[i]) * 0x100000001b3ULL;
    if (length < 0) {
        perror("fnv1a64");
        return 1;
    }
    printf("%016llx\n", (unsigned long long) hash);
    return 0;
}
