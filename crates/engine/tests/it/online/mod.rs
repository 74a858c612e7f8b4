//! Tables that change while they are used: indexes that are built, columns that come and go, and leaves without rows.

mod build;
mod columns;
mod queue;
