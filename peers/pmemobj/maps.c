/*
 * The structures of the transactional memory benchmark on libpmemobj, as its users are advised to write them:
 *
 * - one reader-writer lock for each structure, in DRAM. Readers follow plain pointers and open no transaction;
 * - an update searches first and opens a transaction only if it changes something;
 * - a transaction snapshots only the words that it changes. New objects need no snapshot;
 * - references are 64-bit offsets, half the size of the library's own object identifiers.
 *
 * Same layouts, same search code, same hash as the structures in Rust.
 */
#include "maps.h"

#include <libpmemobj.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 14
#define LEVELS_MAX 24
#define LEAF (1ULL << 32)
enum { TYPE_TABLE = 1, TYPE_NODE, TYPE_BRANCH, TYPE_PAGE, TYPE_RECORD };

struct node {
    uint64_t key, value, next;
};

struct branch {
    uint64_t key, value, left, right;
};

struct page {
    uint64_t meta, first, keys[SLOTS], slots[SLOTS];
};

struct record {
    uint64_t length;
    uint8_t bytes[];
};

struct root {
    uint64_t table, list, tree, btree;
};

struct pool {
    PMEMobjpool *pop;
    char *base;
    uint64_t uuid;
    struct root *root;
    uint64_t buckets;
    uint64_t *table;
    /* One lock each, on separate lines. */
    struct {
        pthread_rwlock_t lock;
    } __attribute__((aligned(128))) hash, list, tree, btree;
};

static inline void *at(const struct pool *pool, uint64_t offset)
{
    return pool->base + offset;
}

static inline PMEMoid oid(const struct pool *pool, uint64_t offset)
{
    return (PMEMoid){pool->uuid, offset};
}

static inline uint64_t mix64(uint64_t word)
{
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
    return word ^ (word >> 31);
}

/* Inside a transaction: snapshots and changes one word. */
static inline void set(uint64_t *word, uint64_t value)
{
    pmemobj_tx_add_range_direct(word, sizeof(*word));
    *word = value;
}

const char *peer_error(void)
{
    return pmemobj_errormsg();
}

struct pool *peer_create(const char *path, uint64_t bytes, uint64_t buckets)
{
    PMEMobjpool *pop = pmemobj_create(path, "lodestone-peers", bytes, 0600);
    if (pop == NULL)
        return NULL;
    struct pool *pool = aligned_alloc(128, (sizeof(*pool) + 127) / 128 * 128);
    if (pool == NULL) {
        pmemobj_close(pop);
        return NULL;
    }
    memset(pool, 0, sizeof(*pool));
    PMEMoid root = pmemobj_root(pop, sizeof(struct root));
    pool->pop = pop;
    pool->base = (char *)pop;
    pool->uuid = root.pool_uuid_lo;
    pool->root = pmemobj_direct(root);
    pool->buckets = buckets;
    pthread_rwlock_init(&pool->hash.lock, NULL);
    pthread_rwlock_init(&pool->list.lock, NULL);
    pthread_rwlock_init(&pool->tree.lock, NULL);
    pthread_rwlock_init(&pool->btree.lock, NULL);
    volatile int failed = 0;
    TX_BEGIN(pop) {
        PMEMoid table = pmemobj_tx_zalloc(buckets * sizeof(uint64_t), TYPE_TABLE);
        set(&pool->root->table, table.off);
    } TX_ONABORT {
        failed = 1;
    } TX_END
    if (failed) {
        peer_close(pool);
        return NULL;
    }
    pool->table = at(pool, pool->root->table);
    return pool;
}

void peer_close(struct pool *pool)
{
    pmemobj_close(pool->pop);
    free(pool);
}

/* ---- chains: the list, and the buckets of the hash table ---- */

/* The word that refers to the first node whose key is not below key. */
static inline uint64_t *chain_find(const struct pool *pool, uint64_t *link, uint64_t key)
{
    while (*link != 0) {
        struct node *node = at(pool, *link);
        if (node->key >= key)
            break;
        link = &node->next;
    }
    return link;
}

static inline int chain_get(const struct pool *pool, uint64_t *head, uint64_t key, uint64_t *value)
{
    uint64_t *link = chain_find(pool, head, key);
    if (*link == 0)
        return 0;
    struct node *node = at(pool, *link);
    if (node->key != key)
        return 0;
    *value = node->value;
    return 1;
}

static inline int chain_insert(struct pool *pool, uint64_t *head, uint64_t key, uint64_t value)
{
    uint64_t *link = chain_find(pool, head, key);
    if (*link != 0 && ((struct node *)at(pool, *link))->key == key)
        return 0;
    volatile int outcome = 1;
    TX_BEGIN(pool->pop) {
        PMEMoid made = pmemobj_tx_alloc(sizeof(struct node), TYPE_NODE);
        struct node *node = at(pool, made.off);
        node->key = key;
        node->value = value;
        node->next = *link;
        set(link, made.off);
    } TX_ONABORT {
        outcome = -1;
    } TX_END
    return outcome;
}

static inline int chain_remove(struct pool *pool, uint64_t *head, uint64_t key)
{
    uint64_t *link = chain_find(pool, head, key);
    if (*link == 0 || ((struct node *)at(pool, *link))->key != key)
        return 0;
    volatile int outcome = 1;
    TX_BEGIN(pool->pop) {
        uint64_t gone = *link;
        set(link, ((struct node *)at(pool, gone))->next);
        pmemobj_tx_free(oid(pool, gone));
    } TX_ONABORT {
        outcome = -1;
    } TX_END
    return outcome;
}

static void chain_visit(struct pool *pool, uint64_t first, void (*visit)(void *, uint64_t, uint64_t), void *context)
{
    while (first != 0) {
        struct node *node = at(pool, first);
        visit(context, node->key, node->value);
        first = node->next;
    }
}

static inline uint64_t *bucket(const struct pool *pool, uint64_t key)
{
    return &pool->table[(uint64_t)(((unsigned __int128)mix64(key) * pool->buckets) >> 64)];
}

/* Defines the locked calls of a structure by its three operations. */
#define LOCKED(NAME, GET, INSERT, REMOVE) \
    int peer_##NAME##_get(struct pool *pool, uint64_t key, uint64_t *value) \
    { \
        pthread_rwlock_rdlock(&pool->NAME.lock); \
        int found = GET; \
        pthread_rwlock_unlock(&pool->NAME.lock); \
        return found; \
    } \
    int peer_##NAME##_insert(struct pool *pool, uint64_t key, uint64_t value) \
    { \
        pthread_rwlock_wrlock(&pool->NAME.lock); \
        int outcome = INSERT; \
        pthread_rwlock_unlock(&pool->NAME.lock); \
        return outcome; \
    } \
    int peer_##NAME##_remove(struct pool *pool, uint64_t key) \
    { \
        pthread_rwlock_wrlock(&pool->NAME.lock); \
        int outcome = REMOVE; \
        pthread_rwlock_unlock(&pool->NAME.lock); \
        return outcome; \
    }

LOCKED(hash, chain_get(pool, bucket(pool, key), key, value), chain_insert(pool, bucket(pool, key), key, value),
       chain_remove(pool, bucket(pool, key), key))
LOCKED(list, chain_get(pool, &pool->root->list, key, value), chain_insert(pool, &pool->root->list, key, value),
       chain_remove(pool, &pool->root->list, key))

void peer_hash_visit(struct pool *pool, void (*visit)(void *, uint64_t, uint64_t), void *context)
{
    for (uint64_t index = 0; index < pool->buckets; index++)
        chain_visit(pool, pool->table[index], visit, context);
}

void peer_list_visit(struct pool *pool, void (*visit)(void *, uint64_t, uint64_t), void *context)
{
    chain_visit(pool, pool->root->list, visit, context);
}

/* ---- the binary search tree ---- */

static inline uint64_t *tree_find(const struct pool *pool, uint64_t key)
{
    uint64_t *link = &pool->root->tree;
    while (*link != 0) {
        struct branch *branch = at(pool, *link);
        if (branch->key == key)
            break;
        link = key < branch->key ? &branch->left : &branch->right;
    }
    return link;
}

static inline int tree_get(const struct pool *pool, uint64_t key, uint64_t *value)
{
    uint64_t *link = tree_find(pool, key);
    if (*link == 0)
        return 0;
    *value = ((struct branch *)at(pool, *link))->value;
    return 1;
}

static int tree_insert(struct pool *pool, uint64_t key, uint64_t value)
{
    uint64_t *link = tree_find(pool, key);
    if (*link != 0)
        return 0;
    volatile int outcome = 1;
    TX_BEGIN(pool->pop) {
        PMEMoid made = pmemobj_tx_alloc(sizeof(struct branch), TYPE_BRANCH);
        struct branch *branch = at(pool, made.off);
        *branch = (struct branch){key, value, 0, 0};
        set(link, made.off);
    } TX_ONABORT {
        outcome = -1;
    } TX_END
    return outcome;
}

static int tree_remove(struct pool *pool, uint64_t key)
{
    uint64_t *link = tree_find(pool, key);
    if (*link == 0)
        return 0;
    volatile int outcome = 1;
    TX_BEGIN(pool->pop) {
        uint64_t gone = *link;
        struct branch *branch = at(pool, gone);
        if (branch->left == 0 || branch->right == 0) {
            set(link, branch->left | branch->right);
        } else {
            uint64_t *below = &branch->right;
            while (((struct branch *)at(pool, *below))->left != 0)
                below = &((struct branch *)at(pool, *below))->left;
            gone = *below;
            struct branch *successor = at(pool, gone);
            /* Key and value are neighbours: one snapshot. */
            pmemobj_tx_add_range_direct(branch, 2 * sizeof(uint64_t));
            branch->key = successor->key;
            branch->value = successor->value;
            set(below, successor->right);
        }
        pmemobj_tx_free(oid(pool, gone));
    } TX_ONABORT {
        outcome = -1;
    } TX_END
    return outcome;
}

LOCKED(tree, tree_get(pool, key, value), tree_insert(pool, key, value), tree_remove(pool, key))

static void tree_visit(struct pool *pool, uint64_t from, void (*visit)(void *, uint64_t, uint64_t), void *context)
{
    if (from == 0)
        return;
    struct branch *branch = at(pool, from);
    tree_visit(pool, branch->left, visit, context);
    visit(context, branch->key, branch->value);
    tree_visit(pool, branch->right, visit, context);
}

void peer_tree_visit(struct pool *pool, void (*visit)(void *, uint64_t, uint64_t), void *context)
{
    tree_visit(pool, pool->root->tree, visit, context);
}

/* ---- the B+-tree ---- */

static inline uint64_t page_count(const struct page *page)
{
    return page->meta & 0xFFFF;
}

static inline uint64_t page_rank(const struct page *page, uint64_t key, int or_equal)
{
    uint64_t rank = 0, count = page_count(page);
    for (uint64_t index = 0; index < count; index++)
        rank += page->keys[index] < key || (or_equal && page->keys[index] == key);
    return rank;
}

static inline int page_position(const struct page *page, uint64_t key)
{
    int count = (int)page_count(page);
    for (int index = 0; index < count; index++)
        if (page->keys[index] == key)
            return index;
    return -1;
}

static void page_put(struct page *page, uint64_t key, uint64_t slot)
{
    uint64_t rank = page_rank(page, key, 0), count = page_count(page);
    memmove(&page->keys[rank + 1], &page->keys[rank], (count - rank) * sizeof(uint64_t));
    memmove(&page->slots[rank + 1], &page->slots[rank], (count - rank) * sizeof(uint64_t));
    page->keys[rank] = key;
    page->slots[rank] = slot;
    page->meta++;
}

static void page_take(struct page *page, int position)
{
    uint64_t above = page_count(page) - (uint64_t)position - 1;
    memmove(&page->keys[position], &page->keys[position + 1], above * sizeof(uint64_t));
    memmove(&page->slots[position], &page->slots[position + 1], above * sizeof(uint64_t));
    page->meta--;
}

struct path {
    struct page *pages[LEVELS_MAX];
    int depth;
};

static inline struct page *btree_leaf(const struct pool *pool, uint64_t key, struct path *path)
{
    uint64_t next = pool->root->btree;
    struct page *page = NULL;
    path->depth = 0;
    while (next != 0 && path->depth < LEVELS_MAX) {
        page = at(pool, next);
        path->pages[path->depth++] = page;
        if (page->meta & LEAF)
            return page;
        uint64_t rank = page_rank(page, key, 1);
        next = rank == 0 ? page->first : page->slots[rank - 1];
    }
    return NULL;
}

static struct page *page_new(struct pool *pool, uint64_t meta)
{
    PMEMoid made = pmemobj_tx_alloc(sizeof(struct page), TYPE_PAGE);
    struct page *page = at(pool, made.off);
    page->meta = meta;
    page->first = 0;
    return page;
}

static uint64_t offset_of(const struct pool *pool, const void *pointer)
{
    return (uint64_t)((const char *)pointer - pool->base);
}

/* Inside a transaction: adds an entry for which the path's leaf has no room, splitting upwards. */
static void btree_split(struct pool *pool, struct path *path, uint64_t key, uint64_t slot)
{
    for (int level = path->depth - 1; level >= 0; level--) {
        struct page *page = path->pages[level];
        pmemobj_tx_add_range_direct(page, sizeof(*page));
        uint64_t count = page_count(page), half = count / 2;
        if (count < SLOTS) {
            page_put(page, key, slot);
            return;
        }
        uint64_t leaf = page->meta & LEAF, from = leaf ? half : half + 1;
        struct page *upper = page_new(pool, leaf | (count - from));
        memcpy(upper->keys, &page->keys[from], (count - from) * sizeof(uint64_t));
        memcpy(upper->slots, &page->slots[from], (count - from) * sizeof(uint64_t));
        upper->first = leaf ? page->first : page->slots[half];
        uint64_t separator = page->keys[half];
        page->meta = leaf | half;
        page_put(key < separator ? page : upper, key, slot);
        if (leaf)
            page->first = offset_of(pool, upper);
        key = separator;
        slot = offset_of(pool, upper);
    }
    struct page *root = page_new(pool, 0);
    root->first = pool->root->btree;
    page_put(root, key, slot);
    set(&pool->root->btree, offset_of(pool, root));
}

/* Inside a transaction: adds an entry that is absent. */
static void btree_add(struct pool *pool, struct page *leaf, struct path *path, uint64_t key, uint64_t value)
{
    if (leaf == NULL) {
        leaf = page_new(pool, LEAF);
        page_put(leaf, key, value);
        set(&pool->root->btree, offset_of(pool, leaf));
    } else if (page_count(leaf) < SLOTS) {
        pmemobj_tx_add_range_direct(leaf, sizeof(*leaf));
        page_put(leaf, key, value);
    } else {
        btree_split(pool, path, key, value);
    }
}

static inline int btree_get(const struct pool *pool, uint64_t key, uint64_t *value)
{
    struct path path;
    struct page *leaf = btree_leaf(pool, key, &path);
    int position = leaf == NULL ? -1 : page_position(leaf, key);
    if (position < 0)
        return 0;
    *value = leaf->slots[position];
    return 1;
}

static int btree_insert(struct pool *pool, uint64_t key, uint64_t value)
{
    struct path path;
    struct page *leaf = btree_leaf(pool, key, &path);
    if (leaf != NULL && page_position(leaf, key) >= 0)
        return 0;
    volatile int outcome = 1;
    TX_BEGIN(pool->pop) {
        btree_add(pool, leaf, &path, key, value);
    } TX_ONABORT {
        outcome = -1;
    } TX_END
    return outcome;
}

static int btree_remove(struct pool *pool, uint64_t key)
{
    struct path path;
    struct page *leaf = btree_leaf(pool, key, &path);
    int position = leaf == NULL ? -1 : page_position(leaf, key);
    if (position < 0)
        return 0;
    volatile int outcome = 1;
    TX_BEGIN(pool->pop) {
        pmemobj_tx_add_range_direct(leaf, sizeof(*leaf));
        page_take(leaf, position);
    } TX_ONABORT {
        outcome = -1;
    } TX_END
    return outcome;
}

LOCKED(btree, btree_get(pool, key, value), btree_insert(pool, key, value), btree_remove(pool, key))

void peer_btree_visit(struct pool *pool, void (*visit)(void *, uint64_t, uint64_t), void *context)
{
    struct path path;
    struct page *leaf = btree_leaf(pool, 0, &path);
    while (leaf != NULL) {
        for (uint64_t index = 0; index < page_count(leaf); index++)
            visit(context, leaf->keys[index], leaf->slots[index]);
        leaf = leaf->first == 0 ? NULL : at(pool, leaf->first);
    }
}

/* ---- records in the B+-tree ---- */

int64_t peer_record_read(struct pool *pool, uint64_t key, uint8_t *value, uint64_t capacity)
{
    uint64_t found;
    int64_t length = -1;
    pthread_rwlock_rdlock(&pool->btree.lock);
    if (btree_get(pool, key, &found)) {
        struct record *record = at(pool, found);
        uint64_t bytes = record->length < capacity ? record->length : capacity;
        memcpy(value, record->bytes, bytes);
        length = (int64_t)bytes;
    }
    pthread_rwlock_unlock(&pool->btree.lock);
    return length;
}

static uint64_t record_new(struct pool *pool, const uint8_t *value, uint64_t length)
{
    PMEMoid made = pmemobj_tx_alloc(sizeof(struct record) + length, TYPE_RECORD);
    struct record *record = at(pool, made.off);
    record->length = length;
    memcpy(record->bytes, value, length);
    return made.off;
}

int peer_record_put(struct pool *pool, uint64_t key, const uint8_t *value, uint64_t length)
{
    struct path path;
    volatile int outcome = 0;
    pthread_rwlock_wrlock(&pool->btree.lock);
    struct page *leaf = btree_leaf(pool, key, &path);
    int position = leaf == NULL ? -1 : page_position(leaf, key);
    struct record *record = position < 0 ? NULL : at(pool, leaf->slots[position]);
    TX_BEGIN(pool->pop) {
        if (record == NULL) {
            btree_add(pool, leaf, &path, key, record_new(pool, value, length));
        } else if (record->length == length) {
            outcome = 1;
            pmemobj_tx_add_range_direct(record->bytes, length);
            memcpy(record->bytes, value, length);
        } else {
            outcome = 1;
            uint64_t made = record_new(pool, value, length);
            pmemobj_tx_free(oid(pool, leaf->slots[position]));
            set(&leaf->slots[position], made);
        }
    } TX_ONABORT {
        outcome = -1;
    } TX_END
    pthread_rwlock_unlock(&pool->btree.lock);
    return outcome;
}

int peer_record_remove(struct pool *pool, uint64_t key)
{
    struct path path;
    volatile int outcome = 0;
    pthread_rwlock_wrlock(&pool->btree.lock);
    struct page *leaf = btree_leaf(pool, key, &path);
    int position = leaf == NULL ? -1 : page_position(leaf, key);
    if (position >= 0) {
        outcome = 1;
        TX_BEGIN(pool->pop) {
            pmemobj_tx_free(oid(pool, leaf->slots[position]));
            pmemobj_tx_add_range_direct(leaf, sizeof(*leaf));
            page_take(leaf, position);
        } TX_ONABORT {
            outcome = -1;
        } TX_END
    }
    pthread_rwlock_unlock(&pool->btree.lock);
    return outcome;
}

uint64_t peer_record_scan(struct pool *pool, uint64_t start, uint64_t count, uint8_t *sum)
{
    struct path path;
    uint64_t seen = 0;
    pthread_rwlock_rdlock(&pool->btree.lock);
    struct page *leaf = btree_leaf(pool, start, &path);
    while (leaf != NULL && seen < count) {
        for (uint64_t index = page_rank(leaf, start, 0); index < page_count(leaf) && seen < count; index++) {
            struct record *record = at(pool, leaf->slots[index]);
            uint8_t folded = 0;
            for (uint64_t byte = 0; byte < record->length; byte++)
                folded ^= record->bytes[byte];
            *sum ^= folded;
            seen++;
        }
        leaf = leaf->first == 0 ? NULL : at(pool, leaf->first);
    }
    pthread_rwlock_unlock(&pool->btree.lock);
    return seen;
}
