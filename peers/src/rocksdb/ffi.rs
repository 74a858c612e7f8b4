//! The few functions of RocksDB's C interface that a benchmark needs, as `rocksdb/c.h` of version 7.8 declares them.

use std::ffi::{c_char, c_double, c_int, c_uchar};
use std::marker::{PhantomData, PhantomPinned};

macro_rules! opaque {
    ($($name:ident)*) => {$(
        /// Known only to RocksDB.
        #[repr(C)]
        pub(super) struct $name {
            bytes: [u8; 0],
            marker: PhantomData<(*mut u8, PhantomPinned)>,
        }
    )*};
}

opaque! { TransactionDb TransactionDbOptions TransactionOptions Transaction }
opaque! { Db Options BlockOptions Cache FilterPolicy ReadOptions WriteOptions FlushOptions Iterator PinnableSlice }

#[expect(unsafe_code, reason = "declarations of a C library")]
// SAFETY: the signatures are those of rocksdb/c.h. Callers keep the rules written there.
unsafe extern "C" {
    pub(super) fn rocksdb_open(options: *const Options, name: *const c_char, error: *mut *mut c_char) -> *mut Db;
    pub(super) fn rocksdb_close(db: *mut Db);
    pub(super) fn rocksdb_put(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_length: usize,
        value: *const c_char,
        value_length: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_delete(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_length: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_get_pinned(
        db: *mut Db,
        options: *const ReadOptions,
        key: *const c_char,
        key_length: usize,
        error: *mut *mut c_char,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_pinnableslice_value(slice: *const PinnableSlice, length: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_pinnableslice_destroy(slice: *mut PinnableSlice);
    pub(super) fn rocksdb_create_iterator(db: *mut Db, options: *const ReadOptions) -> *mut Iterator;
    pub(super) fn rocksdb_iter_seek(iterator: *mut Iterator, key: *const c_char, key_length: usize);
    pub(super) fn rocksdb_iter_valid(iterator: *const Iterator) -> c_uchar;
    pub(super) fn rocksdb_iter_next(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_key(iterator: *const Iterator, length: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_value(iterator: *const Iterator, length: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_get_error(iterator: *const Iterator, error: *mut *mut c_char);
    pub(super) fn rocksdb_iter_destroy(iterator: *mut Iterator);
    pub(super) fn rocksdb_flush(db: *mut Db, options: *const FlushOptions, error: *mut *mut c_char);
    pub(super) fn rocksdb_free(memory: *mut c_char);

    pub(super) fn rocksdb_iter_seek_for_prev(iterator: *mut Iterator, key: *const c_char, key_length: usize);
    pub(super) fn rocksdb_iter_prev(iterator: *mut Iterator);
    pub(super) fn rocksdb_transactiondb_options_create() -> *mut TransactionDbOptions;
    pub(super) fn rocksdb_transactiondb_options_destroy(options: *mut TransactionDbOptions);
    pub(super) fn rocksdb_transaction_options_create() -> *mut TransactionOptions;
    pub(super) fn rocksdb_transaction_options_destroy(options: *mut TransactionOptions);
    pub(super) fn rocksdb_transaction_options_set_deadlock_detect(options: *mut TransactionOptions, value: c_uchar);
    pub(super) fn rocksdb_transactiondb_open(
        options: *const Options,
        transactions: *const TransactionDbOptions,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut TransactionDb;
    pub(super) fn rocksdb_transactiondb_close(db: *mut TransactionDb);
    pub(super) fn rocksdb_transactiondb_flush(
        db: *mut TransactionDb,
        options: *const FlushOptions,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_transaction_begin(
        db: *mut TransactionDb,
        write: *const WriteOptions,
        options: *const TransactionOptions,
        old: *mut Transaction,
    ) -> *mut Transaction;
    pub(super) fn rocksdb_transaction_commit(transaction: *mut Transaction, error: *mut *mut c_char);
    pub(super) fn rocksdb_transaction_rollback(transaction: *mut Transaction, error: *mut *mut c_char);
    pub(super) fn rocksdb_transaction_destroy(transaction: *mut Transaction);
    pub(super) fn rocksdb_transaction_get_pinned(
        transaction: *mut Transaction,
        options: *const ReadOptions,
        key: *const c_char,
        key_length: usize,
        error: *mut *mut c_char,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_transaction_get_pinned_for_update(
        transaction: *mut Transaction,
        options: *const ReadOptions,
        key: *const c_char,
        key_length: usize,
        exclusive: c_uchar,
        error: *mut *mut c_char,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_transaction_put(
        transaction: *mut Transaction,
        key: *const c_char,
        key_length: usize,
        value: *const c_char,
        value_length: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_transaction_delete(
        transaction: *mut Transaction,
        key: *const c_char,
        key_length: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_transaction_create_iterator(
        transaction: *mut Transaction,
        options: *const ReadOptions,
    ) -> *mut Iterator;

    pub(super) fn rocksdb_options_create() -> *mut Options;
    pub(super) fn rocksdb_options_destroy(options: *mut Options);
    pub(super) fn rocksdb_options_set_create_if_missing(options: *mut Options, value: c_uchar);
    pub(super) fn rocksdb_options_increase_parallelism(options: *mut Options, threads: c_int);
    pub(super) fn rocksdb_options_set_compression(options: *mut Options, kind: c_int);
    pub(super) fn rocksdb_options_set_recycle_log_file_num(options: *mut Options, files: usize);
    pub(super) fn rocksdb_options_set_enable_pipelined_write(options: *mut Options, value: c_uchar);
    pub(super) fn rocksdb_options_set_use_direct_reads(options: *mut Options, value: c_uchar);
    pub(super) fn rocksdb_options_enable_statistics(options: *mut Options);
    pub(super) fn rocksdb_options_statistics_get_string(options: *mut Options) -> *mut c_char;
    pub(super) fn rocksdb_options_set_block_based_table_factory(options: *mut Options, table: *mut BlockOptions);
    pub(super) fn rocksdb_block_based_options_create() -> *mut BlockOptions;
    pub(super) fn rocksdb_block_based_options_destroy(options: *mut BlockOptions);
    pub(super) fn rocksdb_block_based_options_set_block_cache(options: *mut BlockOptions, cache: *mut Cache);
    pub(super) fn rocksdb_block_based_options_set_filter_policy(options: *mut BlockOptions, policy: *mut FilterPolicy);
    pub(super) fn rocksdb_cache_create_lru(capacity: usize) -> *mut Cache;
    pub(super) fn rocksdb_cache_destroy(cache: *mut Cache);
    pub(super) fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: c_double) -> *mut FilterPolicy;
    pub(super) fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub(super) fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    pub(super) fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub(super) fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    pub(super) fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, value: c_uchar);
    pub(super) fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    pub(super) fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);
}
