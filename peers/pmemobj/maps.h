/* Maps from 64-bit keys to 64-bit values, and one to records, on libpmemobj; called from Rust. */
#ifndef MAPS_H
#define MAPS_H

#include <stddef.h>
#include <stdint.h>

/* A pool with one of each structure and its reader-writer lock. */
struct pool;

/* Creates the pool file. Returns NULL, with a text in pmemobj_errormsg(), if that fails. */
struct pool *peer_create(const char *path, uint64_t bytes, uint64_t buckets);
void peer_close(struct pool *pool);
const char *peer_error(void);

/* Returns 1 if found or changed, 0 if not, -1 if the library failed. */
#define PEER_MAP(NAME) \
    int peer_##NAME##_get(struct pool *pool, uint64_t key, uint64_t *value); \
    int peer_##NAME##_insert(struct pool *pool, uint64_t key, uint64_t value); \
    int peer_##NAME##_remove(struct pool *pool, uint64_t key); \
    /* Calls visit for every entry in the structure's order; single-threaded. */ \
    void peer_##NAME##_visit(struct pool *pool, void (*visit)(void *, uint64_t, uint64_t), void *context);
PEER_MAP(hash)
PEER_MAP(tree)
PEER_MAP(list)
PEER_MAP(btree)

/* Records of up to 65535 bytes under a key, in the B+-tree. read: returns its length, -1 if there is none. */
int64_t peer_record_read(struct pool *pool, uint64_t key, uint8_t *value, uint64_t capacity);
int peer_record_put(struct pool *pool, uint64_t key, const uint8_t *value, uint64_t length);
int peer_record_remove(struct pool *pool, uint64_t key);
/* Touches every byte of up to count records from start on. Returns their number. */
uint64_t peer_record_scan(struct pool *pool, uint64_t start, uint64_t count, uint8_t *sum);

#endif
