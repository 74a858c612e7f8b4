//! Threads that a database has.

use std::thread;

/// Waits for the end of `thread`, unless it is this one: a waker that it calls may drop the last handle. A thread
/// cannot wait for its own end. It finds that it is to end when the waker returns.
pub fn join(thread: thread::JoinHandle<()>) {
    if thread.thread().id() != thread::current().id() {
        // Its panic has poisoned the database, or changed nothing. It ends no other thread.
        let _ = thread.join();
    }
}
